"""Throttles of reassignments: which settings are sent for which brokers and topics."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.client import move_throttle
from barnabas.client.moves import Move
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SET, DELETE = 0, 1
TOPIC, BROKER = 2, 4


class Cluster:
    """Takes changes of settings, tells the throttled replicas of topics, and rejects some resources."""

    def __init__(self, replicas=(), rejected=()):
        self.changes = {}
        self._replicas = dict(replicas)
        self._rejected = dict(rejected)

    def ask_once(self, request):
        if isinstance(request, DescribeConfigsRequest):
            topics = [resource.resource_name for resource in request.resources]
            values = [SimpleNamespace(value=self._replicas.get(topic)) for topic in topics]
            return SimpleNamespace(results=[SimpleNamespace(configs=values)])
        results = []
        for resource in request.resources:
            place = resource.resource_type, resource.resource_name
            code = self._rejected.get(place, ErrorCode.NONE)
            if code is ErrorCode.NONE:
                changed = {each.name: (each.config_operation, each.value) for each in resource.configs}
                self.changes[place] = changed
            answered = SimpleNamespace(error_code=code, error_message="rejected")
            results.append(SimpleNamespace(resource_type=place[0], resource_name=place[1], **vars(answered)))
        return SimpleNamespace(responses=results)


def test_only_copies_to_added_replicas_are_throttled():
    cluster = Cluster()
    moves = {
        ("orders", 1): Move(replicas=(4, 2, 1), adding=(4,), removing=(1,)),
        ("orders", 0): Move(replicas=(3, 4, 1, 2), adding=(3, 4), removing=(1, 2)),
    }
    move_throttle.throttle(cluster, moves, [1, 4], 5_000)
    assert cluster.changes == {
        (TOPIC, "orders"): {LEADERS: (SET, "0:1,0:2,1:2,1:1"), FOLLOWERS: (SET, "0:3,0:4,1:4")},
        (BROKER, "1"): dict.fromkeys(RATES, (SET, "5000")),
        (BROKER, "4"): dict.fromkeys(RATES, (SET, "5000")),
    }


def test_the_throttle_of_a_broker_that_has_died_is_lifted_too():
    cluster = Cluster({"orders": "0:1, 1:7"})
    move_throttle.lift(cluster, ["orders"], [1])
    assert cluster.changes == {
        (TOPIC, "orders"): dict.fromkeys((LEADERS, FOLLOWERS), (DELETE, None)),
        (BROKER, "1"): dict.fromkeys(RATES, (DELETE, None)),
        (BROKER, "7"): dict.fromkeys(RATES, (DELETE, None)),
    }


@pytest.mark.parametrize("replicas", ["*", "", None])
def test_a_setting_that_names_no_broker_adds_none(replicas):
    cluster = Cluster({"orders": replicas})
    move_throttle.lift(cluster, ["orders"], [])
    assert [*cluster.changes] == [(TOPIC, "orders")]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_broker_of_a_setting_that_never_was_needs_no_lifting(code):
    cluster = Cluster({"orders": "0:99"}, {(BROKER, "99"): code})
    move_throttle.lift(cluster, ["orders"], [1])
    assert (BROKER, "1") in cluster.changes


def test_a_rejected_lifting_is_an_error_for_a_known_broker_and_for_a_topic():
    for place in ((BROKER, "1"), (TOPIC, "orders")):
        cluster = Cluster({"orders": "0:1"}, {place: ErrorCode.INVALID_REQUEST})
        with pytest.raises(KafkaError, match="rejected"):
            move_throttle.lift(cluster, ["orders"], [1])
