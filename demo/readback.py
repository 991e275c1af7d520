"""Reads all records of `Pulse` while a broker dies, and measures the time from each write to its read."""

from __future__ import annotations

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

_POLL_S = 0.1


def pulse_value(number: int, began: float) -> bytes:
    """Return the value of a record: its number within the partition, from 0, and the monotonic time of its
    write in seconds.
    """
    return f"{number} {began}".encode()


class Readback:
    """Reads the partitions of a topic from their beginning, without a group, in its own thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._next = [0] * partitions
        #: seconds from write to read, of each record
        self.waits: list[float] = []
        self._wrong = ""
        self._wanted: int | None = None
        self._stopping = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start to read. The topic must exist."""
        self._thread.start()

    def finish(self, written: int, patience_s: float) -> str:
        """Wait until `written` records were read, and stop. Return the first error, or ""."""
        self._wanted = written
        self._done.wait(patience_s)
        self.stop()
        self._thread.join(patience_s)
        return self.judge(written)

    def judge(self, written: int) -> str:
        """Return the first error in the records read so far, when there should be `written`; "" without an
        error.
        """
        if self._wrong or len(self.waits) == written:
            return self._wrong
        return f"{len(self.waits)} of {written} were read"

    def stop(self) -> None:
        """Stop to read."""
        self._stopping.set()

    def take(self, partition: int, value: bytes, now: float) -> None:
        """Check one record that was read at `now`. Keep the first one that is not the next of its partition
        as the error.
        """
        text, began = value.split()
        self.waits.append(now - float(began))
        number, expected = int(text), self._next[partition]
        if number != expected and not self._wrong:
            self._wrong = f"{self._topic}-{partition} has pulse {number} where {expected} was expected"
        self._next[partition] = number + 1

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "demo-readback",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            consumer.assign(
                [TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in range(len(self._next))]
            )
            while not self._stopping.is_set() and not self._is_complete():
                record = consumer.poll(_POLL_S)
                # what librdkafka tells of connections that broke needs no answer: it goes on by itself
                if record is not None and record.error() is None:
                    self.take(record.partition(), record.value(), time.monotonic())
        except KafkaException as error:
            self._wrong = str(error)
        finally:
            self._done.set()
            consumer.close()

    def _is_complete(self) -> bool:
        return bool(self._wrong) or (self._wanted is not None and len(self.waits) >= self._wanted)
