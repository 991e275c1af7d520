"""The leaders that responses name after an error (KIP-951)."""

import pytest
from tests.views import view_of

from barnabas.base.errors import ErrorCode
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage, PartitionState, TopicImage
from barnabas.broker.server.responses.leaders import Leaders

TOPIC_ID = bytes(range(16))
MOVED, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
#: leader and leader epoch of each partition
LED = [(3, 5), (2, 0), (3, 6), (1, 4), (-1, 9), (4, 1), (8, 2)]


def broker(node, **listeners):
    endpoints = tuple(BrokerEndpoint(name, f"{name}-{node}", port) for name, port in listeners.items())
    return BrokerImage(node, endpoints, rack=f"r{node}")


@pytest.fixture
def leaders():
    image = ClusterImage(
        brokers={
            **{node: broker(node, inside=9000 + node, outside=9100 + node) for node in (1, 2, 3)},
            4: broker(4, inside=9004),
        },
        topics={"t": TopicImage("t", TOPIC_ID, tuple(PartitionState((1,), (1,), *led) for led in LED))},
        topic_names={TOPIC_ID: "t"},
    )
    return Leaders(view_of(image), "outside")


def named(leaders, code, index, topic="t"):
    found = leaders.after(code, topic, index)
    return found.leader_id, found.leader_epoch


def addresses(leaders):
    return [(each.node_id, each.host, each.port, each.rack) for each in leaders.endpoints]


@pytest.mark.parametrize("topic", ["t", TOPIC_ID])
@pytest.mark.parametrize("code", [MOVED, FENCED])
def test_leader_is_named_with_its_address_on_the_listener_of_the_client(leaders, code, topic):
    assert named(leaders, code, 0, topic) == (3, 5)
    assert addresses(leaders) == [(3, "outside-3", 9103, "r3")]


def test_addresses_are_those_of_each_leader_once_by_node_id(leaders):
    assert [named(leaders, MOVED, index) for index in (0, 1, 2)] == [(3, 5), (2, 0), (3, 6)]
    assert [each.node_id for each in leaders.endpoints] == [2, 3]


def test_partition_without_a_leader_has_none_named(leaders):
    assert named(leaders, MOVED, 4) == named(leaders, FENCED, 4) == (-1, -1)
    assert leaders.endpoints == []


@pytest.mark.parametrize("index", [5, 6])
def test_leader_without_the_listener_or_registration_is_named_without_an_address(leaders, index):
    assert named(leaders, MOVED, index) == LED[index]
    assert leaders.endpoints == []


def test_broker_that_does_not_lead_never_names_itself(leaders):
    assert named(leaders, MOVED, 3) == (-1, -1)
    assert leaders.endpoints == []


def test_leader_names_itself_to_a_client_with_an_earlier_epoch(leaders):
    assert named(leaders, FENCED, 3) == (1, 4)
    assert [each.node_id for each in leaders.endpoints] == [1]


@pytest.mark.parametrize(
    "code", [ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.REQUEST_TIMED_OUT]
)
def test_other_errors_name_no_leader(leaders, code):
    assert named(leaders, code, 0) == (-1, -1)
    assert leaders.endpoints == []


@pytest.mark.parametrize(("topic", "index"), [("u", 0), (bytes(16), 0), ("t", len(LED)), ("t", -1)])
def test_partition_that_does_not_exist_has_no_leader(leaders, topic, index):
    assert named(leaders, MOVED, index, topic) == (-1, -1)
    assert leaders.of(topic, index).leader_id == -1
    assert leaders.endpoints == []


def test_share_groups_get_the_leader_as_it_is(leaders):
    found = [leaders.of(TOPIC_ID, index) for index in (3, 4, 0)]
    assert [(each.leader_id, each.leader_epoch) for each in found] == [(1, 4), (-1, 9), (3, 5)]
    assert [each.node_id for each in leaders.endpoints] == [1, 3]
