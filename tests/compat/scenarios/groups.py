"""Consumer groups of the classic protocol, and their offsets."""

from __future__ import annotations

import struct

from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

UNKNOWN_ID = b"no such topic id"
# ConsumerProtocolSubscription v0 of topic "t": Apache Kafka never answers a member whose own it cannot read.
SUBSCRIPTION = struct.pack(">hih1si", 0, 1, 1, b"t", -1)


def join(
    group: str, member: str = "", protocols: tuple[str, ...] = ("range",), session: int = 10_000, **more
):
    offered = [JoinGroupRequestProtocol(name=name, metadata=SUBSCRIPTION) for name in protocols]
    return JoinGroupRequest(**{
        "group_id": group, "session_timeout_ms": session, "rebalance_timeout_ms": 10_000, "member_id": member,
        "protocol_type": "consumer", "protocols": offered, **more,
    })  # fmt: skip


def sync(
    group: str, generation: int, member: str, assignment: bytes | None = None, **more
) -> SyncGroupRequest:
    given = (
        [] if assignment is None else [SyncGroupRequestAssignment(member_id=member, assignment=assignment)]
    )
    return SyncGroupRequest(**{
        "group_id": group, "generation_id": generation, "member_id": member, "protocol_type": "consumer",
        "protocol_name": "range", "assignments": given, **more,
    })  # fmt: skip


def beat(group: str, generation: int, member: str, **more) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, **more)


def leave(group: str, member: str, instance: str | None = None) -> LeaveGroupRequest:
    identity = MemberIdentity(member_id=member, group_instance_id=instance)
    return LeaveGroupRequest(group_id=group, member_id=member, members=[identity])


def commit(wire, group: str, topic: str, offset: int, generation: int = -1, member: str = "", **more):
    partition = OffsetCommitRequestPartition(
        partition_index=more.pop("partition", 0),
        committed_offset=offset,
        committed_leader_epoch=more.pop("epoch", -1),
        committed_metadata=more.pop("metadata", ""),
    )
    topic_id = wire.topic_id(topic) if topic else UNKNOWN_ID
    topics = [OffsetCommitRequestTopic(name=topic or "nowhere", topic_id=topic_id, partitions=[partition])]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics, **more
    )


def committed(wire, group: str, topic: str | None, partitions: tuple[int, ...] = (0,)) -> OffsetFetchRequest:
    old = new = None
    if topic is not None:
        topic_id, name, wanted = (
            wire.topic_id(topic) if topic else UNKNOWN_ID,
            topic or "nowhere",
            list(partitions),
        )
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=wanted)]
        new = [OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=wanted)]
    asked = OffsetFetchRequestGroup(group_id=group, topics=new)
    return OffsetFetchRequest(group_id=group, topics=old, groups=[asked])


def joined(wire, group: str, **more):
    """Join as the only member, by one request or by two: since v4, the first answer has the member id."""
    answer = yield join(group, **more)
    if answer.error_code:
        answer = yield join(group, answer.member_id, **more)
    return answer.member_id, answer.generation_id


def coordinators(wire):
    for kind, key in ((0, wire.name("g")), (0, ""), (2, "x"), (9, "x")):
        yield FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def a_member_lives_in_its_group(wire):
    group = wire.name("g")
    member, generation = yield from joined(wire, group)
    yield beat(group, generation, member)
    yield sync(group, generation, member, b"all of it")
    yield beat(group, generation, member)
    yield sync(group, generation, member)
    yield DescribeGroupsRequest(groups=[group, wire.name("none")])
    yield DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    yield beat(group, generation + 1, member)
    yield beat(group, generation, "somebody else")
    yield beat(wire.name("none"), generation, member)
    yield sync(group, generation + 1, member)
    yield sync(group, generation, "somebody else")
    yield sync(group, generation, member, protocol_type="other")
    yield sync(group, generation, member, protocol_name="other")
    yield join(group, member, protocols=("other",))  # a changed protocol rebalances
    yield beat(group, generation, member)
    yield DeleteGroupsRequest(groups_names=[group])
    yield leave(group, "somebody else")
    yield leave(group, member)
    yield leave(group, member)
    yield DescribeGroupsRequest(groups=[group])
    yield DeleteGroupsRequest(groups_names=[group, wire.name("none")])
    yield DescribeGroupsRequest(groups=[group])


def refused_joins(wire):
    group = wire.name("g")
    yield join("")
    yield join(group, session=1)
    yield join(group, session=100_000_000)
    yield join(group, "unknown member")
    yield join(group, protocols=())
    yield join(group, protocol_type="")
    yield from joined(wire, wire.name("other"), protocol_type="connect")
    yield join(wire.name("other"), "")
    yield join(wire.name("other"), "", protocols=("nothing shared",), protocol_type="connect")


def a_static_member_returns(wire):
    if wire.level < 5:  # JoinGroup v5 brought static members
        return
    group = wire.name("g")
    first = yield join(group, group_instance_id="one")
    yield sync(group, first.generation_id, first.member_id, b"all", group_instance_id="one")
    again = yield join(group, group_instance_id="one")
    yield beat(group, again.generation_id, first.member_id, group_instance_id="one")  # fenced by the second
    yield beat(group, again.generation_id, again.member_id, group_instance_id="one")
    yield beat(group, again.generation_id, again.member_id, group_instance_id="two")
    yield sync(group, again.generation_id, again.member_id, group_instance_id="one")
    yield DescribeGroupsRequest(groups=[group])
    yield leave(group, "", "two")
    yield leave(group, "", "one")


def offsets_are_committed_and_fetched(wire):
    group, topic = wire.name("g"), wire.topic("t", 2)
    yield commit(wire, group, topic, 5, metadata="mine", epoch=0)
    yield commit(wire, group, topic, 6, partition=1, metadata=None)
    yield commit(wire, group, topic, 6, partition=9)
    yield commit(wire, group, topic, 7, metadata="x" * 5000)
    yield commit(wire, group, "", 1)
    yield commit(wire, "", topic, 1)
    yield commit(wire, group, topic, 1, generation=3)
    yield commit(wire, group, topic, 1, member="somebody")
    yield committed(wire, group, topic, (0, 1, 9))
    yield committed(wire, group, "")
    if wire.level >= 1:  # all topics since v2
        yield committed(wire, group, None)
    yield committed(wire, wire.name("none"), topic)
    yield DescribeGroupsRequest(groups=[group])
    for name, partition in ((topic, 0), (topic, 9), ("nowhere", 0)):
        wanted = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=wanted)]
        yield OffsetDeleteRequest(group_id=group, topics=topics)
        yield OffsetDeleteRequest(group_id=wire.name("none"), topics=topics)
    yield committed(wire, group, topic, (0, 1))
    yield DeleteGroupsRequest(groups_names=[group])
    yield committed(wire, group, topic, (0, 1))


def a_member_commits(wire):
    group, topic = wire.name("g"), wire.topic("t")
    member, generation = yield from joined(wire, group)
    yield commit(wire, group, topic, 3, generation, member)  # while the group waits for assignments
    yield sync(group, generation, member, b"all")
    yield commit(wire, group, topic, 4, generation, member)
    yield commit(wire, group, topic, 5, generation + 1, member)
    yield commit(wire, group, topic, 5, generation, "somebody else")
    yield commit(wire, group, topic, 5)  # as if there were no members
    yield committed(wire, group, topic)
    yield leave(group, member)
    yield commit(wire, group, topic, 6, generation, member)
    yield commit(wire, group, topic, 6)
    yield committed(wire, group, topic)


def groups_are_listed_by_state(wire):
    if wire.level >= 4:  # before that everything is listed, and each broker has groups of other tests
        yield ListGroupsRequest(states_filter=["NoSuchState"])
        yield ListGroupsRequest(states_filter=["Dead"])
    if wire.level >= 5:
        yield ListGroupsRequest(types_filter=["share"], states_filter=["Dead"])
        yield ListGroupsRequest(types_filter=["nonsense"], states_filter=["Dead"])
