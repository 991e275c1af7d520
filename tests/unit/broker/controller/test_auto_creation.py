"""A broker's requests to the controller for missing topics."""

from __future__ import annotations

import asyncio

import pytest
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import AutoCreation
from barnabas.broker.metadata.image import Admission, BrokerImage, ClusterImage
from barnabas.kafka.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse

INTERNAL = [GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC]
CLUSTER = {"zookeeper_connect": "zk:2181"}


class Controller:
    def __init__(self, answer=None):
        self.asked = []
        self.answer = answer or {}

    async def create(self, request):
        self.asked += request.topics
        if isinstance(self.answer, KafkaError):
            raise self.answer
        results = [
            CreatableTopicResult(name=topic.name, error_code=self.answer.get(topic.name, 0))
            for topic in request.topics
        ]
        return CreateTopicsResponse(topics=results)


def view_in(running, known, **settings):
    """Return the view of a cluster in which `running` of the `known` brokers run."""
    brokers = {number: BrokerImage(number, (), epoch=number) for number in range(running)}
    image = ClusterImage(brokers=brokers, admitted={number: Admission(number) for number in range(known)})
    return view_of(image, config=BrokerConfig(**settings))


def make(names, answer=None, running=3, known=None, **settings):
    controller = Controller(answer)
    creation = AutoCreation(view_in(running, known or running, **settings), controller.create)
    errors = asyncio.run(creation.create(names))
    return {topic.name: topic for topic in controller.asked}, {n: e.code for n, e in errors.items()}


@pytest.mark.parametrize(
    ("settings", "replicas", "min_isr"),
    [
        ({}, [1, 1], "1"),
        (CLUSTER, [3, 3], "2"),
        (
            CLUSTER
            | {
                "offsets_topic_replication_factor": 2,
                "transaction_state_log_replication_factor": 1,
                "transaction_state_log_min_isr": 1,
            },
            [2, 1],
            "1",
        ),
    ],
)
def test_internal_topics_have_three_replicas_in_a_cluster(settings, replicas, min_isr):
    made, errors = make(INTERNAL, **settings)
    assert errors == {}
    assert [made[name].replication_factor for name in INTERNAL] == replicas
    configs = {config.name: config.value for config in made[TRANSACTION_STATE_TOPIC].configs}
    assert configs["min.insync.replicas"] == min_isr


@pytest.mark.parametrize(("running", "replicas"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_internal_topics_of_a_small_cluster_have_as_many_replicas_as_brokers_run(running, replicas):
    made, _ = make(INTERNAL, running=running, **CLUSTER)
    assert [made[name].replication_factor for name in INTERNAL] == [replicas, replicas]


@pytest.mark.parametrize(("running", "replicas"), [(1, 1), (2, 3), (3, 3)])
def test_brokers_that_are_away_count_for_internal_topics_once_those_can_be_written(running, replicas):
    made, _ = make(INTERNAL, running=running, known=3, **CLUSTER)
    assert [made[name].replication_factor for name in INTERNAL] == [replicas, replicas]


def test_a_replication_factor_that_was_set_waits_for_its_brokers():
    made, _ = make(INTERNAL, running=1, offsets_topic_replication_factor=3, **CLUSTER)
    assert made[GROUP_METADATA_TOPIC].replication_factor == 3


def test_states_of_transactions_are_not_lost_if_all_topics_allow_unclean_elections():
    made, _ = make(INTERNAL, unclean_leader_election_enable=True, **CLUSTER)
    configs = {config.name: config.value for config in made[TRANSACTION_STATE_TOPIC].configs}
    assert configs["unclean.leader.election.enable"] == "false"


def test_other_topics_are_as_the_controllers_settings_say():
    made, errors = make(["a", "b", "a"], {"b": ErrorCode.TOPIC_ALREADY_EXISTS})
    assert errors == {}
    assert list(made) == ["a", "b"]
    assert (made["a"].num_partitions, made["a"].replication_factor) == (-1, -1)


def test_without_a_controller_the_topics_are_unknown():
    _, errors = make(["a"], KafkaError(ErrorCode.NOT_CONTROLLER))
    assert errors == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_why_an_internal_topic_cannot_be_made_is_logged_once_with_the_cure(caplog):
    controller = Controller({GROUP_METADATA_TOPIC: ErrorCode.INVALID_REPLICATION_FACTOR})
    creation = AutoCreation(view_in(1, 1), controller.create)
    for _ in range(3):
        asyncio.run(creation.create([GROUP_METADATA_TOPIC]))
    (line,) = caplog.messages
    assert line.endswith("start more brokers, or start this one with offsets.topic.replication.factor=1")
