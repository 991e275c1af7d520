"""Copies a topic exactly once with librdkafka: records and offsets in the same transactions."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas.client.settings import KEEP_BROKERS
from barnabas.testing import BarnabasCluster

#: seconds that one call may take; what can be tried again is
PATIENCE = 5.0
#: seconds after which a producer is given up: librdkafka may wait for ever for a coordinator that has gone
STUCK = 15.0
BATCH = 20


class _StuckError(Exception):
    """The producer cannot be used any more."""


class Copy:
    """A thread that copies until `finish`. It starts again at the committed offsets.

    It behaves as an application should. After an error that ends the transaction, it aborts the transaction
    and reads the records again. After an error that ends the producer, it creates another producer.
    """

    def __init__(self, servers: str, source: str, target: str, **settings: Any) -> None:
        self._servers = servers
        self._source, self._target = source, target
        self._settings = settings
        self._stopping = threading.Event()
        self.failures: list[str] = []
        #: what was done last, and when
        self.doing = ("", time.monotonic())
        #: records whose transaction was committed, as far as this client knows
        self.copied = 0
        #: seconds that each transaction took, those that were committed
        self.durations: list[float] = []
        self._abandoned: list[Producer] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def await_copied(self, count: int, timeout: float = 60.0) -> None:
        """Wait until this client knows that `count` records are in committed transactions."""
        deadline = time.monotonic() + timeout
        while self.copied < count:
            what, since = self.doing
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, (
                f"{self.copied} of {count} copied; {what} for {time.monotonic() - since:.0f} s"
            )
            time.sleep(0.02)

    def finish(self, timeout: float = 60.0) -> None:
        self._stopping.set()
        self._thread.join(timeout)
        what, since = self.doing
        assert not self._thread.is_alive(), f"{what} for {time.monotonic() - since:.0f} s"
        assert not self.failures, self.failures

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._live()
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")

    def _live(self) -> None:
        """Copy until the end, or until the producer cannot be used any more."""
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": "copy",
                "transaction.timeout.ms": 20_000,
                "socket.timeout.ms": 4000,
                "linger.ms": 2,
                "log_level": 0,
                # without these librdkafka may wait for ever for a coordinator that died
                "connections.max.idle.ms": 5000,
                **KEEP_BROKERS,
                **self._settings,
            }
        )
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "copy",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "log_level": 0,
            }
        )
        try:
            self._retried("init", lambda: producer.init_transactions(PATIENCE))
            consumer.subscribe([self._source])
            while not self._stopping.is_set():
                self.doing = "consume", time.monotonic()
                messages = [m for m in consumer.consume(BATCH, 0.2) if m.error() is None]
                if messages and not self._copy(producer, consumer, messages):
                    self._rewind(consumer)
        except _StuckError:
            self._abandoned.append(producer)  # its end would wait, too
        except KafkaException as error:
            if not error.args[0].fatal() and error.args[0].code() != KafkaError._STATE:
                raise
        finally:
            self.doing = f"close after {self.doing[0]}", time.monotonic()
            consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, messages: list[Any]) -> bool:
        """Copy messages in one transaction, and return whether it was committed."""
        began = time.monotonic()
        producer.begin_transaction()
        offsets: dict[tuple[str, int], int] = {}
        try:
            for message in messages:
                producer.produce(self._target, message.value(), message.key(), partition=message.partition())
                offsets[message.topic(), message.partition()] = message.offset() + 1
            self._retried(
                "send offsets",
                lambda: producer.send_offsets_to_transaction(
                    [TopicPartition(*place, offset) for place, offset in offsets.items()],
                    consumer.consumer_group_metadata(),
                    PATIENCE,
                ),
            )
            self._retried("commit", lambda: producer.commit_transaction(PATIENCE))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._retried("abort", lambda: producer.abort_transaction(PATIENCE))
            return False
        self.copied += len(messages)
        self.durations.append(time.monotonic() - began)
        return True

    def _rewind(self, consumer: Consumer) -> None:
        assigned = consumer.assignment()
        found = self._retried("committed", lambda: consumer.committed(assigned, PATIENCE))
        for partition in found:
            partition.offset = max(partition.offset, 0)
            consumer.seek(partition)

    def _retried(self, what: str, call: Any) -> Any:
        self.doing = what, time.monotonic()
        while True:
            try:
                return call()
            except KafkaException as error:
                said = error.args[0]
                if not said.retriable() and said.code() != KafkaError._TIMED_OUT:
                    raise
                if time.monotonic() - self.doing[1] > STUCK:
                    raise _StuckError from error


def committed_in(cluster: BarnabasCluster, topic: str, timeout: float = 60.0) -> list[int]:
    """Return the numbers that a read_committed consumer finds in a topic of three partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "survey",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
        left, deadline = {0, 1, 2}, time.monotonic() + timeout
        while left:
            assert time.monotonic() < deadline, f"the end of partitions {left} was not reached"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found.append(int(message.value()))
                elif message.error().name() == "_PARTITION_EOF":
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found
