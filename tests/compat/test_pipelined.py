"""Barnabas and Apache Kafka give the same answers to requests that a client sends without waiting.

The broker answers in the order of the requests, and each request sees the effects of those before it. If it
closes the connection because of a request, it does not execute the later ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import pytest
from tests.compat.scenarios import data, transactions
from tests.compat.scenarios.groups import beat, commit, committed, join
from tests.compat.wire import Wire, differences

from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.produce import ProduceRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.protocol.schema import Request

#: requests with their versions
Burst: TypeAlias = list[tuple[Request, int]]
PRODUCE, END = 9, 5


def _sent(wire: Wire, topic: str, acks: int, **more: int) -> tuple[Request, int]:
    return data.produce(wire, topic, data.batch(2), acks=acks, **more), PRODUCE


def _end(topic: str) -> tuple[Request, int]:
    return data.offsets(topic, -1), END


def acknowledgements_of_all_kinds(wire: Wire, topic: str) -> Burst:
    return [*(_sent(wire, topic, acks) for acks in (0, -1, 0, 1, 0, 0, -1)), _end(topic)]


def no_answer_to_a_record_for_no_partition(wire: Wire, topic: str) -> Burst:
    return [_sent(wire, topic, 0), _sent(wire, topic, 0, partition=9), _sent(wire, topic, -1), _end(topic)]


def no_answer_to_a_damaged_record(wire: Wire, topic: str) -> Burst:
    damaged = data.produce(wire, topic, data.batch(1)[:-1] + b"?", acks=0), PRODUCE
    return [_sent(wire, topic, -1), damaged, _sent(wire, topic, -1), _end(topic)]


def unknown_acks(wire: Wire, topic: str) -> Burst:
    return [_sent(wire, topic, 2), _sent(wire, topic, -1), _end(topic)]


def a_record_behind_a_long_poll(wire: Wire, topic: str) -> Burst:
    poll = data.fetch(wire, topic, 0, max_wait_ms=300), 11
    return [poll, _sent(wire, topic, -1), _end(topic), poll]


def many(wire: Wire, topic: str) -> Burst:
    described = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return [each for _ in range(100) for each in (_sent(wire, topic, -1), _end(topic), (described, 8))]


def a_topic_comes_and_goes(wire: Wire, topic: str) -> Burst:
    name = wire.name("brief")
    made = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    creation = CreateTopicsRequest(topics=[made], timeout_ms=30_000), 5
    states = [DeleteTopicState(name=name)]
    deletion = DeleteTopicsRequest(topics=states, topic_names=[name], timeout_ms=30_000), 5
    return [creation, creation, deletion, deletion, creation, deletion]


def a_member_joins_and_goes_on(wire: Wire, topic: str) -> Burst:
    group = wire.name("g")
    return [(join(group), 3), (beat(group, 1, "stranger"), 3), _end(topic), (join(group), 5)]


def an_offset_is_committed_and_fetched(wire: Wire, topic: str) -> Burst:
    group = wire.name("g")
    fetch = committed(wire, group, topic)
    return [(commit(wire, group, topic, 5), 8), (fetch, 8), (commit(wire, group, topic, 6), 8), (fetch, 7)]


def a_transaction_of_version_2(wire: Wire, topic: str) -> Burst:
    name = wire.name("x")
    transactions.coordinated(wire, name)
    begun = wire.ask(transactions.init(name))
    producer = begun.producer_id, begun.producer_epoch
    return [
        *((transactions.produce(wire, name, producer, topic, sequence), 12) for sequence in (0, 1, 2)),
        (transactions.describe(name), 0),
        (transactions.end(name, producer, True), 5),
    ]


def a_login_without_sasl(wire: Wire, topic: str) -> Burst:
    return [_end(topic), (SaslHandshakeRequest(mechanism="PLAIN"), 1), _end(topic)]


BURSTS = [
    acknowledgements_of_all_kinds,
    no_answer_to_a_record_for_no_partition,
    no_answer_to_a_damaged_record,
    unknown_acks,
    a_record_behind_a_long_poll,
    many,
    a_topic_comes_and_goes,
    a_member_joins_and_goes_on,
    an_offset_is_committed_and_fetched,
    a_transaction_of_version_2,
    a_login_without_sasl,
]


@pytest.mark.parametrize("burst", BURSTS, ids=lambda burst: burst.__name__)
def test_pipelined_requests_are_answered_in_order(broker, kafka, burst):
    prefix = f"{burst.__name__.replace('_', '-')}-{time.monotonic_ns()}"
    ours, theirs = (_answers(each.bootstrap, prefix, burst) for each in (broker, kafka))
    assert list(differences(ours, theirs)) == []


def _answers(bootstrap: str, prefix: str, burst: Callable[[Wire, str], Burst]) -> list[object]:
    """Return the answers to the requests of a burst; None for each without an answer."""
    wire = Wire(bootstrap, 99, prefix)
    try:
        wire.ask(FindCoordinatorRequest(key=wire.name("g")), 0)  # this makes the internal topic
        requests = burst(wire, wire.topic("t"))
        headers = [
            (wire.send(request, version), isinstance(request, ProduceRequest) and not request.acks)
            for request, version in requests
        ]
        answers: list[object] = []
        for header, is_silent in headers:
            is_closed = None in answers
            answers.append("silent" if is_silent else None if is_closed else wire.plain(wire.receive(header)))
        return answers
    finally:
        wire.close()
