"""Groups of the consumer protocol (KIP-848), alone and with members of the classic protocol.

The coordinator evaluates regular expressions outside of the requests, so a scenario waits for the result. It
does not compare the requests meanwhile, because their number differs.
"""

from __future__ import annotations

import struct
import time

from tests.compat.scenarios.groups import beat as classic_beat
from tests.compat.scenarios.groups import commit, join, leave, sync

from barnabas.kafka.protocol.messages.alter_configs import AlterableConfig as OldAlterableConfig
from barnabas.kafka.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from barnabas.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import AlterConfigsResource as AlterResource
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
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

GROUP_RESOURCE = 32


def beat(
    wire, member: str, epoch: int, owned=None, group: str = "g", **more
) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat. `owned` are partitions by topic name."""
    if owned is not None:
        owned = [
            TopicPartitions(topic_id=wire.topic_id(topic), partitions=list(partitions))
            for topic, partitions in owned.items()
        ]
    return ConsumerGroupHeartbeatRequest(**{
        "group_id": wire.name(group), "member_id": member, "member_epoch": epoch, "topic_partitions": owned,
        **more,
    })  # fmt: skip


def enter(wire, member: str, *topics: str, **more) -> ConsumerGroupHeartbeatRequest:
    """Return the full heartbeat that joins."""
    names = [wire.name(topic) for topic in topics]
    return beat(
        wire,
        member,
        0,
        **{"owned": {}, "rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, **more},
    )


def known_topic(wire, suffix: str, partitions: int = 1) -> str:
    """Create a topic, and wait until the group coordinator knows it."""
    topic = wire.topic(suffix, partitions)
    probe = f"probe-{suffix}-{partitions}"
    answer = wire.ask(enter(wire, probe, suffix, group=probe), 1)
    for _ in range(200):
        if answer.assignment is not None and answer.assignment.topic_partitions:
            break
        time.sleep(0.02)
        answer = wire.ask(beat(wire, probe, answer.member_epoch, {}, group=probe), 1)
    wire.ask(beat(wire, probe, -1, group=probe), 1)
    return topic


def describe(wire, *groups: str, operations: bool = False) -> ConsumerGroupDescribeRequest:
    names = [wire.name(group) for group in groups or ("g",)]
    return ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=operations)


def id_of(name: str, wire) -> str:
    """Return a member id for each level, because each level has its own group."""
    return f"{name}-{wire.level}"


def heartbeats_that_nobody_may_send(wire):
    known_topic(wire, "t")
    yield enter(wire, "m", "t", group_id="")
    yield enter(wire, "", "t", instance_id="")
    yield enter(wire, "m", "t", rack_id="")
    yield enter(wire, "m", "t", rebalance_timeout_ms=-1)
    yield enter(wire, "m", "t", owned=None)
    yield enter(wire, "m", "t", owned={wire.name("t"): [0]})
    yield enter(wire, "m", subscribed_topic_names=None)
    yield enter(wire, "m", "t", server_assignor="nonsense")
    yield enter(wire, "m", "t", server_assignor="")
    yield beat(wire, "", 1)
    yield beat(wire, "", -1)
    yield beat(wire, "m", -2)
    yield beat(wire, "", -2, instance_id="i")
    yield beat(wire, "m", -3)
    yield beat(wire, "m", 1)
    yield beat(wire, "m", -1)
    yield beat(wire, "m", -2, instance_id="i")
    yield describe(wire)
    if wire.level:
        yield enter(wire, "", "t")
        yield enter(wire, "m", subscribed_topic_names=None, subscribed_topic_regex="(")
        yield enter(wire, "m", subscribed_topic_names=None, subscribed_topic_regex="a**?x(?=b)")
        yield enter(wire, "m", subscribed_topic_names=[], subscribed_topic_regex=None)
        yield enter(wire, "m", subscribed_topic_names=None, subscribed_topic_regex="", group="other")


def one_member_joins_stays_and_leaves(wire):
    topic = known_topic(wire, "t", 3)
    member = id_of("m", wire)
    yield enter(wire, member, "t")
    yield describe(wire, operations=True)
    yield beat(wire, member, 1, {topic: [0, 1, 2]})
    yield beat(wire, member, 1)
    yield beat(wire, member, 2)
    yield beat(wire, member, 7)
    yield beat(wire, "stranger", 1)
    yield beat(wire, member, 1, {topic: [0, 1, 2]}, rebalance_timeout_ms=30_000,
               subscribed_topic_names=[topic])  # fmt: skip
    yield beat(wire, member, 1, subscribed_topic_names=[topic, "nowhere"])
    yield beat(wire, member, 1)
    yield beat(wire, member, 2, server_assignor="range")
    yield describe(wire)
    yield DescribeGroupsRequest(groups=[wire.name("g")])
    yield DeleteGroupsRequest(groups_names=[wire.name("g")])
    yield enter(wire, member, "t")
    yield beat(wire, member, -1)
    yield beat(wire, member, 3)
    yield describe(wire)
    yield DeleteGroupsRequest(groups_names=[wire.name("g")])
    yield describe(wire)


def two_members_share_and_hand_over(wire):
    topic = known_topic(wire, "t", 4)
    one, two = id_of("one", wire), id_of("two", wire)
    yield enter(wire, one, "t")
    yield beat(wire, one, 1, {topic: [0, 1, 2, 3]})
    yield enter(wire, two, "t")
    yield describe(wire)
    yield beat(wire, two, 2, {})
    yield beat(wire, one, 1)
    yield describe(wire)
    yield beat(wire, one, 1, {topic: [0, 1, 2, 3]})
    yield beat(wire, two, 2)
    yield beat(wire, one, 1, {topic: [0, 1]})
    yield beat(wire, one, 1, {topic: [0, 1]})  # the answer was lost
    yield beat(wire, one, 1, {topic: [0, 1, 2]})
    yield beat(wire, two, 2)
    yield describe(wire)
    yield beat(wire, two, -1)
    yield describe(wire)
    yield beat(wire, one, 2, {topic: [0, 1]})
    yield describe(wire)


def a_third_member_waits_for_two(wire):
    topic = known_topic(wire, "t", 6)
    ids = [id_of(name, wire) for name in ("a", "b", "c")]
    yield enter(wire, ids[0], "t")
    yield enter(wire, ids[1], "t")
    yield beat(wire, ids[0], 1, {topic: range(6)})
    yield beat(wire, ids[0], 1, {topic: [0, 1, 2]})
    yield beat(wire, ids[1], 2, {})
    yield enter(wire, ids[2], "t")
    yield beat(wire, ids[0], 2, {topic: [0, 1, 2]})
    yield beat(wire, ids[1], 2, {topic: [3, 4, 5]})
    yield describe(wire)
    described = yield describe(wire)
    for member in sorted(described.groups[0].members, key=lambda member: member.member_id):
        keeps = {part.topic_name: part.partitions for part in member.assignment.topic_partitions}
        yield beat(wire, member.member_id, member.member_epoch, keeps)
    yield beat(wire, ids[2], 3)
    yield beat(wire, ids[2], 3)
    yield describe(wire)


def static_members_leave_and_come_back(wire):
    topic = known_topic(wire, "t", 2)
    one, again, other = id_of("one", wire), id_of("again", wire), id_of("other", wire)
    yield enter(wire, one, "t", instance_id="i")
    yield beat(wire, one, 1, {topic: [0, 1]}, instance_id="i")
    yield enter(wire, other, "t", instance_id="i")
    yield beat(wire, other, 1, instance_id="i")
    yield beat(wire, one, 1, instance_id="j")
    yield beat(wire, other, -2, instance_id="i")
    yield beat(wire, one, -2, instance_id="i")
    yield describe(wire)
    yield beat(wire, one, 1, instance_id="i")
    yield enter(wire, again, "t", instance_id="i")
    yield describe(wire)
    yield beat(wire, one, 1, instance_id="i")
    yield enter(wire, again, "t", instance_id="i")
    yield beat(wire, again, -1, instance_id="i")
    yield describe(wire)
    yield beat(wire, again, -1, instance_id="i")


def topics_grow_come_and_go(wire):
    topic = known_topic(wire, "t", 1)
    member = id_of("m", wire)
    yield enter(wire, member, "t", "later")
    yield beat(wire, member, 1, {topic: [0]})
    growth = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    wire.ask(CreatePartitionsRequest(topics=[growth], timeout_ms=10_000), 3)
    _until_epoch(wire, member, 1, {topic: [0]}, 2)
    yield beat(wire, member, 2)
    later = known_topic(wire, "later", 1)
    _until_epoch(wire, member, 2, {topic: [0, 1, 2]}, 3)
    yield beat(wire, member, 3)
    yield describe(wire)
    wire.ask(DeleteTopicsRequest(topic_names=[later], timeout_ms=10_000), 3)
    _until_epoch(wire, member, 3, {topic: [0, 1, 2]}, 4)
    yield beat(wire, member, 4)
    yield describe(wire)


def regular_expressions(wire):
    topic = known_topic(wire, "log-a", 2)
    known_topic(wire, "other", 1)
    member, second = id_of("m", wire), id_of("n", wire)
    if not wire.level:
        yield describe(wire)
        return
    expression = wire.name("log-.*")
    by_regex = {"subscribed_topic_names": None, "subscribed_topic_regex": expression}
    yield enter(wire, member, **by_regex)
    _until_epoch(wire, member, 1, {}, 2)
    yield beat(wire, member, 2, {topic: [0, 1]})
    yield describe(wire)
    yield enter(wire, second, **by_regex)
    yield beat(wire, member, 2, {topic: [0]})
    yield beat(wire, second, 3)
    yield beat(wire, second, 3, subscribed_topic_regex="", subscribed_topic_names=[wire.name("other")])
    yield beat(wire, member, 3, {topic: [0]})
    yield describe(wire)
    yield beat(wire, member, 4, {topic: [0]})
    yield beat(wire, second, 4, {})
    yield describe(wire)
    yield beat(wire, second, 4, subscribed_topic_regex="[")
    yield beat(wire, second, -1)
    yield beat(wire, member, -1)
    yield describe(wire)


def the_assignor_that_most_ask_for(wire):
    known_topic(wire, "x", 3), known_topic(wire, "y", 2), known_topic(wire, "z", 5)
    ids = [id_of(name, wire) for name in "abc"]
    yield enter(wire, ids[0], "x", "y", "z", server_assignor="range")
    yield enter(wire, ids[1], "x", "z", server_assignor="range")
    yield enter(wire, ids[2], "y", "z")
    yield describe(wire)


def offsets_of_members(wire):
    topic = known_topic(wire, "t", 2)
    group, member = wire.name("g"), id_of("m", wire)
    yield fetch_as(wire, topic, member, 1)
    yield enter(wire, member, "t")
    yield commit(wire, group, topic, 1, 1, member)
    yield commit(wire, group, topic, 2, 0, member)
    yield commit(wire, group, topic, 2, 2, member)
    yield commit(wire, group, topic, 2, -1, member)
    yield commit(wire, group, topic, 2, 1, "stranger")
    yield commit(wire, group, topic, 2, -1, "")
    yield fetch_as(wire, topic, member, 1)
    yield fetch_as(wire, topic, member, 0)
    yield fetch_as(wire, topic, member, 2)
    yield fetch_as(wire, topic, "stranger", 1)
    yield fetch_as(wire, topic, None, -1)
    yield fetch_as(wire, topic, "", -1)
    yield OffsetDeleteRequest(group_id=group, topics=[
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    ])  # fmt: skip
    yield beat(wire, member, -1)
    yield commit(wire, group, topic, 3, -1, "")
    yield commit(wire, group, topic, 4, 1, member)
    yield fetch_as(wire, topic, None, -1)
    yield OffsetDeleteRequest(group_id=group, topics=[
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    ])  # fmt: skip
    yield DeleteGroupsRequest(groups_names=[group])
    yield fetch_as(wire, topic, member, 1)


def fetch_as(wire, topic: str, member: str | None, epoch: int) -> OffsetFetchRequest:
    wanted = OffsetFetchRequestTopics(name=topic, topic_id=wire.topic_id(topic), partition_indexes=[0, 1])
    group = OffsetFetchRequestGroup(
        group_id=wire.name("g"), member_id=member, member_epoch=epoch, topics=[wanted]
    )
    old = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
    return OffsetFetchRequest(group_id=wire.name("g"), topics=old, groups=[group])


def an_empty_group_changes_its_kind(wire):
    topic = known_topic(wire, "t", 1)
    group, member = wire.name("g"), id_of("m", wire)
    yield commit(wire, group, topic, 5)
    yield enter(wire, member, "t")
    yield describe(wire)
    yield beat(wire, member, -1)
    joined = yield join(group)
    if joined.error_code:
        joined = yield join(group, joined.member_id)
    yield sync(group, joined.generation_id, joined.member_id, b"")
    yield DescribeGroupsRequest(groups=[group])
    yield describe(wire)
    yield leave(group, joined.member_id)
    yield enter(wire, member, "t")
    yield describe(wire)
    yield fetch_as(wire, topic, None, -1)


def subscription(*topics: str, owned=()) -> bytes:
    """Return ConsumerProtocolSubscription v1. `owned` are pairs of a topic and its partitions."""

    def array(items):
        return struct.pack(">i", len(items)) + b"".join(items)

    def text(name):
        return struct.pack(">h", len(name)) + name.encode()

    mine = [text(name) + array([struct.pack(">i", p) for p in partitions]) for name, partitions in owned]
    return struct.pack(">h", 1) + array([text(name) for name in topics]) + struct.pack(">i", -1) + array(mine)


def assignment(topic: str, *partitions: int) -> bytes:
    """Return ConsumerProtocolAssignment v1."""
    return (
        struct.pack(">hih", 1, 1, len(topic))
        + topic.encode()
        + struct.pack(">i", len(partitions))
        + b"".join(struct.pack(">i", p) for p in partitions)
        + struct.pack(">i", -1)
    )


def classic_join(group: str, topic: str, member: str = "", owned=(), **more):
    request = join(group, member, **more)
    for protocol in request.protocols:
        protocol.metadata = subscription(topic, owned=[(topic, owned)] if owned else ())
    return request


def a_classic_member_among_members_of_the_consumer_protocol(wire):
    topic = known_topic(wire, "t", 4)
    group, member = wire.name("g"), id_of("m", wire)
    yield enter(wire, member, "t")
    joined = yield classic_join(group, topic)
    if joined.error_code:
        joined = yield classic_join(group, topic, joined.member_id)
    yield describe(wire)
    yield sync(group, joined.generation_id, joined.member_id)
    yield classic_beat(group, joined.generation_id, joined.member_id)
    yield sync(group, joined.generation_id, joined.member_id, protocol_name="nonsense")
    yield sync(group, 7, joined.member_id)
    yield classic_beat(group, 7, joined.member_id)
    yield classic_beat(group, 1, member)
    yield sync(group, 1, member)
    yield classic_join(group, topic, protocols=("nonsense",))
    yield classic_join(group, topic, protocol_type="connect")
    yield classic_join(group, topic, session=1)
    yield commit(wire, group, topic, 1, joined.generation_id, joined.member_id)
    yield commit(wire, group, topic, 1, 7, joined.member_id)
    yield beat(wire, member, 1, {topic: [0, 1, 2, 3]})
    yield beat(wire, member, 1, {topic: [0, 1]})
    yield classic_beat(group, joined.generation_id, joined.member_id)
    joined = yield classic_join(group, topic, joined.member_id)
    yield sync(group, joined.generation_id, joined.member_id)
    yield describe(wire)
    yield DescribeGroupsRequest(groups=[group])
    yield leave(group, joined.member_id)
    yield leave(group, "stranger")
    yield beat(wire, member, 2, {topic: [0, 1]})
    yield beat(wire, member, 3, {topic: [0, 1, 2, 3]})
    yield describe(wire)


def a_classic_group_is_upgraded_and_downgraded(wire):
    topic = known_topic(wire, "t", 2)
    group, member = wire.name("g"), id_of("m", wire)
    joined = yield classic_join(group, topic)
    if joined.error_code:
        joined = yield classic_join(group, topic, joined.member_id)
    classic = joined.member_id
    yield sync(group, joined.generation_id, classic, assignment(topic, 0, 1))
    yield enter(wire, member, "t")
    yield describe(wire)
    yield classic_beat(group, joined.generation_id, classic)
    yield sync(group, joined.generation_id, classic)
    joined = yield classic_join(group, topic, classic, owned=(0, 1))
    yield sync(group, joined.generation_id, classic)
    yield classic_beat(group, joined.generation_id, classic)
    joined = yield classic_join(group, topic, classic, owned=(0,))
    yield sync(group, joined.generation_id, classic)
    yield beat(wire, member, 2, {})
    yield describe(wire)
    yield beat(wire, member, -1)
    yield describe(wire)
    yield DescribeGroupsRequest(groups=[group])
    yield classic_beat(group, 3, classic)
    joined = yield classic_join(group, topic, classic, owned=(0,))
    yield sync(group, joined.generation_id, classic, assignment(topic, 0, 1))
    yield DescribeGroupsRequest(groups=[group])
    yield leave(group, classic)


def a_static_member_changes_its_protocol_and_back(wire):
    if wire.level < 5:  # JoinGroup v5 brought static members; others are served in the order of random ids
        return
    topic = known_topic(wire, "t", 2)
    group, member = wire.name("g"), id_of("m", wire)
    joined = yield classic_join(group, topic, group_instance_id="i")
    yield sync(group, joined.generation_id, joined.member_id, assignment(topic, 0, 1), group_instance_id="i")
    yield enter(wire, member, "t", instance_id="i")
    yield describe(wire)
    yield classic_beat(group, 1, joined.member_id, group_instance_id="i")
    yield beat(wire, member, 2, {topic: [0, 1]}, instance_id="i")
    joined = yield classic_join(group, topic, group_instance_id="i")
    yield describe(wire)
    yield beat(wire, member, 2, instance_id="i")
    yield sync(group, joined.generation_id, joined.member_id, group_instance_id="i")
    yield DescribeGroupsRequest(groups=[group])


def a_group_that_cannot_be_upgraded(wire):
    known_topic(wire, "t", 2)
    group, member = wire.name("g"), id_of("m", wire)
    joined = yield join(group, protocol_type="connect")
    if joined.error_code:
        joined = yield join(group, joined.member_id, protocol_type="connect")
    yield sync(group, joined.generation_id, joined.member_id, b"", protocol_type="connect")
    yield enter(wire, member, "t")
    yield beat(wire, member, 1)
    yield beat(wire, member, -1)
    yield describe(wire)


def groups_listed_by_type(wire):
    known_topic(wire, "t", 1)
    yield enter(wire, id_of("m", wire), "t")
    if wire.level >= 5:
        for types in (["consumer"], ["classic"], ["Consumer"]):
            listed = wire.ask(ListGroupsRequest(types_filter=types), 5)
            assert any(entry.group_id == wire.name("g") for entry in listed.groups) == (types != ["classic"])
    yield describe(wire)


def settings_of_groups(wire):
    group = wire.name("g")
    for name, value, operation in (
        ("consumer.session.timeout.ms", "50000", 0),
        ("consumer.heartbeat.interval.ms", "6000", 0),
        ("consumer.heartbeat.interval.ms", "1", 0),
        ("consumer.session.timeout.ms", "100000000", 0),
        ("consumer.session.timeout.ms", "nonsense", 0),
        ("consumer.session.timeout.ms", None, 0),
        ("retention.ms", "5", 0),
        ("consumer.session.timeout.ms", "5", 2),
        ("consumer.session.timeout.ms", None, 1),
    ):
        config = AlterableConfig(name=name, value=value, config_operation=operation)
        for whose in (group, "") if operation == 0 else (group,):
            resource = AlterResource(resource_type=GROUP_RESOURCE, resource_name=whose, configs=[config])
            yield IncrementalAlterConfigsRequest(resources=[resource])
    wanted = DescribeConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group,
        configuration_keys=["consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"],
    )  # fmt: skip
    _settled(wire, wanted)
    yield DescribeConfigsRequest(resources=[wanted])
    known_topic(wire, "t", 1)
    yield enter(wire, id_of("m", wire), "t")
    config = OldAlterableConfig(name="consumer.session.timeout.ms", value="50000")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
    yield AlterConfigsRequest(resources=[resource])
    nobody = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name="", configuration_keys=None)
    yield DescribeConfigsRequest(resources=[nobody])


def _settled(wire, wanted: DescribeConfigsResource) -> None:
    """Wait until the broker itself has seen the change."""
    for _ in range(100):
        (result,) = wire.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
        if any(config.value == "6000" for config in result.configs):
            return
        time.sleep(0.05)
    raise AssertionError("the group's settings did not change")


def _until_epoch(wire, member: str, epoch: int, owned, wanted: int) -> None:
    """Send heartbeats until the member has the epoch `wanted`, which changes outside of the requests."""
    for _ in range(200):
        answer = wire.ask(beat(wire, member, epoch, owned), 1)
        assert not answer.error_code, answer
        if answer.member_epoch == wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"epoch {wanted} does not come: {answer}")
