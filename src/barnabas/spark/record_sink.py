"""Rows become records: a producer that is told Arrow batches and remembers what the brokers refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from barnabas.errors import BarnabasError
from barnabas.spark.clients import Settings, new_producer

#: Lets the broker choose, in librdkafka's terms.
_ANY_PARTITION = -1

#: How long to wait for room in the producer's queue before trying again, in seconds.
_ROOM_TIMEOUT_S = 1.0

#: How much of a key a message shows, in bytes.
_SHOWN_KEY = 60

NO_TOPIC = "column topic is NULL in a row: name a topic in each, or set the option topic"

_FENCED = (ClientError._FENCED, ClientError.PRODUCER_FENCED, ClientError.INVALID_PRODUCER_EPOCH)


class DeliveryError(BarnabasError):
    """A record did not reach its topic; the task fails, and Spark tries it again."""


class RecordSink:
    """Sends; what makes the records of a task one whole is for others (`writer`, `exactly_once`)."""

    def __init__(self, settings: Settings) -> None:
        self._failure: str | None = None
        self._producer = new_producer(settings, self._on_delivery)

    @property
    def producer(self) -> Producer:
        """The client that sends."""
        return self._producer

    def send(self, batch: pa.RecordBatch, topic: str | None) -> int:
        """Queue every row of `batch`; `topic` goes before the column of that name. Returns how many.

        Raises:
            DeliveryError: a row cannot be a record, or an earlier one was refused; the text says which.
        """
        columns = {name: batch.column(name) for name in batch.schema.names}
        nothing = itertools.repeat(None)
        topics = itertools.repeat(topic) if topic else columns["topic"].to_pylist()
        partitions = columns["partition"].to_pylist() if "partition" in columns else nothing
        headers = columns["headers"].to_pylist() if "headers" in columns else nothing
        keys = _bytes(columns["key"]) if "key" in columns else nothing
        produce = self._producer.produce
        for name, partition, key, value, listed in zip(
            topics, partitions, keys, _bytes(columns["value"]), headers, strict=False
        ):
            if name is None:
                raise DeliveryError(NO_TOPIC)
            place = _ANY_PARTITION if partition is None else partition
            pairs = None
            if listed:
                if any(header is None or header["key"] is None for header in listed):
                    raise _refused(_place(name, place), key, value, "a header is NULL or has no key")
                pairs = [(header["key"], header["value"]) for header in listed]
            while True:
                try:
                    produce(name, value, key, place, headers=pairs)
                    break
                except BufferError:
                    self._serve(self._producer.poll, _ROOM_TIMEOUT_S)
                except KafkaException as error:
                    self._serve(self._producer.poll, 0)  # an earlier failure says more
                    raise _refused(_place(name, place), key, value, explain(error.args[0])) from None
        self._serve(self._producer.poll, 0)
        sent: int = batch.num_rows
        return sent

    def flush(self) -> None:
        """Wait until every record is acknowledged or has failed; librdkafka's own timeout bounds the wait."""
        self._serve(self._producer.flush)

    def purge(self) -> None:
        """Drop what is queued: the task has failed."""
        self._producer.purge()

    def _serve(self, call: Callable[..., object], *timeout: float) -> None:
        try:
            call(*timeout)
        except (KafkaException, SystemError) as error:
            # Fatal for the producer. When librdkafka calls back at the same time, confluent-kafka makes a
            # SystemError of it, with or without its cause; a refused record says more than both.
            fatal = error.__cause__ if isinstance(error, SystemError) else error
            cause = explain(fatal.args[0]) if isinstance(fatal, KafkaException) else str(error)
            self._failure = self._failure or f"cannot write: {cause}"
        if self._failure is not None:
            raise DeliveryError(self._failure)

    def _on_delivery(self, error: ClientError, message: Message) -> None:
        if self._failure is None:
            place = _place(message.topic(), message.partition())
            self._failure = str(_refused(place, message.key(), message.value(), explain(error)))


def explain(error: ClientError) -> str:
    """The client's word, in this data source's terms where a transaction is over before its time."""
    if error.code() in _FENCED:
        return (
            "another attempt of this task has taken over, or its transaction took longer than "
            "kafka.transaction.timeout.ms; nothing of this attempt is written"
        )
    text: str = error.str()
    return text


def _place(topic: str, partition: int | None) -> str:
    return topic if partition in (None, _ANY_PARTITION) else f"{topic}-{partition}"


def _refused(place: str, key: bytes | None, value: bytes | None, cause: str) -> DeliveryError:
    shown = "no key" if key is None else f"key {key[:_SHOWN_KEY]!r}"
    size = "no value" if value is None else f"a value of {len(value)} bytes"
    return DeliveryError(f"cannot write to {place} the row with {shown} and {size}: {cause}")


def _bytes(column: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return values
