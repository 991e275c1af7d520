"""Consumer groups continue after the death of their coordinator, without skipped records or lost commits."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from tests.integration.cluster.load import ConfluentLoad, await_progress

from barnabas.base.types import TopicPartition
from barnabas.client import Admin
from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.testing import BarnabasCluster

#: kafka-python and aiokafka drop sockets and tasks of connections that were refused
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOPIC = "orders"
GROUP = "billing"


class Reader:
    """A member of the group in a thread, which commits the records that it has read."""

    def __init__(self, servers: str) -> None:
        self.numbers: set[int] = set()
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[servers], daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert not self.failures, self.failures

    def _run(self, servers: str) -> None:
        try:
            self._read(servers)
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")

    def _read(self, servers: str) -> None:
        raise NotImplementedError


class ConfluentReader(Reader):
    protocol = "classic"

    def _read(self, servers: str) -> None:
        from confluent_kafka import Consumer, KafkaException

        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "group.protocol": self.protocol,
            "socket.timeout.ms": 5000,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            for message in consumer.consume(100, 0.1):
                if message.error() is None:
                    self.numbers.add(int(message.value()))
        # Within close() librdkafka drops a commit whose coordinator leaves the metadata at that moment.
        with suppress(KafkaException):  # nothing is left to commit
            consumer.commit(asynchronous=False)
        consumer.close()


class NewProtocolReader(ConfluentReader):
    protocol = "consumer"


class KafkaPythonReader(Reader):
    def _read(self, servers: str) -> None:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=servers.split(","),
            group_id=GROUP,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            request_timeout_ms=7000,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        # A member that joins again because its metadata has changed loses its assignment when a poll times
        # out meanwhile (3.0.12), and its first round is often made without metadata.
        timeout = 60_000
        while not self._stopping.is_set():
            for records in consumer.poll(timeout).values():
                timeout = 100
                self.numbers.update(int(record.value) for record in records)
        consumer.close()


class AiokafkaReader(Reader):
    def _read(self, servers: str) -> None:
        asyncio.run(self._read_all(servers))

    async def _read_all(self, servers: str) -> None:
        from aiokafka import AIOKafkaConsumer

        async with AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=servers,
            group_id=GROUP,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            request_timeout_ms=5000,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        ) as consumer:
            while not self._stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    self.numbers.update(int(record.value) for record in records)


READERS = {
    "confluent-kafka": ConfluentReader,
    "confluent-kafka, KIP-848": NewProtocolReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
}


def coordinator_of(cluster: BarnabasCluster, group: str, timeout: float = 60.0) -> int:
    deadline = time.monotonic() + timeout
    while True:
        for broker in cluster.running:
            host, _, port = cluster.address_of(broker).rpartition(":")
            with BrokerConnection(host, int(port), 60.0) as connection:
                answer = connection.ask(FindCoordinatorRequest(key=group, coordinator_keys=[group]))
            (found,) = answer.coordinators
            if found.error_code == 0 and found.node_id in cluster.running:
                return int(found.node_id)
        assert time.monotonic() < deadline
        time.sleep(0.05)


def await_read(reader: Reader, wanted: set[int], timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while missing := wanted - reader.numbers:
        assert not reader.failures, reader.failures
        assert time.monotonic() < deadline, f"{len(missing)} of {len(wanted)} not read: {sorted(missing)[:5]}"
        time.sleep(0.05)


@pytest.mark.parametrize("fault", ["kill", "pause", "restart"])
@pytest.mark.parametrize("library", READERS)
def test_a_group_goes_on_when_its_coordinator_does_not(barnabas_cluster, library, fault):
    if fault != "kill" and library != "confluent-kafka":
        pytest.skip("one library tries all faults")
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic(TOPIC, 3)
    load = ConfluentLoad(cluster.bootstrap_servers, TOPIC)
    reader = READERS[library](cluster.bootstrap_servers)
    await_progress(load)
    await_read(reader, {told.number for told in load.acknowledged})
    coordinator = coordinator_of(cluster, GROUP)
    getattr(cluster, fault)(coordinator)
    await_progress(load)
    load.finish()
    sent = {told.number for told in load.acknowledged}
    await_read(reader, sent)
    assert coordinator_of(cluster, GROUP) in cluster.running
    reader.finish()
    if fault == "pause":
        cluster.resume(coordinator)
    if fault == "kill":
        cluster.restart(coordinator)
    cluster.wait_in_sync()

    committed = sum(offset for offset in cluster.admin().group_offsets(GROUP).values() if offset is not None)
    assert committed == len(sent), "a clean end has committed all"


def test_committed_offsets_survive_the_death_of_each_broker_in_turn(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic(TOPIC)
    cluster.produce(TOPIC, *range(10))
    with cluster.consumer(TOPIC, group=GROUP) as consumer:
        consumer.take(10, 60)
        consumer.commit()
    for broker in cluster.brokers:
        cluster.kill(broker)
        assert set(cluster.admin().group_offsets(GROUP).values()) == {10}
        cluster.restart(broker)
        cluster.wait_in_sync()


def test_an_admin_that_knew_the_coordinator_of_a_group_goes_on_when_that_broker_has_died(barnabas_cluster):
    """librdkafka's admin client waits for the dead coordinator forever, and may abort the process when it is
    closed.
    """
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic(TOPIC)
    partition = TopicPartition(TOPIC, 0)
    admin = cluster.admin(timeout=60.0)
    admin.set_group_offsets(GROUP, {partition: 1})
    cluster.kill(admin.describe_group(GROUP).coordinator)

    assert admin.describe_group(GROUP).coordinator in cluster.running
    assert admin.group_offsets(GROUP) == {partition: 1}
    admin.set_group_offsets(GROUP, {partition: 2})
    assert admin.group_offsets(GROUP) == {partition: 2}
    admin.delete_group(GROUP)
    assert admin.describe_group(GROUP).state == "Dead"


def test_an_admin_that_was_told_of_one_broker_goes_on_by_the_others_when_it_has_died(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic(TOPIC)
    partition = TopicPartition(TOPIC, 0)
    told = cluster.brokers[0]
    admin = Admin(cluster.address_of(told), timeout=60.0)
    admin.set_group_offsets(GROUP, {partition: 1})
    cluster.kill(told)
    assert admin.group_offsets(GROUP) == {partition: 1}
