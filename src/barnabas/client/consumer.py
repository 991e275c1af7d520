"""Consumes records: `confluent_kafka.Consumer` as an iterator, with or without a group."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.asking import ask
from barnabas.client.errors import ClientError, translate
from barnabas.client.keep_alive import KeepAlive
from barnabas.client.outages import OutageWarning
from barnabas.client.reach import explain_silence
from barnabas.client.record import Record
from barnabas.client.servers import servers_of
from barnabas.client.settings import DEFAULT_BOOTSTRAP, create_client, librdkafka_settings
from barnabas.client.topic_check import invalid_topic_name

_BATCH = 1_000
#: seconds that any broker has for an answer
_ANSWER_S = 10.0
#: seconds that a partition's leader has: a broker that died is replaced when its session has ended (9 s)
_LEADER_S = 30.0
_NO_ANSWER = frozenset(
    {
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._TIMED_OUT,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
        confluent_kafka.KafkaError._RESOLVE,
    }
)
#: librdkafka's default of max.poll.interval.ms
_MAX_POLL_MS = 300_000


class Consumer:
    """Iterates over the records of topics without end: `for record in Consumer(servers, "orders"): ...`

    With `group`, the consumer is a member of that consumer group, which shares the partitions and stores
    offsets. It commits automatically every few seconds, or by `commit`. A record counts as processed when the
    caller takes the next one, or when the `with` block ends without an error. Without `group`, it reads every
    partition that exists now, and stores no offsets.

    The caller may process a record for any time: the consumer stays in its group until `close`, or until the
    process ends. A rebalance waits until the caller has processed its record, at most for two thirds of
    `max_poll_interval_ms` (5 minutes). If a record takes longer and its partition moves, the next member
    reads that record again. Fetched records of a partition that has moved to another member are dropped.

    Args:
        bootstrap_servers: `host:port,...`
        topics: names of topics. With a group, also regular expressions that begin with ^.
        start: "earliest" or "latest": the position in partitions without a committed offset, or in all
            partitions without a group.
        settings: settings of librdkafka, with underscores for dots.

    Raises:
        SettingError: librdkafka rejects a setting.
        ClientError: an address is not HOST:PORT; without a group, also if no broker answers.
        KafkaError: without a group, a topic does not exist.
    """

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP,
        *topics: str,
        group: str | None = None,
        start: str = "earliest",
        **settings: Any,
    ) -> None:
        self._servers = servers_of(bootstrap_servers, librdkafka_settings(bootstrap_servers, settings))
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
                "check.crcs": True,  # librdkafka's default is to return damaged records, or nothing at all
                "enable.auto.commit": group is not None,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                # librdkafka wants a name even where no group is joined
                "group.id": group or "barnabas-reader",
                "error_cb": OutageWarning(bootstrap_servers, "no records come until one does"),
            },
        )
        configured = librdkafka_settings(bootstrap_servers, settings)
        max_poll_ms = int(configured.get("max.poll.interval.ms", _MAX_POLL_MS))
        self._keeper = KeepAlive(self._consumer, max_poll_ms / 1000, self._drop)
        if group is not None and topics:
            self.subscribe(*topics)
        elif topics:
            # The end is asked for now: librdkafka looks for it later, and would miss what comes till then.
            self.assign(
                {
                    partition: confluent_kafka.OFFSET_BEGINNING
                    if start == "earliest"
                    else self.watermarks(partition)[1]
                    for partition in self.partitions(*topics)
                }
            )

    def subscribe(self, *topics: str) -> None:
        """Read these topics, in place of the previous ones, as a member of the group.

        A consumer without a group reads partitions instead: see `assign`.
        """
        self._keeper.start(list(topics))

    def partitions(self, *topics: str) -> list[TopicPartition]:
        """Return the partitions of the topics.

        Raises:
            KafkaError: a topic does not exist.
            ClientError: no broker answers.
        """
        found = []
        for topic in topics:
            try:
                metadata = ask(partial(self._consumer.list_topics, topic, timeout=_ANSWER_S)).topics[topic]
            except RuntimeError:
                raise invalid_topic_name(topic) from None
            except confluent_kafka.KafkaException as error:
                raise self._explained(error, _ANSWER_S) from None
            if metadata.error is not None:
                if metadata.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
                raise translate(metadata.error)
            found += [TopicPartition(topic, partition) for partition in sorted(metadata.partitions)]
        return found

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read only these partitions from now on, each from its offset. For a consumer without a group.

        An offset can also be librdkafka's OFFSET_BEGINNING or OFFSET_END.
        """
        self._ends.clear()
        self._consumer.assign(
            [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        )

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the log start offset and the high watermark from the broker.

        Raises:
            KafkaError, ClientError: the broker rejects the request, or does not answer.
        """
        try:
            low, high = ask(
                partial(
                    self._consumer.get_watermark_offsets,
                    confluent_kafka.TopicPartition(*partition),
                    timeout=_LEADER_S,
                )
            )
        except confluent_kafka.KafkaException as error:
            raise self._explained(error, _LEADER_S, str(partition)) from None
        return low, high

    def offsets_for_time(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record with a timestamp of `timestamp_ms` or later.

        The offset is OFFSET_END (-1) for a partition without such a record.

        Raises:
            KafkaError, ClientError: a broker rejects the request, or does not answer.
        """
        asked = [confluent_kafka.TopicPartition(*partition, timestamp_ms) for partition in partitions]
        try:
            answer = ask(partial(self._consumer.offsets_for_times, asked, timeout=_LEADER_S))
        except confluent_kafka.KafkaException as error:
            raise self._explained(error, _LEADER_S) from None
        for each in answer:
            if each.error is not None:
                raise translate(each.error, f"{each.topic}-{each.partition}")
        return {TopicPartition(each.topic, each.partition): each.offset for each in answer}

    def poll(self, timeout: float = 1.0) -> Record | None:
        """Return the next record; None if none has arrived within `timeout` seconds.

        In a group, the call marks the previous record as processed, so that its offset will be committed.

        Raises:
            KafkaError, ClientError: the broker answered with an error, or librdkafka reports one.
        """
        self._put_down_taken()
        deadline = time.monotonic() + timeout
        while not self._pending:
            # It comes back at a partition's end too, where there is nothing to return yet.
            self._read_ahead(max(deadline - time.monotonic(), 0))
            if not self._pending and time.monotonic() >= deadline:
                return None
        with self._keeper.changed:
            if not self._pending:  # a rebalance took it away at this moment
                return None
            self._taken = self._pending.pop()
            self._keeper.begin_record(self._taken.topic_partition)
        return self._taken

    def read_batch(self, timeout: float = 1.0, at_most: int = _BATCH) -> list[Record]:
        """Return the records that have arrived, but not more than `at_most`; empty if none has arrived.

        The call waits at most `timeout` seconds for the first one. Unlike `poll`, it does not mark records as
        processed, so their offsets are not committed.

        Raises:
            KafkaError: the broker answered with an error, for example UNKNOWN_TOPIC_OR_PARTITION for a
                deleted topic.
            ClientError: librdkafka reports an error of its own.
        """
        try:
            with self._keeper.reading() as messages:
                self._fetch(messages, timeout, at_most)
                return self._take_records(messages, at_most)
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None

    def _read_ahead(self, timeout: float) -> None:
        """Add fetched records to the buffer. Wait at most `timeout` seconds for the first."""
        try:
            with self._keeper.reading() as messages:
                self._fetch(messages, timeout, _BATCH)
                records = self._take_records(messages, _BATCH)
                with self._keeper.changed:
                    self._pending = records[::-1] + self._pending
        except confluent_kafka.KafkaException as error:
            raise translate(error) from None

    def _fetch(self, messages: list[confluent_kafka.Message], timeout: float, at_most: int) -> None:
        """Add received messages to `messages`, until the list has `at_most` of them.

        If the list is empty, wait at most `timeout` seconds for the first message.
        """
        if not messages:
            messages += self._consumer.consume(1, timeout)
        if messages and len(messages) < at_most:
            messages += self._consumer.consume(at_most - len(messages), 0)

    def _take_records(self, messages: list[confluent_kafka.Message], at_most: int) -> list[Record]:
        """Remove up to `at_most` messages from the list, and return their records.

        If the list begins with an error, raise the error. If records come before an error, return these
        records: the error stays in the list, and the next call raises it.
        """
        records: list[Record] = []
        for done, message in enumerate(messages[:at_most]):
            failure = message.error()
            if failure is None:
                records.append(Record.from_message(message))
            elif failure.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._ends[_partition_of(message)] = message.offset() or 0
            elif records:
                del messages[:done]
                return records
            else:
                del messages[: done + 1]
                raise translate(failure, _subject_of(message))
        del messages[:at_most]
        return records

    def read_until(self, ends: Mapping[TopicPartition, int]) -> Iterator[list[Record]]:
        """Yield batches of records until each partition in `ends` is read up to its offset in `ends`.

        The partitions must be assigned. A batch has only records of these partitions, and only below the
        partition's offset in `ends`. A batch is empty if no record has arrived for 0.2 seconds.

        Raises:
            KafkaError, ClientError: the broker answered with an error, or librdkafka reports one.
        """
        left = dict(ends)
        while left:
            batch = self.read_batch(0.2)
            for record in batch:
                if record.offset + 1 >= left.get(record.topic_partition, record.offset + 2):
                    del left[record.topic_partition]
            # Markers of transactions are offsets too, but never come as records.
            for partition, end in self._ends.items():
                if partition in left and end >= left[partition]:
                    del left[partition]
            yield [record for record in batch if record.offset < ends.get(record.topic_partition, 0)]

    def take(self, count: int, timeout: float = 30.0) -> list[Record]:
        """Return exactly `count` records. All of them but the last count as processed.

        Raises:
            ClientError: fewer records have arrived within `timeout` seconds. Those that have arrived are not
                processed: the next call of `take` or `poll` returns them.
            KafkaError: the broker answered with an error.
        """
        self._put_down_taken()
        deadline = time.monotonic() + timeout
        is_late = False
        while True:
            with self._keeper.changed:  # no rebalance takes a record away before `poll` has it
                arrived = len(self._pending)
                if arrived >= count:
                    return [record for _ in range(count) if (record := self.poll(0)) is not None]
            if is_late:
                raise ClientError(f"only {arrived} of {count} records came within {timeout:g} s")
            self._read_ahead(max(deadline - time.monotonic(), 0))
            is_late = time.monotonic() >= deadline

    def commit(self) -> None:
        """Commit the offsets of all records that the caller has taken, and wait for the answer.

        Without a group, the call does nothing.

        Raises:
            KafkaError, ClientError: the commit was rejected, or no broker answers.
        """
        self._put_down_taken()
        try:
            self._keeper.commit()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
                raise translate(error) from None

    def close(self) -> None:
        """Leave the group. If commits are automatic, commit the processed records first."""
        self._keeper.stop()
        self._consumer.close()

    def _put_down_taken(self) -> None:
        """Mark the record that the caller took last as processed, so that the next commit includes it."""
        record, self._taken = self._taken, None
        if record is not None and self._group is not None:
            self._keeper.finish_record(record.topic_partition, record.offset + 1)

    def _explained(
        self, error: confluent_kafka.KafkaException, waited: float, about: str = ""
    ) -> BarnabasError:
        """Return the error to raise for an `error` of librdkafka.

        If `error` means that no broker has answered, the result says why. `waited` is the time limit of the
        request in seconds, for the text. Other texts begin with `about`, the subject of the request.
        """
        if error.args[0].code() in _NO_ANSWER:
            return explain_silence(self._servers, waited)
        return translate(error, about)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        """Drop buffered records of partitions that another member gets."""
        self._pending = [record for record in self._pending if record.topic_partition not in partitions]

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
            self._put_down_taken()
        self.close()


def _partition_of(message: confluent_kafka.Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _subject_of(message: confluent_kafka.Message) -> str:
    """Return the partition that an error is about; empty if the error is about no partition."""
    partition = message.partition()
    return "" if partition is None or partition < 0 else str(_partition_of(message))
