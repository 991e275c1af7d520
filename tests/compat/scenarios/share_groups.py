"""Share groups (KIP-932): members, their epochs, start offsets, and other APIs' answers about such a group.

Partitions are initialized outside of the requests, so the scenarios do not compare the first heartbeats. The
APIs have one version in Apache Kafka 4.2, so each scenario runs once.
"""

from __future__ import annotations

import time

from tests.compat.scenarios.consumer_groups import enter, id_of, known_topic
from tests.compat.scenarios.groups import beat as classic_beat
from tests.compat.scenarios.groups import commit, join, leave, sync

from barnabas.kafka.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.kafka.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def beat(wire, member: str, epoch: int, *topics: str, group: str = "g", **more) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=wire.name(group),
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=[wire.name(topic) for topic in topics] or None,
        **more,
    )


def describe(wire, group: str = "g") -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=[wire.name(group)], include_authorized_operations=True)


def joined(wire, member: str, *topics: str, partitions: int, group: str = "g") -> int:
    """Return the epoch of a member that has joined and got its partitions."""
    answer = wire.ask(beat(wire, member, 0, *topics, group=group))
    for _ in range(600):
        assert not answer.error_code, answer
        held = sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)
        if held == partitions:
            return answer.member_epoch
        time.sleep(0.1)
        answer = wire.ask(beat(wire, member, answer.member_epoch, *topics, group=group))
    raise AssertionError(f"the partitions do not come: {answer}")


def alter(wire, offsets: dict[tuple[str, int], int], group: str = "g") -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=wire.name(group),
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=wire.name(topic),
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
    )


def offsets(wire, *topics: tuple[str, list[int]], group: str = "g") -> DescribeShareGroupOffsetsRequest:
    wanted = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=wire.name(topic), partitions=numbers)
        for topic, numbers in topics
    ]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=wire.name(group), topics=wanted or None)
    return DescribeShareGroupOffsetsRequest(groups=[asked])


def delete_offsets(wire, *topics: str, group: str = "g") -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(
        group_id=wire.name(group),
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=wire.name(topic)) for topic in topics],
    )


def members_of_a_share_group(wire):
    if wire.level:
        return
    known_topic(wire, "t", 3)
    first, second = id_of("a", wire), id_of("b", wire)
    epoch = joined(wire, first, "t", partitions=3)
    yield describe(wire)
    yield beat(wire, first, epoch)
    yield beat(wire, first, epoch, "t")
    yield beat(wire, first, epoch + 1)
    yield beat(wire, first, epoch, rack_id="r")
    yield beat(wire, first, 0, "t")
    yield beat(wire, second, 1)
    yield beat(wire, second, -1)
    yield beat(wire, first, -1)
    yield beat(wire, first, epoch)
    yield describe(wire)
    yield DeleteGroupsRequest(groups_names=[wire.name("g")])
    yield describe(wire)
    yield beat(wire, first, epoch)


def members_beyond_the_partitions_share_them(wire):
    if wire.level:
        return
    known_topic(wire, "t", 1)
    members = [id_of(name, wire) for name in "abc"]
    epochs = [joined(wire, member, "t", partitions=1) for member in members]
    yield beat(wire, members[0], epochs[0])
    yield beat(wire, members[1], epochs[1])
    yield describe(wire)
    yield beat(wire, members[2], -1)
    yield describe(wire)


def heartbeats_that_no_member_of_a_share_group_may_send(wire):
    if wire.level:
        return
    known_topic(wire, "t", 1)
    member = id_of("a", wire)
    yield beat(wire, "", 0, "t")
    yield beat(wire, member, 0)
    yield beat(wire, member, -2, "t")
    yield beat(wire, member, -1)
    yield beat(wire, member, 1)
    yield beat(wire, member, 0, "t", rack_id="")
    yield ShareGroupHeartbeatRequest(group_id="", member_id=member, subscribed_topic_names=["t"])
    yield describe(wire)
    yield ShareGroupDescribeRequest(group_ids=[""])
    yield ShareGroupDescribeRequest(group_ids=[])


def a_share_group_is_of_no_other_type(wire):
    if wire.level:
        return
    topic = known_topic(wire, "t", 1)
    member, group = id_of("a", wire), wire.name("g")
    joined(wire, member, "t", partitions=1)
    yield join(group)
    yield sync(group, 1, member, b"")
    yield classic_beat(group, 1, member)
    yield leave(group, member)
    yield enter(wire, id_of("b", wire), "t")
    wanted = OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    yield OffsetDeleteRequest(group_id=group, topics=[wanted])
    assert wire.ask(commit(wire, group, topic, 5), 9).topics[0].partitions[0].error_code == 69
    fetched = wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]), 9)
    assert (fetched.groups[0].error_code, fetched.groups[0].topics) == (0, [])
    (described,) = wire.ask(DescribeGroupsRequest(groups=[group]), 6).groups
    assert (described.error_code, described.group_state) == (69, "Dead")
    for types in (["share"], ["consumer"]):
        listed = wire.ask(ListGroupsRequest(types_filter=types), 5)
        found = [each for each in listed.groups if each.group_id == group]
        assert [(each.group_type, each.protocol_type) for each in found] == (
            [("share", "share")] if types == ["share"] else []
        )
    yield DeleteGroupsRequest(groups_names=[group])


def a_group_of_another_type_is_no_share_group(wire):
    if wire.level:
        return
    known_topic(wire, "t", 1)
    joined(wire, id_of("s", wire), "t", partitions=1, group="s")  # Kafka makes the topic of states
    wire.ask(enter(wire, id_of("m", wire), "t", group="c"), 1)
    answer = wire.ask(join(wire.name("k")), 5)
    wire.ask(join(wire.name("k"), answer.member_id), 5)
    for group in ("c", "k"):
        yield beat(wire, id_of("a", wire), 0, "t", group=group)
        yield beat(wire, id_of("a", wire), -1, group=group)
        yield describe(wire, group)
        yield offsets(wire, group=group)
        yield offsets(wire, ("t", [0]), group=group)
        yield delete_offsets(wire, "t", group=group)
        yield alter(wire, {("t", 0): 0}, group)


def start_offsets_of_a_share_group(wire):
    if wire.level:
        return
    known_topic(wire, "t", 2)
    known_topic(wire, "u", 1)
    known_topic(wire, "v", 1)
    member = id_of("a", wire)
    yield offsets(wire)
    yield offsets(wire, ("t", [0]))
    yield delete_offsets(wire, "t")
    yield alter(wire, {("t", 0): 0, ("nothing", 0): 0})
    yield alter(wire, {("t", 9): 0})
    yield alter(wire, {("t", 1): 0})  # else Kafka 4.2 begins there by share.auto.offset.reset (KAFKA-20742)
    yield offsets(wire, ("t", [0]))
    joined(wire, member, "t", "v", partitions=3)
    yield alter(wire, {("t", 0): 0})
    yield delete_offsets(wire, "t")
    wire.ask(beat(wire, member, -1))
    yield offsets(wire, ("t", [0, 1]), ("u", [0]), ("v", [0]))
    yield offsets(wire)
    yield alter(wire, {("t", 1): 0})
    yield delete_offsets(wire, "u")
    yield delete_offsets(wire, "nothing")
    yield delete_offsets(wire, "t")
    yield offsets(wire)
    yield DeleteGroupsRequest(groups_names=[wire.name("g")])
