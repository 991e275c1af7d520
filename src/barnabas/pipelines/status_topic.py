"""Writes a pipeline's status to a topic, for `barnabas pipeline list` and the console on any machine.

The topic is compacted. The key of a record is the pipeline's name, and its value is a JSON object. The object
has the fields of `PipelineStatus`, ``version`` (1), and ``every_s``: the longest time between two records of
a running pipeline. A value of NULL means that the pipeline was reset. To keep records small, each query has
at most `MAX_PARTITIONS` partitions, those with the largest lag. The field ``lag`` counts all partitions.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import NewTopic

from barnabas.base.errors import BarnabasError
from barnabas.client.topic_check import invalid_topic_name
from barnabas.pipelines.status import PipelineStatus, QueryStatus
from barnabas.spark.clients import (
    connection_settings,
    consumer_settings,
    new_admin,
    new_consumer,
    producer_settings,
)

logger = logging.getLogger(__name__)

DEFAULT_TOPIC = "barnabas-pipelines"
VERSION = 1
#: how often the status is written at least while the pipeline runs, in seconds
EVERY_S = 5.0
#: a pipeline that has not written for so long, though it should be running, is silent, in seconds
SILENT_S = 3 * EVERY_S
MAX_PARTITIONS = 100

#: timeouts in seconds: to create the topic, to write the last record, to read the topic
_CREATE_S = 30.0
_FLUSH_S = 5.0
_READ_S = 30.0


def to_value(status: PipelineStatus) -> bytes:
    """Return the value of the record for `status`, as JSON."""
    queries = [_shortened(query) for query in status.queries]
    made = {"version": VERSION, "every_s": EVERY_S, **asdict(replace(status, queries=queries))}
    return json.dumps(made, separators=(",", ":")).encode()


def from_value(value: bytes) -> PipelineStatus:
    """Return the status in the value of a record.

    If the pipeline should be running, and the record is older than `SILENT_S`, the state is ``silent``.

    Raises:
        ValueError: the value is not a status.
    """
    try:
        found = json.loads(value)
        status = PipelineStatus.of(found)
        age = (datetime.now(UTC) - datetime.fromisoformat(status.updated)).total_seconds()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is not the status of a pipeline: {error}") from None
    if status.state in ("running", "stopping") and age > SILENT_S:
        status.state = "silent"
    return status


def _shortened(query: QueryStatus) -> QueryStatus:
    furthest = sorted(query.partitions, key=lambda each: -each.lag)[:MAX_PARTITIONS]
    return replace(query, partitions=sorted(furthest, key=lambda each: (each.topic, each.partition)))


class StatusTopic:
    """Writes the status of a pipeline to a topic.

    `publish` and `forget` return at once: a thread of this object sends the record. So a failure never delays
    the pipeline.

    Args:
        topic: name of the topic, which the thread creates if it does not exist.
        client: settings of librdkafka, with ``bootstrap.servers``.
        say: called with a sentence when writes fail, and when they work again.
    """

    def __init__(self, topic: str, client: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._topic = topic
        self._settings = producer_settings(client)
        self._say = say
        self._failed = False
        self._written_at = float("-inf")
        self._shape: tuple[object, ...] = ()
        self._next: tuple[str, bytes | None] | None = None
        self._ends = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="status-topic", daemon=True)
        self._thread.start()

    def publish(self, status: PipelineStatus) -> None:
        """Write the status if a state, an error or an alert has changed, or the last write is `EVERY_S` ago.

        The thread sends the record later.
        """
        shape = (status.state, *status.alerts, *((each.state, each.last_error) for each in status.queries))
        now = time.monotonic()
        if shape == self._shape and now - self._written_at < EVERY_S:
            return
        self._shape, self._written_at = shape, now
        self._put(status.pipeline, to_value(status))

    def forget(self, pipeline: str) -> None:
        """Remove the status of `pipeline` from the topic, with a tombstone."""
        self._put(pipeline, None)

    def close(self) -> None:
        """Let the thread write the pending record and end. Wait at most `_FLUSH_S` seconds for it."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(_FLUSH_S)

    def _put(self, pipeline: str, value: bytes | None) -> None:
        with self._changed:
            self._next = (pipeline, value)
            self._changed.notify()

    def _run(self) -> None:
        producer: Producer | None = None
        while True:
            with self._changed:
                while self._next is None and not self._ends:
                    self._changed.wait()
                record, self._next = self._next, None
            if record is None:
                return
            try:
                if producer is None:
                    self._create_topic()
                    producer = Producer({**self._settings, "log_level": 0})
                producer.produce(self._topic, key=record[0], value=record[1], on_delivery=self._on_delivery)
                producer.flush(EVERY_S)
            except KafkaException as error:
                self._tell(error.args[0].str())
            except (BarnabasError, BufferError, TimeoutError) as error:
                self._tell(str(error) or f"no answer within {_CREATE_S:.0f} s")

    def _create_topic(self) -> None:
        admin = new_admin(connection_settings(self._settings))
        topic = NewTopic(self._topic, 1, -1, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([topic])[self._topic].result(_CREATE_S)
        except KafkaException as error:
            # it may be there, and who may not make topics may still write to this one
            harmless = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_AUTHORIZATION_FAILED,
                        KafkaError.CLUSTER_AUTHORIZATION_FAILED)  # fmt: skip
            if error.args[0].code() not in harmless:
                raise

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._tell(error.str())
        elif self._failed:
            self._failed = False
            self._say(f"the status is written to the topic {self._topic} again")

    def _tell(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            self._say(f"the status cannot be written to the topic {self._topic}: {why}")


def read_statuses(topic: str, client: Mapping[str, str]) -> list[PipelineStatus]:
    """Return the newest status of each pipeline in `topic`, in order of the pipelines' names.

    `client` has settings of librdkafka. A record that is not a status is ignored, and a warning is logged.

    Raises:
        BarnabasError: the topic does not exist, or cannot be read to its end within `_READ_S` seconds.
    """
    consumer = new_consumer({**consumer_settings(client), "log_level": 0})
    try:
        newest = _newest(consumer, topic)
    except KafkaException as error:
        raise BarnabasError(f"topic {topic}: {error.args[0].str()}") from None
    finally:
        consumer.close()
    found = []
    for name, value in sorted(newest.items()):
        try:
            found.append(from_value(value))
        except ValueError as error:
            logger.warning("topic %s, key %s: %s", topic, name, error)
    return found


def _newest(consumer: Consumer, topic: str) -> dict[str, bytes]:
    try:
        known = consumer.list_topics(topic, timeout=_READ_S).topics[topic]
    except RuntimeError:
        raise invalid_topic_name(topic) from None
    if known.error is not None:
        hint = "set status_topic in pipeline(...) and run it, or name another topic with --topic"
        raise BarnabasError(f"topic {topic}: {known.error.str()}; {hint}")
    unread = set(known.partitions)
    consumer.assign([ClientPartition(topic, number, OFFSET_BEGINNING) for number in unread])
    newest: dict[str, bytes] = {}
    give_up = time.monotonic() + _READ_S
    while unread:
        if time.monotonic() >= give_up:
            raise BarnabasError(f"topic {topic}: not read to its end within {_READ_S:.0f} s")
        for message in consumer.consume(1000, timeout=1.0):
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                unread.discard(message.partition())
                continue
            name = (message.key() or b"").decode(errors="replace")
            if (value := message.value()) is None:
                newest.pop(name, None)
            else:
                newest[name] = value
    return newest
