"""Unexpected errors in the group APIs give an answer in the form of each API."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.handlers import find_coordinator, load
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_delete import OffsetDeleteRequest
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def fail():
    """Return the answer to a request that failed as a whole."""

    def answer(request, code=LOADING):
        return load()[request.api_key].on_error(request, KafkaError(code))

    return answer


def test_heartbeat_while_loading_is_taken_as_good(fail):
    assert fail(HeartbeatRequest()).error_code == 0
    assert fail(HeartbeatRequest(), ErrorCode.NOT_COORDINATOR).error_code == ErrorCode.NOT_COORDINATOR


def test_join_keeps_the_member_id(fail):
    answer = fail(JoinGroupRequest(member_id="m"))
    assert (answer.error_code, answer.member_id, answer.generation_id) == (LOADING, "m", -1)


@pytest.mark.parametrize(
    "request_", [SyncGroupRequest(), ListGroupsRequest(), OffsetDeleteRequest(), LeaveGroupRequest()]
)
def test_whole_answers_bear_the_error(fail, request_):
    assert fail(request_).error_code == LOADING


def test_commit_is_refused_partition_by_partition(fail):
    partitions = [OffsetCommitRequestPartition(partition_index=index) for index in (0, 3)]
    request = OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    (topic,) = fail(request).topics
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, LOADING), (3, LOADING)]


def test_offsets_are_refused_group_by_group(fail):
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])
    assert [(g.group_id, g.error_code) for g in fail(request).groups] == [("g", LOADING)]
    assert fail(OffsetFetchRequest(group_id="g")).error_code == LOADING


def test_groups_are_refused_one_by_one(fail):
    described = fail(DescribeGroupsRequest(groups=["g", "h"])).groups
    assert [(g.group_id, g.error_code) for g in described] == [("g", LOADING), ("h", LOADING)]
    deleted = fail(DeleteGroupsRequest(groups_names=["g", "h"])).results
    assert [(r.group_id, r.error_code) for r in deleted] == [("g", LOADING), ("h", LOADING)]


def test_coordinators_are_refused_one_by_one(fail):
    answer = fail(FindCoordinatorRequest(key="g", coordinator_keys=["g"]))
    (found,) = answer.coordinators
    assert (answer.error_code, answer.node_id) == (found.error_code, found.node_id) == (LOADING, -1)


def test_coordinator_is_not_available_while_its_topic_has_not_come_to_this_broker():
    async def create(names):
        return {}

    async def ask():
        parts = SimpleNamespace(image=ClusterImage()), SimpleNamespace(create=create)
        access = SimpleNamespace(allows=lambda *_: True)
        context = SimpleNamespace(api_version=4, access=access, listener="PLAINTEXT")
        request = FindCoordinatorRequest(coordinator_keys=["g", "h"])
        return await find_coordinator.find_coordinator.handle(*parts, context, request)

    found = asyncio.run(ask()).coordinators
    assert [(each.key, each.error_code) for each in found] == [
        (key, ErrorCode.COORDINATOR_NOT_AVAILABLE) for key in "gh"
    ]
