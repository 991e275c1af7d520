"""Clients that write all the time during faults of a cluster, and the checks of their records.

For each library there is one class with the same three methods. The value of a record is its number. Its key
names one of a few sequences, so a partition has records of several sequences.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from typing import Any, NamedTuple, Protocol

from barnabas.testing import BarnabasCluster

KEYS = 8
#: seconds that a record may take: longer than any failover
PATIENCE = 60
#: seconds between two records
PACE = 0.002


class Acknowledged(NamedTuple):
    """The acknowledgement of a record."""

    number: int
    partition: int
    #: None where librdkafka concludes it from the answer to a later batch (`rd_kafka_dr_implicit_ack`)
    offset: int | None
    #: seconds from sending to the acknowledgement
    took: float


class Load(Protocol):
    """A producer that runs until `finish`."""

    #: everything acknowledged so far
    acknowledged: list[Acknowledged]
    failures: list[str]

    def finish(self) -> None:
        """Stop sending, and wait until each record is acknowledged or has failed."""


class _Threaded:
    """A producer in a thread."""

    def __init__(self, servers: str, topic: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[servers, topic], daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(2 * PATIENCE)
        assert not self._thread.is_alive()

    def _run(self, servers: str, topic: str) -> None:
        try:
            self._produce(servers, topic)
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")

    def _produce(self, servers: str, topic: str) -> None:
        raise NotImplementedError


class ConfluentLoad(_Threaded):
    """An idempotent producer of confluent-kafka (librdkafka)."""

    def _produce(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": PATIENCE * 1000,
                "socket.timeout.ms": 5000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stopping.wait(PACE):
            began = time.monotonic()

            def told(error: Any, message: Any, number: int = number, began: float = began) -> None:
                if error is not None:
                    self.failures.append(f"{number}: {error}")
                else:
                    took = time.monotonic() - began
                    self.acknowledged.append(
                        Acknowledged(number, message.partition(), message.offset(), took)
                    )

            producer.produce(topic, key=str(number % KEYS), value=str(number), on_delivery=told)
            producer.poll(0)
            number += 1
        if left := producer.flush(PATIENCE):
            self.failures.append(f"{left} records were not acknowledged")


class KafkaPythonLoad(_Threaded):
    """An idempotent producer of kafka-python."""

    def _produce(self, servers: str, topic: str) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=servers.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=5000,
            delivery_timeout_ms=PATIENCE * 1000,
            max_block_ms=PATIENCE * 1000,
        )
        number = 0
        while not self._stopping.wait(PACE):
            began = time.monotonic()
            sent = producer.send(topic, key=str(number % KEYS).encode(), value=str(number).encode())
            sent.add_callback(self._told, number, began)
            sent.add_errback(lambda error, number=number: self.failures.append(f"{number}: {error}"))
            number += 1
        producer.flush(PATIENCE)
        producer.close(10)

    def _told(self, number: int, began: float, told: Any) -> None:
        took = time.monotonic() - began
        self.acknowledged.append(Acknowledged(number, told.partition, told.offset, took))


class AiokafkaLoad(_Threaded):
    """An idempotent producer of aiokafka."""

    def _produce(self, servers: str, topic: str) -> None:
        asyncio.run(self._produce_all(servers, topic))

    async def _produce_all(self, servers: str, topic: str) -> None:
        from aiokafka import AIOKafkaProducer

        pending: set[asyncio.Task[None]] = set()
        async with AIOKafkaProducer(
            bootstrap_servers=servers,
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=PATIENCE * 1000,
            retry_backoff_ms=50,
        ) as producer:
            number = 0
            while not self._stopping.is_set():
                sent = await producer.send(topic, key=str(number % KEYS).encode(), value=str(number).encode())
                task = asyncio.create_task(self._await(number, time.monotonic(), sent))
                pending.add(task)
                task.add_done_callback(pending.discard)
                number += 1
                await asyncio.sleep(PACE)
            await asyncio.wait_for(asyncio.gather(*pending), PATIENCE)

    async def _await(self, number: int, began: float, sent: Any) -> None:
        try:
            told = await sent
        except Exception as error:
            self.failures.append(f"{number}: {error}")
        else:
            took = time.monotonic() - began
            self.acknowledged.append(Acknowledged(number, told.partition, told.offset, took))


LOADS: dict[str, type[_Threaded]] = {
    "confluent-kafka": ConfluentLoad,
    "kafka-python": KafkaPythonLoad,
    "aiokafka": AiokafkaLoad,
}


def await_progress(load: Load, records: int = 100, timeout: float = 60.0) -> None:
    """Wait until `records` more records have been acknowledged."""
    wanted = len(load.acknowledged) + records
    deadline = time.monotonic() + timeout
    while len(load.acknowledged) < wanted:
        assert time.monotonic() < deadline, (
            f"{wanted - len(load.acknowledged)} of {records} records not acknowledged in {timeout:g} s; "
            f"failures: {load.failures[:3]}"
        )
        time.sleep(0.02)


class Stored(NamedTuple):
    """A record that a consumer has read."""

    number: int
    key: str
    offset: int


def stored_in(cluster: BarnabasCluster, topic: str, timeout: float = 60.0) -> dict[int, list[Stored]]:
    """Return all records of a topic up to the high watermarks, by partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "survey",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: dict[int, list[Stored]] = defaultdict(list)
    try:
        partitions = len(consumer.list_topics(topic, 60).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        left = set(range(partitions))
        deadline = time.monotonic() + timeout
        while left:
            assert time.monotonic() < deadline, f"the end of partitions {left} was not reached"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found[message.partition()].append(
                        Stored(int(message.value()), message.key().decode(), message.offset())
                    )
                elif message.error().name() == "_PARTITION_EOF":
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found


def check(load: Load, stored: dict[int, list[Stored]]) -> None:
    """Check that no acknowledged record is lost, none is duplicate, and each key's records are in order."""
    assert not load.failures, load.failures[:5]
    assert load.acknowledged
    places = {
        (partition, record.offset): record.number for partition, log in stored.items() for record in log
    }
    anywhere = {(partition, number) for (partition, _), number in places.items()}
    lost = [
        told
        for told in load.acknowledged
        if (told.partition, told.number) not in anywhere
        or (told.offset is not None and places.get((told.partition, told.offset)) != told.number)
    ]
    assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged records lost: {sorted(lost)[:5]}"
    numbers = Counter(places.values())
    twice = [number for number, count in numbers.items() if count > 1]
    assert not twice, f"{len(twice)} records are there twice: {sorted(twice)[:5]}"
    for partition, log in stored.items():
        last: dict[str, int] = {}
        for record in log:
            before = last.get(record.key, -1)
            assert record.number > before, f"{before} before {record.number} in partition {partition}"
            last[record.key] = record.number


def longest_wait(load: Load) -> float:
    """Return the longest time from a send to its acknowledgement, in seconds."""
    return max(told.took for told in load.acknowledged)
