"""Consuming records: `confluent_kafka.Consumer` as an iterator, in a group or on its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas.client.errors import ClientError, translate
from barnabas.client.record import Record
from barnabas.client.settings import DEFAULT_BOOTSTRAP, create_client
from barnabas.errors import ErrorCode, KafkaError
from barnabas.types import TopicPartition

_BATCH = 1_000


class Consumer:
    """Iterates over the records of topics, for ever: `for record in Consumer(servers, "orders"): ...`

    With `group`, as a member of that consumer group, which shares the partitions and remembers its offsets
    (a record's when the next is taken, or the block ends without an error; committed now and then, or by
    `commit`).
    Without, it reads every partition on its own and remembers nothing.

    Args:
        bootstrap_servers: `host:port,...`
        topics: names, or with a group also patterns beginning with ^.
        start: where to begin where there is no committed offset: "earliest" or "latest".
        settings: librdkafka's, with underscores for dots.
    """

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP,
        *topics: str,
        group: str | None = None,
        start: str = "earliest",
        **settings: Any,
    ) -> None:
        self._group = group
        self._pending: list[Record] = []
        self._taken: Record | None = None
        self._ends: dict[TopicPartition, int] = {}  # where the reader has met a partition's end
        self._consumer = create_client(
            confluent_kafka.Consumer,
            bootstrap_servers,
            settings,
            {
                "auto.offset.reset": start,
                "enable.auto.commit": group is not None,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                # librdkafka wants a name even where no group is joined
                "group.id": group or "barnabas-reader",
            },
        )
        if group is not None and topics:
            self.subscribe(*topics)
        elif topics:
            # The end is asked for now: librdkafka looks for it later, and would miss what comes till then.
            self.assign(
                {
                    place: confluent_kafka.OFFSET_BEGINNING
                    if start == "earliest"
                    else self.watermarks(place)[1]
                    for place in self.partitions(*topics)
                }
            )

    def subscribe(self, *topics: str) -> None:
        """Read these topics as a member of the group."""
        self._consumer.subscribe(list(topics))

    def partitions(self, *topics: str) -> list[TopicPartition]:
        """The partitions of the topics.

        Raises:
            KafkaError: there is no such topic.
            ClientError: no broker answers.
        """
        found = []
        for topic in topics:
            try:
                metadata = self._consumer.list_topics(topic, timeout=10).topics[topic]
            except confluent_kafka.KafkaException as error:
                raise translate(error) from None
            if metadata.error is not None:
                if metadata.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
                raise translate(metadata.error)
            found += [TopicPartition(topic, partition) for partition in sorted(metadata.partitions)]
        return found

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets (or librdkafka's OFFSET_BEGINNING, OFFSET_END)."""
        self._ends.clear()
        self._consumer.assign(
            [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        )

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """Log start offset and high watermark, asked of the broker."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                confluent_kafka.TopicPartition(*partition), timeout=10
            )
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None
        return low, high

    def offsets_for_time(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """By partition, the first offset whose record is of that time or later; OFFSET_END when none is."""
        asked = [confluent_kafka.TopicPartition(*place, timestamp_ms) for place in partitions]
        try:
            answer = self._consumer.offsets_for_times(asked, timeout=10)
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None
        return {TopicPartition(place.topic, place.partition): place.offset for place in answer}

    def poll(self, timeout: float = 1.0) -> Record | None:
        """The next record, or None when none has come within `timeout` seconds.

        In a group this says that the record before is done: its offset will be committed.
        """
        self._store_taken()
        deadline = time.monotonic() + timeout
        while not self._pending:
            # It comes back at a partition's end too, where there is nothing to return yet.
            self._pending = self.read_batch(max(deadline - time.monotonic(), 0))[::-1]
            if not self._pending and time.monotonic() >= deadline:
                return None
        self._taken = self._pending.pop()
        return self._taken

    def read_batch(self, timeout: float = 1.0, at_most: int = _BATCH) -> list[Record]:
        """The records that have come, waiting at most `timeout` seconds for the first; offsets are not
        stored.

        Raises:
            KafkaError: the broker answered with an error; UNKNOWN_TOPIC_OR_PARTITION for a topic that is
                gone.
        """
        try:
            messages = self._consumer.consume(1, timeout)
            if messages:  # one wait, then whatever else is there
                messages += self._consumer.consume(at_most - 1, 0) if at_most > 1 else []
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None
        records = []
        for message in messages:
            failure = message.error()
            if failure is None:
                records.append(Record.from_message(message))
            elif failure.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._ends[_place(message)] = message.offset() or 0
            else:
                raise translate(failure)
        return records

    def read_until(self, ends: Mapping[TopicPartition, int]) -> Iterator[list[Record]]:
        """Batches of the assigned partitions' records up to these offsets (not including them).

        Batches may be empty while nothing comes. Raises as `read_batch` does.
        """
        left = dict(ends)
        while left:
            batch = self.read_batch(0.2)
            for record in batch:
                if record.offset + 1 >= left.get(record.place, record.offset + 2):
                    del left[record.place]
            # Markers of transactions are offsets too, but never come as records.
            for place, end in self._ends.items():
                if place in left and end >= left[place]:
                    del left[place]
            yield [record for record in batch if record.offset < ends.get(record.place, 0)]

    def take(self, count: int, timeout: float = 10.0) -> list[Record]:
        """Exactly `count` records.

        Raises:
            ClientError: fewer have come within `timeout` seconds.
        """
        records: list[Record] = []
        deadline = time.monotonic() + timeout
        while len(records) < count:
            record = self.poll(max(deadline - time.monotonic(), 0))
            if record is not None:
                records.append(record)
            elif time.monotonic() >= deadline:
                raise ClientError(f"only {len(records)} of {count} records came within {timeout:g} s")
        return records

    def commit(self) -> None:
        """Commit all that has been taken, and wait for the answer."""
        self._store_taken()
        try:
            self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
                raise translate(error) from None

    def close(self) -> None:
        """Leave the group, committing what is done when commits are automatic."""
        self._consumer.close()

    def _store_taken(self) -> None:
        """Let the next commit cover the last record taken."""
        record, self._taken = self._taken, None
        if record is not None and self._group is not None:
            self._consumer.store_offsets(
                offsets=[confluent_kafka.TopicPartition(*record.place, record.offset + 1)]
            )

    def __iter__(self) -> Iterator[Record]:
        while True:
            record = self.poll()
            if record is not None:
                yield record

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:  # what an error interrupted is not done, and comes again
            self._store_taken()
        self.close()


def _place(message: confluent_kafka.Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)
