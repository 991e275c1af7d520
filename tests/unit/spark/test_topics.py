"""A task's requests about topics; fake connections play the brokers."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from barnabas.client import connection_pool
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from barnabas.spark.kafka_brokers import new_brokers
from barnabas.spark.topics import TopicLookup


class Broker:
    """A connection that answers Metadata with the live brokers."""

    alive: tuple[int, ...] = (1, 2)
    opened: ClassVar[list[int]] = []

    def __init__(self, host: str, port: int, *_: object, **__: object) -> None:
        self.address = f"{host}:{port}"
        self.opened.append(port)

    def close(self) -> None:
        pass

    def is_usable(self) -> bool:
        return True

    def wait_for(self, timeout: float) -> None:
        pass

    def send(self, request: Any, max_version: int | None) -> None:
        pass

    def receive(self) -> MetadataResponse:
        return self.ask(None)

    def ask(self, request: Any) -> MetadataResponse:
        there = [MetadataResponseBroker(node_id=node, host="b", port=node) for node in self.alive]
        return MetadataResponse(brokers=there)


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch) -> TopicLookup:
    monkeypatch.setattr(connection_pool, "BrokerConnection", Broker)
    return TopicLookup(new_brokers({"bootstrap.servers": "b:1"}, 5.0), 5.0)


def test_a_broker_that_metadata_names_no_more_still_answers_what_it_was_asked(
    lookup: TopicLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup.topics({"t"})
    lookup.brokers.ask(2, MetadataRequest())
    opened = len(Broker.opened)
    monkeypatch.setattr(Broker, "alive", (1,))
    lookup.topics({"t"})
    lookup.brokers.ask(2, MetadataRequest())
    assert len(Broker.opened) == opened
    with pytest.raises(ClientError, match="the cluster has no broker 3"):
        lookup.brokers.ask(3, MetadataRequest())


def test_a_broker_that_knows_of_no_brokers_yet_is_not_believed_that_topics_are_gone(
    lookup: TopicLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broker, "alive", ())
    with pytest.raises(ClientError, match="the broker at b:1 knows of no brokers yet"):
        lookup.topics({"t"})
