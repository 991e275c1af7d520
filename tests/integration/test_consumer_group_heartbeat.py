"""ConsumerGroupHeartbeat as raw requests, and ConsumerGroupDescribe of the result."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.testing import BarnabasBroker


@pytest.fixture
def beat(wire, group_id):
    def send(epoch=0, version=1, *, by=wire, **fields):
        joining = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} if epoch == 0 else {}
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": group_id, "member_id": "m", "member_epoch": epoch, **joining, **fields}
        )
        return by(request, version)

    return send


@pytest.mark.parametrize("version", [0, 1])
def test_member_joins_is_described_and_leaves(wire, beat, make_topic, group_id, version):
    topic = make_topic(partitions=2)
    joined = beat(0, version, subscribed_topic_names=[topic.name])
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic.id, [0, 1])
    (group,) = wire(ConsumerGroupDescribeRequest(group_ids=[group_id]), version).groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (
        0,
        "Stable",
        1,
        1,
    )
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == ("m", 1, "wire")
    assert member.member_type == (1 if version else -1)
    assert member.assignment == member.target_assignment
    assert member.assignment.topic_partitions[0].topic_name == topic.name
    assert beat(-1, version).member_epoch == -1
    (group,) = wire(ConsumerGroupDescribeRequest(group_ids=[group_id]), version).groups
    assert (group.group_state, group.members) == ("Empty", [])


def test_member_without_an_id_is_given_one_by_version_0_only(beat, make_topic):
    topic = make_topic()
    joined = beat(0, 0, member_id="", subscribed_topic_names=[topic.name])
    assert joined.error_code == 0
    assert joined.member_id
    assert beat(0, 1, member_id="", subscribed_topic_names=[]).error_code == ErrorCode.INVALID_REQUEST


def test_fenced_member_is_told_why(beat, make_topic):
    topic = make_topic()
    beat(0, subscribed_topic_names=[topic.name])
    fenced = beat(7, topic_partitions=[TopicPartitions(topic_id=topic.id, partitions=[0])])
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "abandon all its partitions" in fenced.error_message


def test_group_is_of_one_kind(wire, beat, join, make_topic, group_id):
    beat(0, subscribed_topic_names=[make_topic().name])
    (classic,) = wire(DescribeGroupsRequest(groups=[group_id])).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    listed = [group for group in wire(ListGroupsRequest()).groups if group.group_id == group_id]
    assert [(group.group_type, group.group_state) for group in listed] == [("consumer", "Stable")]


def test_classic_group_is_not_described_as_a_consumer_group(wire, join, group_id):
    join()
    (group,) = wire(ConsumerGroupDescribeRequest(group_ids=[group_id])).groups
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message == f"Group {group_id} is not a consumer group."


def test_empty_group_id_is_not_described(wire):
    (group,) = wire(ConsumerGroupDescribeRequest(group_ids=[""])).groups
    assert (group.group_id, group.error_code) == ("", ErrorCode.INVALID_GROUP_ID)


def test_feature_at_level_0_takes_the_protocol_away(connect):
    with BarnabasBroker() as broker:
        wire = connect(broker)
        update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        assert wire(UpdateFeaturesRequest(feature_updates=[update])).error_code == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1,
            topic_partitions=[],
            subscribed_topic_names=["t"],
        )
        assert wire(request).error_code == ErrorCode.UNSUPPORTED_VERSION
        (group,) = wire(ConsumerGroupDescribeRequest(group_ids=["g"])).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
        versions = wire(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert "group.version" not in [feature.name for feature in versions.finalized_features]
