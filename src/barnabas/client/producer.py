"""Produces records: `confluent_kafka.Producer` with Python values. It raises errors of deliveries."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas.base.errors import BarnabasError
from barnabas.client.errors import ClientError, translate
from barnabas.client.outages import OutageWarning
from barnabas.client.reach import explain_silence
from barnabas.client.record import Record
from barnabas.client.servers import servers_of
from barnabas.client.settings import DEFAULT_BOOTSTRAP, create_client, librdkafka_settings
from barnabas.client.topic_check import ensure_topic

#: the Java client's default; librdkafka's is five minutes
_DELIVERY_TIMEOUT_MS = 120_000

Headers = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


class Producer:
    """Sends records in the background. The end of its `with` block waits until all are acknowledged.

    After an error in the block, the wait ends after a second.

    The producer is idempotent: all in-sync replicas acknowledge each record, in order and without repeats. It
    is not idempotent if the setting `acks` is not `all`. A record goes to the partition that the Java client
    would choose for its key. Keyword arguments are settings of librdkafka, with underscores for dots:
    `Producer("127.0.0.1:9092", compression_type="lz4", linger_ms=20)`.

    If a record could not be delivered, the next `send`, `poll` or `flush` raises an error. A record counts as
    not delivered if no broker acknowledges it within `delivery_timeout_ms` (2 minutes, as with the Java
    client; 0 waits without end). Until then the producer logs a warning while no broker answers.

    Raises:
        SettingError: librdkafka rejects a setting.
        ClientError: an address is not HOST:PORT.
    """

    def __init__(self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, **settings: Any) -> None:
        configured = librdkafka_settings(bootstrap_servers, settings)
        timeout = configured.get("delivery.timeout.ms", configured.get("message.timeout.ms"))
        defaults: dict[str, Any] = {"enable.idempotence": True, "partitioner": "murmur2_random"}
        if timeout is None:
            timeout = defaults["delivery.timeout.ms"] = _DELIVERY_TIMEOUT_MS
        if str(settings.get("acks", "all")) not in ("all", "-1"):
            del defaults["enable.idempotence"]
        bound = "until one does" if str(timeout) == "0" else f"for up to {timeout} ms (delivery.timeout.ms)"
        defaults["error_cb"] = OutageWarning(bootstrap_servers, f"records wait {bound}")
        self._producer = create_client(confluent_kafka.Producer, bootstrap_servers, settings, defaults)
        self._timeout = timeout
        self._servers = servers_of(bootstrap_servers, librdkafka_settings(bootstrap_servers, settings))
        self._failure: BarnabasError | None = None
        self._is_late = False

    def ensure_topic(self, topic: str) -> int:
        """Return the number of the topic's partitions.

        The request creates a missing topic if the broker allows that.

        Raises:
            ClientError: the topic does not exist and was not created, or no broker answers.
            KafkaError: the broker rejects the request.
        """
        return ensure_topic(self._producer, topic, self._servers)

    def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Record], None] | None = None,
        about: str = "",
    ) -> None:
        """Send a record, without a wait for its acknowledgement. Blocks while librdkafka's queue is full.

        Bytes are sent unchanged, text as UTF-8, None as a tombstone, all other values as JSON.

        Args:
            key: bytes, or text that is sent as UTF-8; None for a record without a key.
            headers: names and values, as pairs or as a mapping.
            partition: number of the partition; None lets the partitioner choose it.
            timestamp_ms: milliseconds since 1970; None for the present time.
            on_delivery: `send`, `poll` or `flush` calls it with the record as it was stored; never after a
                failed delivery.
            about: name of the record in errors, such as "line 7".

        Raises:
            KafkaError, ClientError: an earlier record, or this one, could not be delivered.
            TypeError, ValueError: JSON cannot express `value`.
        """
        self._raise_failure()

        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        optional: dict[str, Any] = {}
        if partition is not None:
            optional["partition"] = partition
        if timestamp_ms is not None:
            optional["timestamp"] = timestamp_ms
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=_to_bytes(value),
                    key=key.encode() if isinstance(key, str) else key,
                    headers=pairs,
                    on_delivery=self._reported
                    if on_delivery is None and not about
                    else partial(self._reported, then=on_delivery, about=about),
                    **optional,
                )
                break
            except BufferError:  # the queue is full: deliver some
                self.poll(0.1)
            except confluent_kafka.KafkaException as error:
                raise translate(error, about) from None
        self.poll()

    def poll(self, timeout: float = 0.0) -> None:
        """Call `on_delivery` for acknowledged records. Wait at most `timeout` seconds for the first one.

        Raises:
            KafkaError, ClientError: a record could not be delivered.
        """
        try:
            self._producer.poll(timeout)
        except confluent_kafka.KafkaException as error:  # fatal: raised from whatever is called next
            raise translate(error) from None
        self._raise_failure()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record is acknowledged, at most `timeout` seconds; None means no limit.

        Raises:
            KafkaError, ClientError: a record was not delivered, or the time limit is over.
        """
        try:
            left = self._producer.flush() if timeout is None else self._producer.flush(timeout)
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None
        self._raise_failure()
        if left:
            raise ClientError(f"{left} records were not acknowledged within {timeout} s")

    def __len__(self) -> int:
        """Return the number of unacknowledged records."""
        return len(self._producer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
        else:
            with contextlib.suppress(confluent_kafka.KafkaException):
                self._producer.flush(1.0)  # what went wrong matters more than what is under way

    def _reported(
        self,
        error: Any,
        message: confluent_kafka.Message,
        *,
        then: Callable[[Record], None] | None = None,
        about: str = "",
    ) -> None:
        if error is not None:
            if self._failure is None:
                self._failure = translate(error, f"{about}, or one sent with it" if about else "")
                self._is_late = error.code() == confluent_kafka.KafkaError._MSG_TIMED_OUT
        elif then is not None:
            then(Record.from_message(message))

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is None:
            return
        if self._is_late:
            raise ClientError(
                f"{failure} (delivery.timeout.ms={self._timeout}):"
                f" {explain_silence(self._servers, int(self._timeout) / 1000)}"
            )
        raise failure


def _to_bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False).encode()
