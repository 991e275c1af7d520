"""Clients learn the new leader of a partition from the response of its former leader (KIP-951)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from click.testing import CliRunner

from barnabas.base.errors import ErrorCode
from barnabas.cli.app import app
from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch
from barnabas.testing import BarnabasCluster

#: broker 1 leads the partition of each topic at first; after `move` it has no replica, and broker 2 leads
FORMER, LEADER = 1, 2
#: seconds
SOON = 30.0
MOVED, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH


@pytest.fixture(scope="module")
def cluster() -> Iterator[BarnabasCluster]:
    with BarnabasCluster(brokers=3) as cluster:
        yield cluster


def run(cluster: BarnabasCluster, *words: object) -> None:
    result = CliRunner().invoke(
        app,
        [str(word) for word in words],
        env={"BARNABAS_BOOTSTRAP_SERVER": cluster.bootstrap_servers},
        prog_name="barnabas",
    )
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.fixture
def topic(cluster: BarnabasCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.split("[")[0]
    run(cluster, "topics", "create", name, "--replica-assignment", f"{FORMER}:{LEADER}")
    cluster.wait_in_sync(name)
    return name


@pytest.fixture
def move(cluster: BarnabasCluster, topic: str, tmp_path: Path) -> Callable[[], None]:
    def move() -> None:
        plan = tmp_path / "plan.json"
        replicas = [{"topic": topic, "partition": 0, "replicas": [LEADER, 3]}]
        plan.write_text(json.dumps({"partitions": replicas}))
        run(cluster, "topics", "reassign", "execute", plan, "--wait")
        deadline = time.monotonic() + SOON
        while any(partition_of(cluster, topic, each).leader_id != LEADER for each in cluster.brokers):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    return move


def ask(cluster: BarnabasCluster, broker: int, *requests: tuple[Request, int | None]) -> list[Any]:
    """Send requests on one connection, each in a version (None for the highest)."""
    host, _, port = cluster.address_of(broker).rpartition(":")
    with BrokerConnection(host, int(port), 60) as connection:
        return [connection.ask(request, max_version=version) for request, version in requests]


def metadata(cluster: BarnabasCluster, topic: str, broker: int) -> Any:
    (found,) = ask(cluster, broker, (MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), None))
    return found.topics[0]


def partition_of(cluster: BarnabasCluster, topic: str, broker: int) -> Any:
    return metadata(cluster, topic, broker).partitions[0]


def named(response: Any, partition: Any) -> tuple[Any, ...]:
    """Return the error of a partition, its leader, and the brokers whose addresses the response has."""
    leader = partition.current_leader
    addresses = {each.node_id: f"{each.host}:{each.port}" for each in response.node_endpoints}
    return partition.error_code, leader.leader_id, leader.leader_epoch, addresses


def test_former_leader_names_the_leader(cluster: BarnabasCluster, topic: str, move: Callable) -> None:
    move()
    topic_id, epoch = metadata(cluster, topic, LEADER).topic_id, partition_of(cluster, topic, 2).leader_epoch
    assert epoch > 0
    leader = (LEADER, epoch, {LEADER: cluster.address_of(LEADER)})
    unnamed = (-1, -1, {})

    def produce(version: int) -> tuple[Any, ...]:
        batch = PartitionProduceData(index=0, records=encode_batch([Record(None, b"v", 0)]))
        topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=[batch])]
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
        (response,) = ask(cluster, FORMER, (request, version))
        return named(response, response.responses[0].partition_responses[0])

    def fetch(broker: int, *versions: int, leader_epoch: int = -1, session: bool = False) -> Any:
        wanted = [FetchPartition(partition=0, current_leader_epoch=leader_epoch, partition_max_bytes=1000)]
        topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=wanted)]
        first = FetchRequest(topics=topics, session_epoch=0 if session else -1)
        responses = ask(cluster, broker, *((first, version) for version in versions))
        return [named(each, each.responses[0].partitions[0]) for each in responses]

    assert [produce(version) for version in (9, 10, 12, 13)] == [(MOVED, *unnamed), *[(MOVED, *leader)] * 3]
    assert fetch(FORMER, 12, 15, 16, 17, 18) == [(MOVED, *unnamed)] * 2 + [(MOVED, *leader)] * 3
    assert fetch(LEADER, 18, leader_epoch=epoch - 1) == [(FENCED, *leader)]
    assert fetch(LEADER, 18, leader_epoch=epoch) == [(0, *unnamed)]
    assert fetch(LEADER, 18, leader_epoch=epoch + 1) == [(ErrorCode.UNKNOWN_LEADER_EPOCH, *unnamed)]


def test_each_response_of_a_fetch_session_names_the_leader(
    cluster: BarnabasCluster, topic: str, move: Callable
) -> None:
    move()
    wanted = FetchTopic(
        topic_id=metadata(cluster, topic, LEADER).topic_id,
        partitions=[FetchPartition(partition=0, partition_max_bytes=1000)],
    )
    host, _, port = cluster.address_of(FORMER).rpartition(":")
    with BrokerConnection(host, int(port), 60) as connection:
        first = connection.ask(FetchRequest(topics=[wanted], session_epoch=0))
        again = connection.ask(FetchRequest(session_id=first.session_id, session_epoch=1, max_wait_ms=60_000))
    expected = (MOVED, LEADER, partition_of(cluster, topic, LEADER).leader_epoch)
    for response in (first, again):
        assert named(response, response.responses[0].partitions[0])[:3] == expected
        assert [each.node_id for each in response.node_endpoints] == [LEADER]


def test_librdkafka_takes_the_new_leader_from_the_response(
    cluster: BarnabasCluster, topic: str, move: Callable
) -> None:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "topic.metadata.refresh.interval.ms": -1,
        "debug": "metadata",
    }
    produced, consumed = Log(), Log()
    producer = confluent_kafka.Producer(settings, logger=produced)
    settings |= {"group.id": topic, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings, logger=consumed)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        producer.produce(topic, b"before")
        assert producer.flush(SOON) == 0
        assert _value(consumer) == b"before"
        move()
        producer.produce(topic, b"after")
        assert producer.flush(SOON) == 0
        assert _value(consumer) == b"after"
    finally:
        consumer.close()
    epoch = partition_of(cluster, topic, LEADER).leader_epoch
    for log in (produced, consumed):
        assert f"updated with leader {LEADER} and epoch {epoch}" in log.text


class Log(logging.Logger):
    """Keeps what a client of librdkafka logs."""

    def __init__(self) -> None:
        super().__init__("librdkafka")
        self.text = ""

    def handle(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()


def _value(consumer: confluent_kafka.Consumer) -> bytes | None:
    message = consumer.poll(SOON)
    assert message is not None
    assert message.error() is None
    return message.value()


def test_kafka_python_goes_on_at_the_new_leader(cluster: BarnabasCluster, topic: str, move: Callable) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, 0)])
    try:
        producer.send(topic, b"before").get(SOON)
        found = [next(iter(consumer)).value]
        move()
        producer.send(topic, b"after").get(SOON)
        found.append(next(iter(consumer)).value)
    finally:
        producer.close()
        consumer.close()
    assert found == [b"before", b"after"]
