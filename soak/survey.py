"""The final reads of a soak: each partition with both isolation levels, and the offsets of the groups."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TypeAlias

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.client.admin import Admin
from soak.history import Recorder
from soak.plan import DELIVERIES, JOBS, LOCK, PARTITIONS, RECYCLED, TOPICS, Slot
from soak.roles.common import identity

SECONDS = 30.0
Place: TypeAlias = tuple[str, int]
Record: TypeAlias = tuple[int, str, str | None]
"""Offset, id and key."""
Records: TypeAlias = list[Record]
ISOLATIONS = ("read_uncommitted", "read_committed")


@dataclass(frozen=True)
class Contents:
    """The records of a partition from `start` to `end` (exclusive).

    `is_whole` is false if no more records arrived for a long time before the end.
    """

    start: int
    end: int
    records: Records
    is_whole: bool = True


def serves(address: str, api_key: int) -> bool:
    """Return whether the broker at ``host:port`` supports an API, by its answer to ApiVersions version 0."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    (count,) = struct.unpack_from(">i", answer, 6)
    return api_key in {struct.unpack_from(">h", answer, 10 + 6 * place)[0] for place in range(count)}


class Survey:
    """Sends requests to a running broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create_topics(self, least_segment: int) -> None:
        """Create the topics of the plan. No segment is smaller than `least_segment` bytes."""
        topics = []
        for name, config in TOPICS.items():
            size = max(least_segment, int(config["segment.bytes"]))
            topics.append(NewTopic(name, PARTITIONS[name], -1, config={**config, "segment.bytes": str(size)}))
        for created in self._admin.create_topics(topics).values():
            created.result(SECONDS)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, except of internal topics."""
        found = self._admin.list_topics(timeout=SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}

    def contents(self, topics: Mapping[str, int], isolation: str) -> dict[Place, Contents]:
        """Return all records that a reader with this isolation level finds."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "survey",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "log_level": 0,
            }
        )
        parts = [TopicPartition(topic, n, 0) for topic, count in topics.items() for n in range(count)]
        consumer.assign(parts)
        records: dict[Place, Records] = {(part.topic, part.partition): [] for part in parts}
        unread = set(records)
        for place, record in _until_end(consumer, unread):
            records[place].append(record)
        consumer.close()
        # only now: retention may have taken records that were yet to be read
        starts = self._offsets(records, OffsetSpec.earliest())
        ends = self._offsets(records, OffsetSpec.latest(), isolation)
        return {
            place: Contents(starts[place], ends[place], found, is_whole=place not in unread)
            if place in starts and place in ends
            else Contents(0, 0, found, is_whole=False)
            for place, found in records.items()
        }

    def group_offsets(self, group: str) -> dict[Place, int]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        answer = asked[group].result(SECONDS)
        return {
            (part.topic, part.partition): part.offset for part in answer.topic_partitions if part.offset >= 0
        }

    def await_stable(self, topics: Mapping[str, int], seconds: float) -> None:
        """Wait until no transaction is open. Return when the time is up: the checker then reports open
        transactions.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            places = [(topic, number) for topic, count in topics.items() for number in range(count)]
            ends = [self._offsets(places, OffsetSpec.latest(), isolation) for isolation in ISOLATIONS]
            if ends[0] == ends[1]:
                return
            time.sleep(1)

    def configure_workers(self, recorder: Recorder) -> None:
        """Have the share group begin at the start of its topic, and write its settings into the history."""
        with closing(Admin(self._bootstrap, timeout=SECONDS)) as admin:
            admin.alter_configs("group", JOBS, set={"share.auto.offset.reset": "earliest"})
        isolation = ISOLATIONS[0]
        recorder.note("share_settings", group=JOBS, lock=LOCK * 10**9, limit=DELIVERIES, isolation=isolation)

    def await_workers(self, seconds: float, tend: Callable[[], object]) -> None:
        """Wait until the share group has finished all records, or the time is up."""
        ends = {
            place: max((offset for offset, _, _ in found.records), default=-1)
            for place, found in self.contents({JOBS: PARTITIONS[JOBS]}, ISOLATIONS[0]).items()
        }
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            starts = self._start_offsets()
            if all(starts.get(place, 0) > end for place, end in ends.items()):
                return
            tend()
            time.sleep(1)

    def record_workers(self, recorder: Recorder) -> None:
        """Write the start offsets of the share group into the history."""
        offsets = [(topic, partition, start) for (topic, partition), start in self._start_offsets().items()]
        recorder.note("share_offsets", group=JOBS, offsets=offsets)

    def _start_offsets(self) -> dict[Place, int]:
        with closing(Admin(self._bootstrap, timeout=SECONDS)) as admin:
            found = admin.share_offsets(JOBS)
        return {(place.topic, place.partition): each.start or 0 for place, each in found.items()}

    def await_groups(
        self,
        readers: Sequence[Slot],
        topics: Mapping[str, int],
        seconds: float,
        tend: Callable[[], object],
    ) -> None:
        """Wait until the readers' groups have committed the end of their topics, or the time is up.

        Args:
            tend: called regularly; it replaces clients that have ended by themselves.
        """
        last = {
            isolation: {
                place: max((offset for offset, _, _ in found.records), default=-1)
                for place, found in self.contents(topics, isolation).items()
            }
            for isolation in ISOLATIONS
        }
        deadline = time.monotonic() + seconds
        waiting = {slot.group: slot for slot in readers}
        while waiting and time.monotonic() < deadline:
            for group, slot in list(waiting.items()):
                offsets = self.group_offsets(group)
                wanted = last[slot.isolation]
                unread = [
                    place
                    for place, end in wanted.items()
                    if place[0] in slot.topics and place[0] != RECYCLED and offsets.get(place, 0) <= end
                ]
                starts = self._offsets(unread, OffsetSpec.earliest())
                if all(starts.get(place, 0) > wanted[place] for place in unread):  # they are there no more
                    del waiting[group]
            tend()
            time.sleep(1)

    def record(self, recorder: Recorder, groups: Iterable[str], ahead_ms: int = 0) -> None:
        """Read everything and write it into the history.

        Args:
            ahead_ms: the largest time by which a broker's clock was ahead. That broker treated records as
                older by this time.
        """
        topics = self.topics()
        for name in topics:
            config = TOPICS.get(name, {})
            age = _number(config.get("retention.ms"))
            recorder.note(
                "topic",
                name=name,
                compacted="compact" in config.get("cleanup.policy", ""),
                retention_ms=None if age is None else max(0, age - ahead_ms),
                retention_bytes=_number(config.get("retention.bytes")),
            )
        for isolation in ISOLATIONS:
            for (topic, partition), found in self.contents(topics, isolation).items():
                recorder.note(
                    "log",
                    topic=topic,
                    partition=partition,
                    isolation=isolation,
                    start=found.start,
                    end=found.end,
                    is_whole=found.is_whole,
                    records=found.records,
                )
        for group in groups:
            offsets = [(topic, partition, o) for (topic, partition), o in self.group_offsets(group).items()]
            recorder.note("group", group=group, offsets=offsets)

    def _offsets(
        self, places: Iterable[Place], spec: OffsetSpec, isolation: str = ISOLATIONS[0]
    ) -> dict[Place, int]:
        """Return the offsets of the partitions for which the broker has an answer."""
        asked = {TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        level = (
            IsolationLevel.READ_COMMITTED
            if isolation == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=SECONDS)
        found = {}
        for part, answer in answers.items():
            with suppress(KafkaException):
                found[part.topic, part.partition] = answer.result(SECONDS).offset
        return found


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)


def _until_end(consumer: Consumer, unread: set[Place]) -> Iterator[tuple[Place, Record]]:
    """Yield each record until every assigned partition has been read to its end.

    Args:
        unread: the partitions to read. At the end it has those from which no more records arrive.
    """
    while unread:
        message = consumer.poll(SECONDS)
        if message is None:
            return
        place = (message.topic(), message.partition())
        error = message.error()
        if error is None:
            key = message.key()
            named = identity(message.value(), message.headers())
            yield place, (message.offset(), named, None if key is None else key.decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            unread.discard(place)
        elif not error.retriable() and error.code() != KafkaError._BAD_MSG:
            raise KafkaException(error)
