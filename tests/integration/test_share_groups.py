"""Share groups as raw requests: members, descriptions, lists, start offsets, deletion (KIP-932)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.conftest import Wire, use_share_groups

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.testing import BarnabasBroker

#: a coordinator that has just begun
NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
PATIENCE = 60.0


class Sharing:
    """A broker with share groups, and requests to it."""

    def __init__(self, broker: BarnabasBroker) -> None:
        self.broker = broker
        self.wire = Wire(broker.bootstrap_servers)
        use_share_groups(self.wire)
        self.wire(FindCoordinatorRequest(coordinator_keys=["any"]))  # makes the topic of the groups
        self.topics: dict[str, bytes] = {}

    def topic(self, name: str, partitions: int = 1) -> str:
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        (created,) = self.wire(CreateTopicsRequest(topics=[wanted])).topics
        assert created.error_code == 0
        self.topics[name] = created.topic_id
        return name

    def beat(self, group: str, epoch: int, *topics: str, member: str = "m") -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        return self.until(lambda: self.wire(request), lambda answer: answer.error_code not in NOT_YET)

    def join(self, group: str, *topics: str, partitions: int, member: str = "m") -> Any:
        """Join, and send heartbeats until the member has `partitions` partitions."""
        answer = self.beat(group, 0, *topics, member=member)

        def again() -> Any:
            nonlocal answer
            answer = self.beat(group, answer.member_epoch, *topics, member=member)
            return answer

        return self.until(
            again,
            lambda found: sum(len(t.partitions) for t in found.assignment.topic_partitions) == partitions,
        )

    def offsets(self, group: str, version: int = 1, **topics: list[int]) -> Any:
        wanted = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted or None)
        (found,) = self.wire(DescribeShareGroupOffsetsRequest(groups=[asked]), version).groups
        return found

    def alter(self, group: str, **offsets: dict[int, int]) -> Any:
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
                    for number, offset in partitions.items()
                ],
            )
            for name, partitions in offsets.items()
        ]
        return self.wire(AlterShareGroupOffsetsRequest(group_id=group, topics=topics))

    def delete_offsets(self, group: str, *names: str) -> Any:
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        return self.wire(DeleteShareGroupOffsetsRequest(group_id=group, topics=topics))

    def describe(self, group: str) -> Any:
        (found,) = self.wire(ShareGroupDescribeRequest(group_ids=[group])).groups
        return found

    def until(self, ask: Callable[[], Any], is_it: Callable[[Any], bool]) -> Any:
        """Repeat a request until its answer is the expected one."""
        deadline = time.monotonic() + PATIENCE
        while not is_it(answer := ask()):
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)
        return answer


@pytest.fixture(scope="module")
def sharing() -> Iterator[Sharing]:
    settings = {"share.coordinator.state.topic.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with BarnabasBroker(settings) as broker:
        sharing = Sharing(broker)
        yield sharing
        sharing.wire.close()


def places(group: Any) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Return start offset, lag and error by partition."""
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    }


def test_member_joins_is_described_and_leaves(sharing):
    sharing.topic("joins", 2)
    joined = sharing.join("g-joins", "joins", partitions=2)
    assert (joined.member_id, joined.error_code) == ("m", 0)
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (sharing.topics["joins"], [0, 1])
    group = sharing.describe("g-joins")
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert group.group_epoch == group.assignment_epoch == joined.member_epoch
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == ("m", joined.member_epoch, "wire")
    assert member.subscribed_topic_names == ["joins"]
    (place,) = member.assignment.topic_partitions
    assert (place.topic_name, place.topic_id, place.partitions) == (
        "joins",
        sharing.topics["joins"],
        [0, 1],
    )
    assert sharing.beat("g-joins", -1).member_epoch == -1
    group = sharing.describe("g-joins")
    assert (group.group_state, group.members) == ("Empty", [])


def test_groups_are_listed_by_their_type_and_described_by_their_own_api(sharing):
    sharing.topic("listed")
    sharing.beat("g-listed", 0, "listed")
    listed = {each.group_id: each for each in sharing.wire(ListGroupsRequest(types_filter=["SHARE"])).groups}
    assert (listed["g-listed"].group_type, listed["g-listed"].protocol_type) == ("share", "share")
    assert listed["g-listed"].group_state == "Stable"
    others = sharing.wire(ListGroupsRequest(types_filter=["consumer", "classic"])).groups
    assert "g-listed" not in {each.group_id for each in others}
    (classic,) = sharing.wire(DescribeGroupsRequest(groups=["g-listed"])).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert sharing.describe("g-nowhere").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert sharing.describe("").error_code == ErrorCode.INVALID_GROUP_ID


def test_start_offsets_are_set_described_and_deleted(sharing):
    sharing.topic("set")
    altered = sharing.alter("g-set", set={0: 1, 2: 0}, nowhere={0: 0})
    codes = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in altered.responses
        for each in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("set", 0): 0, ("set", 2): unknown, ("nowhere", 0): unknown}
    assert places(sharing.offsets("g-set")) == {("set", 0): (1, 0, 0)}
    asked = sharing.offsets("g-set", set=[0, 7], nowhere=[0])
    assert places(asked) == {
        ("set", 0): (1, 0, 0),
        ("set", 7): (-1, -1, unknown),
        ("nowhere", 0): (-1, -1, unknown),
    }
    deleted = sharing.delete_offsets("g-set", "set", "nowhere")
    assert {each.topic_name: each.error_code for each in deleted.responses} == {"set": 0, "nowhere": unknown}
    assert places(sharing.offsets("g-set")) == {}
    (gone,) = sharing.wire(DeleteGroupsRequest(groups_names=["g-set"])).results
    assert gone.error_code == 0
    assert places(sharing.offsets("g-set", set=[0])) == {("set", 0): (-1, -1, 0)}
    assert sharing.describe("g-set").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_keeps_its_offsets(sharing):
    sharing.topic("kept")
    sharing.join("g-kept", "kept", partitions=1)
    non_empty = ErrorCode.NON_EMPTY_GROUP
    assert sharing.alter("g-kept", kept={0: 0}).error_code == non_empty
    assert sharing.delete_offsets("g-kept", "kept").error_code == non_empty
    (result,) = sharing.wire(DeleteGroupsRequest(groups_names=["g-kept"])).results
    assert result.error_code == non_empty
    assert places(sharing.offsets("g-kept")).keys() == {("kept", 0)}


def test_a_group_keeps_members_and_states_over_a_restart():
    settings = {"share.coordinator.state.topic.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with BarnabasBroker(settings) as broker:
        sharing = Sharing(broker)
        sharing.topic("restarted", 2)
        assert sharing.alter("g", restarted={0: 0}).error_code == 0
        joined = sharing.join("g", "restarted", partitions=2)
        before = sharing.describe("g")
        sharing.wire.close()
        broker.restart()
        sharing.wire = Wire(broker.bootstrap_servers)
        after = sharing.until(lambda: sharing.describe("g"), lambda found: not found.error_code)
        assert after == before
        assert sharing.beat("g", joined.member_epoch).error_code == 0
        sharing.wire.close()


def test_a_deleted_topic_leaves_the_group(sharing):
    sharing.topic("deleted")
    sharing.topic("stays")
    sharing.join("g-deleted", "deleted", "stays", partitions=2)
    sharing.wire(DeleteTopicsRequest(topic_names=["deleted"], timeout_ms=5000), 5)
    sharing.until(lambda: sharing.offsets("g-deleted"), lambda found: places(found).keys() == {("stays", 0)})


@pytest.mark.parametrize("epoch", [-2, -7])
def test_epochs_that_no_member_has_are_refused(sharing, epoch):
    assert sharing.beat("g-none", epoch, "t").error_code == ErrorCode.INVALID_REQUEST


def test_negative_start_offsets_are_refused(sharing):
    sharing.topic("negative")
    ((answer,),) = [topic.partitions for topic in sharing.alter("g-negative", negative={0: -5}).responses]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
