"""What a task knows of the brokers; stand-in connections play them."""

from __future__ import annotations

import pytest

from barnabas.client.connection import Repeated
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from barnabas.spark import cluster as cluster_module
from barnabas.spark.cluster import Cluster
from barnabas.spark.fetch_settings import FetchSettings


class Broker:
    """A connection; asked for metadata, it names the brokers that live."""

    alive: tuple[int, ...] = (1, 2)

    def __init__(self, host: str, port: int, *_: object, **__: object) -> None:
        self.address = f"{host}:{port}"

    def close(self) -> None:
        pass

    def send_again(self, question: Repeated) -> None:
        pass

    def receive_again(self, question: Repeated) -> MetadataResponse:
        there = [MetadataResponseBroker(node_id=node, host="b", port=node) for node in self.alive]
        return MetadataResponse(brokers=there)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(cluster_module, "Connection", Broker)
    return Cluster(FetchSettings.parse({"bootstrap.servers": "b:1"}))


def test_a_broker_that_metadata_names_no_more_still_answers_what_it_was_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topics({"t"})
    asked = cluster.leader(2)
    monkeypatch.setattr(Broker, "alive", (1,))
    cluster.topics({"t"})
    assert cluster.leader(2) is asked
    with pytest.raises(ClientError, match="broker 3 is not there"):
        cluster.leader(3)


def test_a_broker_that_knows_of_no_brokers_yet_is_not_believed_that_topics_are_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broker, "alive", ())
    with pytest.raises(ClientError, match="the broker at b:1 knows of no brokers yet"):
        cluster.topics({"t"})
