"""Sends the rows of Arrow batches as records, and raises an error for the first record that fails."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from barnabas.base.errors import BarnabasError
from barnabas.spark.clients import Settings, new_producer
from barnabas.spark.librdkafka import BatchProducer, Failed, MessageTable
from barnabas.spark.message_table import message_table
from barnabas.spark.send_window import SendWindow

#: Milliseconds between two checks of a full queue of the producer.
_ROOM_TIMEOUT_MS = 1

#: Approximate number of bytes that one call passes to the producer.
_PIECE_BYTES = 1 << 24

#: Timeout of the lookup of a topic's partitions, in seconds.
_FIND_S = 10.0

#: Bytes of a record's key that an error message shows.
_SHOWN_KEY = 60

#: RD_KAFKA_PARTITION_UA: the partitioner chooses the partition.
_ANY_PARTITION = -1

NO_TOPIC = "column topic is NULL in a row: name a topic in each, or set the option topic"

#: errors of records that librdkafka drops after a fatal error, which says more
_PURGED = (ClientError._PURGE_QUEUE, ClientError._PURGE_INFLIGHT)
_FENCED = (ClientError._FENCED, ClientError.PRODUCER_FENCED, ClientError.INVALID_PRODUCER_EPOCH)

#: Replaces the producer's own queue limits, at which it would reject some records of a batch.
_UNLIMITED = str(2**31 - 1)
_MAX_MESSAGES, _MAX_KBYTES = "queue.buffering.max.messages", "queue.buffering.max.kbytes"


class DeliveryError(BarnabasError):
    """A record was not written. Spark repeats the failed task."""


class RecordSink:
    """Sends rows as records with its own producer. Callers must call `flush` after the last row."""

    def __init__(self, settings: Settings) -> None:
        self._failure: str | None = None
        #: a failure that counts only if there is no other
        self._purged: str | None = None
        self._max_records = int(settings[_MAX_MESSAGES]) or math.inf  # 0 is no limit, as for librdkafka
        self._max_bytes = int(settings[_MAX_KBYTES]) * 1024
        #: records and bytes of the last pieces, which the producer may still hold
        self._recent: deque[tuple[int, int]] = deque()
        self._recent_records = self._recent_bytes = 0
        unlimited = {**settings, _MAX_MESSAGES: _UNLIMITED, _MAX_KBYTES: _UNLIMITED}
        self._producer = new_producer(unlimited, self._on_failure)
        self._window = SendWindow(settings, lambda topic: self._producer.find(topic, _FIND_S))

    @property
    def producer(self) -> BatchProducer:
        """Return the producer that sends the records."""
        return self._producer

    def send(self, batch: pa.RecordBatch, topic: str | None) -> int:
        """Queue every row of `batch` as a record. Return the number of rows.

        `topic` overrides the column topic; if it is None, each row names its topic. The call waits while the
        producer's queue is full.

        Raises:
            DeliveryError: a row cannot become a record, for example because its topic is NULL; or a broker
                has rejected an earlier record. The text has the reason.
        """
        for name, rows in _by_topic(batch, topic):
            table = message_table(rows)
            headers = rows.column("headers") if "headers" in rows.schema.names else None
            if headers is None or headers.null_count == len(headers):
                self._send_table(name, rows, table)
            else:
                self._send_with_headers(name, rows, table, headers.to_pylist())
        self._serve(self._producer.poll, 0)
        sent: int = batch.num_rows
        return sent

    def flush(self) -> None:
        """Wait until every record is acknowledged or has failed, at most for librdkafka's delivery timeout.

        Raises DeliveryError if a record has failed.
        """
        self._serve(self._producer.flush)
        self._window.close()

    def purge(self) -> None:
        """Drop the records without an acknowledgement, because their task has failed."""
        self._producer.purge()

    def close(self) -> None:
        """Close the producer. Queued records are lost."""
        self._producer.close()

    def _send_table(self, topic: str, rows: pa.RecordBatch, table: MessageTable) -> None:
        start = 0
        for piece in (small for large in self._window.split(topic, table) for small in _pieces(large)):
            self._wait_for_room()
            try:
                refused = self._producer.produce(topic, piece)
            except KafkaException as error:  # the topic's name is none
                self._refuse(topic, rows.slice(start, 1), error.args[0])
            if refused is not None:
                self._refuse(topic, rows.slice(start + refused, 1), ClientError(int(piece["err"][refused])))
            self._count(piece)
            start += len(piece)

    def _send_with_headers(
        self, topic: str, rows: pa.RecordBatch, table: MessageTable, headers: list[Any]
    ) -> None:
        for number, listed in enumerate(headers):
            if any(header is None or header["key"] is None for header in listed or ()):
                raise _refused(_row(topic, rows.slice(number, 1)), "a header is NULL or has no key")
            self._wait_for_room()
            pairs = [(header["key"], header["value"]) for header in listed or ()]
            try:
                self._producer.produce_with_headers(topic, table[number], pairs)
            except KafkaException as error:
                self._refuse(topic, rows.slice(number, 1), error.args[0])
            self._count(table[number : number + 1])

    def _refuse(self, topic: str, row: pa.RecordBatch, error: ClientError) -> NoReturn:
        self._serve(self._producer.poll, 0)  # an earlier failure says more
        raise _refused(_row(topic, row), explain(error))

    def _count(self, sent: MessageTable) -> None:
        records, size = len(sent), int(sent["len"].sum() + sent["key_len"].sum())
        self._recent.append((records, size))
        self._recent_records += records
        self._recent_bytes += size

    def _wait_for_room(self) -> None:
        while self._is_full():
            self._serve(self._producer.poll, _ROOM_TIMEOUT_MS)

    def _is_full(self) -> bool:
        """Whether the producer has reached its limits of records or bytes.

        librdkafka reports the number of queued records, but not their size. The queued records are always the
        last ones that this sink has sent. So this method adds the sizes of the last sent tables, until these
        tables have the reported number of records.
        """
        held = len(self._producer)
        while self._recent and self._recent_records - self._recent[0][0] >= held:
            records, size = self._recent.popleft()
            self._recent_records -= records
            self._recent_bytes -= size
        max_records = min(self._max_records, self._window.records)
        return held >= max_records or self._recent_bytes >= min(self._max_bytes, self._window.bytes)

    def _serve(self, call: Callable[..., None], *timeout: int) -> None:
        try:
            call(*timeout)
        except KafkaException as error:  # fatal for the producer; a refused record says more
            self._failure = self._failure or f"cannot write: {explain(error.args[0])}"
        self._failure = self._failure or self._purged
        if self._failure is not None:
            raise DeliveryError(self._failure)

    def _on_failure(self, failed: Failed) -> None:
        text = str(_refused(failed, explain(failed.error)))
        if failed.error.code() in _PURGED:
            self._purged = self._purged or text
        else:
            self._failure = self._failure or text


def explain(error: ClientError) -> str:
    """Return the text of an error of librdkafka. For a fenced producer, the text explains the cause."""
    if error.code() in _FENCED:
        return (
            "another attempt of this task has taken over, or its transaction took longer than "
            "kafka.transaction.timeout.ms; nothing of this attempt is written"
        )
    text: str = error.str()
    return text


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic of `batch`, with its rows in order. Raises DeliveryError if a row has no topic."""
    if topic is not None:
        yield topic, batch
        return
    column = batch.column("topic")
    if column.null_count:
        raise DeliveryError(NO_TOPIC)
    for name in column.unique().to_pylist():
        yield name, batch.filter(pc.equal(column, name))


def _pieces(table: MessageTable) -> list[MessageTable]:
    """Divide `table` into pieces of about `_PIECE_BYTES`."""
    ends = np.cumsum(table["len"] + table["key_len"]) // np.uint64(_PIECE_BYTES)
    return np.split(table, np.flatnonzero(np.diff(ends)) + 1)


def _row(topic: str, row: pa.RecordBatch) -> Failed:
    """Return a `Failed` for a row that librdkafka did not queue, for an error message."""
    values = {name: row.column(name)[0] for name in row.schema.names}
    partition = values["partition"].as_py() if "partition" in values else None
    key, value = (
        values[name].cast(pa.binary()).as_py() if name in values else None for name in ("key", "value")
    )
    return Failed(ClientError(0), topic, _ANY_PARTITION if partition is None else partition, key, value)


def _refused(record: Failed, cause: str) -> DeliveryError:
    chosen = record.partition != _ANY_PARTITION
    target = f"{record.topic}-{record.partition}" if chosen else record.topic
    shown = "no key" if record.key is None else f"key {record.key[:_SHOWN_KEY]!r}"
    size = "no value" if record.value is None else f"a value of {len(record.value)} bytes"
    return DeliveryError(f"cannot write to {target} the row with {shown} and {size}: {cause}")
