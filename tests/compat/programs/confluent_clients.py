"""Makes the clients of confluent-kafka. A keyword `group_id` sets the client's `group.id`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.programs.trace import Trace


def _settings(see: Trace, options: dict[str, Any]) -> dict[str, Any]:
    usual = {"bootstrap.servers": see.bootstrap, "client.id": "programs", "log_level": 0}
    callbacks = {name: value for name, value in options.items() if callable(value)}
    others = {name.replace("_", "."): value for name, value in options.items() if name not in callbacks}
    return {**usual, **callbacks, **others}


def admin(see: Trace) -> AdminClient:
    return AdminClient(_settings(see, {}))


def producer(see: Trace, **options: Any) -> Producer:
    return Producer(_settings(see, options))


def consumer(see: Trace, *topics: str, **options: Any) -> Consumer:
    """Create a consumer, and subscribe to the topics, if any."""
    usual = {"group_id": see.name("g"), "auto_offset_reset": "earliest", "enable_auto_commit": False}
    reader = Consumer(_settings(see, {**usual, **options}))
    if topics:
        reader.subscribe(list(topics))
    return reader


def made(see: Trace, suffix: str, partitions: int = 1, **config: str) -> str:
    """Create a topic, and wait until clients can use it."""
    name = see.name(suffix)
    settings = {key.replace("_", "."): value for key, value in config.items()}
    clients = admin(see)
    clients.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
    until(lambda: is_known(clients, name))
    return name


def is_known(clients: AdminClient, name: str) -> bool:
    """Return whether the topic exists, and all its partitions have leaders."""
    described = clients.describe_topics(TopicCollection([name]))[name]
    return described.exception(30) is None and all(each.leader for each in described.result().partitions)


def removed(see: Trace, topic: str) -> None:
    """Delete a topic, and wait until the broker no longer knows it."""
    clients = admin(see)
    clients.delete_topics([topic])[topic].result(30)
    until(lambda: not is_known(clients, topic))


def filled(see: Trace, suffix: str, count: int = 5, partitions: int = 1, **config: str) -> str:
    """Create a topic with `count` records in each partition, ten milliseconds apart from timestamp 1000."""
    topic = made(see, suffix, partitions, **config)
    fill(see, topic, count, partitions)
    return topic


def fill(see: Trace, topic: str, count: int = 5, partitions: int = 1) -> None:
    writer = producer(see, acks="all")
    for partition in range(partitions):
        for number in range(count):
            writer.produce(topic, b"%d" % number, partition=partition, timestamp=1000 + 10 * number)
    assert writer.flush(30) == 0


def until(reached: Callable[[], object], seconds: float = 30) -> bool:
    """Call until the result is true, or for `seconds`. Return whether it became true."""
    deadline = time.monotonic() + seconds
    while not (there := reached()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(there)


def sent(see: Trace, label: str, writer: Producer, topic: str, *values: Any, **options: Any) -> None:
    """Produce records together, and record their delivery reports in the order of the records."""
    see.call(label, lambda: reports(writer, topic, *values, **options))


def reports(writer: Producer, topic: str, *values: Any, **options: Any) -> list[Any]:
    told: dict[int, tuple[KafkaError | None, int | None, int | None]] = {}

    def callback(number: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, record: Message) -> None:
            told[number] = (error, record.partition(), None if error else record.offset())

        return delivered

    for number, value in enumerate(values):
        writer.produce(topic, value, on_delivery=callback(number), **options)
    writer.flush(30)
    return [told.get(number) for number in range(len(values))]


def polled(reader: Consumer, seconds: float = 8, count: int = 1) -> list[Message]:
    """Poll until there are `count` records or events. Return them by partition and offset."""
    found: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        one = reader.poll(0.2)
        if one is not None:
            found.append(one)
    return in_order(found)


def in_order(found: Iterable[Message]) -> list[Message]:
    return sorted(found, key=lambda each: (each.topic() or "", each.partition() or 0, each.offset() or 0))


def to_the_end(reader: Consumer, partitions: int, seconds: float = 20) -> list[Message]:
    """Poll until the consumer (`enable.partition.eof`) has seen the end of this number of partitions."""
    found: list[Message] = []
    ends: set[tuple[str | None, int | None]] = set()
    deadline = time.monotonic() + seconds
    while len(ends) < partitions and time.monotonic() < deadline:
        one = reader.poll(0.2)
        if one is not None:
            found.append(one)
            problem = one.error()
            if problem is not None and problem.code() == KafkaError._PARTITION_EOF:
                ends.add((one.topic(), one.partition()))
    return in_order(found)


def everything_read(see: Trace, topic: str, partitions: int = 1, label: str = "read", **options: Any) -> None:
    """Record all records of a topic, and the offsets of its ends."""
    reader = consumer(see, group_id="none", enable_partition_eof=True, **options)
    reader.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
    see.call(label, to_the_end, reader, partitions)
    reader.close()
