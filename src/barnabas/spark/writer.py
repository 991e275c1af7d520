"""Appending to topics: ``df.write`` and ``df.writeStream``, by Arrow.

At least once, as Spark's own Kafka connector: a task or a micro-batch that is tried again writes again what
it had already written. The producer itself repeats nothing (it is idempotent).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.errors import BarnabasError
from barnabas.spark.clients import Settings, forget, kept, new_producer, producer_settings
from barnabas.spark.options import WriteOptions

#: Lets the broker choose, in librdkafka's terms.
_ANY_PARTITION = -1

#: How long to wait for room in the producer's queue before trying again, in seconds.
_ROOM_TIMEOUT_S = 1.0


class DeliveryError(BarnabasError):
    """A record did not reach its topic; the task fails, and Spark tries it again."""


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    records: int


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch query's result."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task: returns when the brokers have acknowledged every record."""
        return write_batches(self._options, iterator)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch; it is built anew for each, so it keeps nothing."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task of one micro-batch: returns when the brokers have acknowledged every record."""
        return write_batches(self._options, iterator)


def write_batches(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send every row as a record and wait until all are acknowledged.

    Raises:
        DeliveryError: a record was refused, or not acknowledged within ``kafka.delivery.timeout.ms``.
    """
    sink = kept(RecordSink, producer_settings(options.client))
    try:
        records = sum(sink.send(batch, options.topic) for batch in batches)
        sink.flush()
    except BaseException:
        sink.purge()
        forget(sink)
        raise
    return Written(records)


class RecordSink:
    """A producer that is told rows and remembers what the brokers refused."""

    def __init__(self, settings: Settings) -> None:
        self._failure: str | None = None
        self._producer = new_producer(settings, self._on_delivery)

    def send(self, batch: pa.RecordBatch, topic: str | None) -> int:
        """Queue every row of `batch`; `topic` goes before the column of that name. Returns how many."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        nothing = itertools.repeat(None)
        topics = itertools.repeat(topic) if topic else columns["topic"].to_pylist()
        partitions = columns["partition"].to_pylist() if "partition" in columns else nothing
        headers = map(_header_pairs, columns["headers"].to_pylist()) if "headers" in columns else nothing
        keys = _bytes(columns["key"]) if "key" in columns else nothing
        produce, poll = self._producer.produce, self._producer.poll
        for name, partition, key, value, pairs in zip(
            topics, partitions, keys, _bytes(columns["value"]), headers, strict=False
        ):
            if name is None:
                raise DeliveryError(
                    "column topic is NULL in a row: name a topic in each, or set the option topic"
                )
            place = _ANY_PARTITION if partition is None else partition
            while True:
                try:
                    produce(name, value, key, place, headers=pairs)
                    break
                except BufferError:
                    poll(_ROOM_TIMEOUT_S)
                except KafkaException as error:
                    raise DeliveryError(f"cannot write to {name}-{place}: {error.args[0].str()}") from None
        poll(0)
        self._check()
        sent: int = batch.num_rows
        return sent

    def flush(self) -> None:
        """Wait until every record is acknowledged or has failed; librdkafka's own timeout bounds the wait."""
        self._producer.flush()
        self._check()

    def purge(self) -> None:
        """Drop what is queued: the task has failed."""
        self._producer.purge()

    def _check(self) -> None:
        if self._failure is not None:
            raise DeliveryError(self._failure)

    def _on_delivery(self, error: ClientError, message: Message) -> None:
        if self._failure is None:
            self._failure = f"cannot write to {message.topic()}-{message.partition()}: {error.str()}"


def _bytes(column: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return values


def _header_pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(header["key"], header["value"]) for header in headers] if headers else None
