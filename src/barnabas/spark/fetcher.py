"""Fetches records from the leaders of a task's partitions, with one request at a time to each leader.

The caller sends the next request before it decodes the previous response. So the broker and the network work
meanwhile. The fetcher retries after transient errors (a leader moves, a broker restarts), without a time
limit. The caller limits the time.
"""

from __future__ import annotations

import selectors
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, ErrorCode
from barnabas.base.types import ZERO_TOPIC_ID, BrokerId, TopicId, TopicPartition
from barnabas.client.connection_pool import PendingResponse
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.leaders import by_partition
from barnabas.client.offset_calls import offsets_request
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.spark.fetch_settings import FetchSettings
from barnabas.spark.open_ranges import OpenRanges
from barnabas.spark.option_values import EARLIEST, LATEST
from barnabas.spark.topics import Topic, TopicLookup, id_from_text

#: The last version of Fetch with topic names. Later versions have topic ids, which some brokers lack.
_LAST_BY_NAME = 12

#: A partition counts as deleted after this many lookups in a row without it, and after this many seconds. A
#: broker's metadata may be stale, and the records of a deleted partition are not read.
_ASKED_FOR_GONE = 5
_MISSED_FOR_GONE_S = 3.0

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)


class Fetched(NamedTuple):
    """A leader's response for one partition, without an error."""

    tp: TopicPartition
    data: PartitionData


class _Asked(NamedTuple):
    """A request that a leader has not answered yet."""

    response: PendingResponse
    partitions: list[TopicPartition]


class RangeFetcher:
    """Fetches the unread records of `ranges`, and closes ranges that cannot be read further."""

    def __init__(
        self,
        lookup: TopicLookup,
        settings: FetchSettings,
        ranges: OpenRanges,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Create a fetcher for `ranges`, which it advances and closes.

        `topic_ids` has the ids of the topics, by name, when the ranges were planned. The first lookup adds
        missing ids.
        """
        self._lookup = lookup
        self._brokers = lookup.brokers
        self._settings = settings
        self._ranges = ranges
        self._topic_ids: dict[str, TopicId] = {
            name: id_from_text(text) for name, text in (topic_ids or {}).items()
        }
        self._leaders: dict[TopicPartition, BrokerId] = {}
        self._asked: dict[BrokerId, _Asked] = {}
        self._missed: Counter[TopicPartition] = Counter()
        self._missed_since: dict[TopicPartition, float] = {}
        self._is_stale = True  # whether leaders are to be looked up, though not before
        self._not_before = 0.0
        #: the last problem, for the message of a timeout
        self.last_problem = ""

    def request(self) -> None:
        """Send a request for the open ranges to each leader that has no pending request.

        Look up the leaders first if they may have changed.

        Raises:
            AuthenticationError: a broker rejects the login.
            DataLossError: a partition does not exist any more, and failOnDataLoss is true.
            BarnabasError: a partition has a permanent error.
        """
        if self._is_stale and time.monotonic() >= self._not_before:
            self._locate()
        asked = {tp for each in self._asked.values() for tp in each.partitions}
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for tp in self._ranges:
            leader = self._leaders.get(tp)
            if leader is not None and leader not in self._asked and tp not in asked:
                by_leader.setdefault(leader, []).append(tp)
        for leader, partitions in by_leader.items():
            by_name = ZERO_TOPIC_ID in (self._topic_ids[tp.topic] for tp in partitions)
            max_version = _LAST_BY_NAME if by_name else None
            try:
                response = self._brokers.send(leader, self._fetch(partitions), max_version=max_version)
                self._asked[leader] = _Asked(response, partitions)
            except ClientError as error:
                self._on_failure(leader, error)

    def receive(self) -> Iterator[Fetched]:
        """Wait for the response of one leader, and yield the partitions in it that have no error.

        If no leader responds within the request timeout, or the response is an error, yield nothing: the next
        `request` retries. Also yield nothing if no request is pending. In this case, first sleep until
        `request` may look up the leaders again.

        Raises:
            AuthenticationError: a broker rejects the login.
            DataLossError: the next records of a partition are lost, and failOnDataLoss is true.
            BarnabasError: a partition has a permanent error.
        """
        leader = self._wait()
        if leader is None:
            return
        try:
            give_up = time.monotonic() + self._settings.timeout_s
            answer = self._asked.pop(leader).response.receive(give_up)
        except ClientError as error:
            self._on_failure(leader, error)
            return
        if answer.error_code:
            self._on_failure(leader, error_code(answer.error_code).doc)
            return
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        for topic in answer.responses:
            for data in topic.partitions:
                tp = TopicPartition(topic.topic or names[topic.topic_id], data.partition_index)
                if tp not in self._ranges:
                    continue  # gone meanwhile
                if data.error_code:
                    self._on_error(tp, error_code(data.error_code))
                else:
                    yield Fetched(tp, data)

    def check_end(self, tp: TopicPartition, data: PartitionData) -> None:
        """Stop reading `tp` if its log ends before the end of its range: the missing records are lost.

        Call this for a response without needed records. `data` is the partition's part of the response. If
        the latest offset in `data` is not above the next offset to read, ask the leader for its latest offset
        again. A new leader may not know the end of its log yet. This request blocks. If the leader does not
        answer, nothing changes. Raises DataLossError if records are lost, and failOnDataLoss is true.
        """
        available = data.last_stable_offset if self._settings.read_committed else data.high_watermark
        if self._ranges.position(tp) >= available:
            latest = self._ask(tp, LATEST)
            if latest is not None and latest < self._ranges.end(tp):
                self._ranges.end_early(tp)

    def close(self) -> None:
        """Drop the pending requests."""
        for asked in self._asked.values():
            asked.response.abandon()
        self._asked.clear()

    def _fetch(self, partitions: list[TopicPartition]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for tp in partitions:
            topic = topics.setdefault(
                tp.topic, FetchTopic(topic=tp.topic, topic_id=self._topic_ids[tp.topic], partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition=tp.partition,
                    fetch_offset=self._ranges.position(tp),
                    partition_max_bytes=self._settings.partition_max_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.max_bytes,
            isolation_level=int(self._settings.read_committed),
            topics=list(topics.values()),
        )

    def _wait(self) -> BrokerId | None:
        """Wait for a leader whose response has begun, and return it; None after the request timeout.

        With a single pending request, return its leader at once. Without any, sleep until `request` may look
        up the leaders again, and return None.
        """
        if not self._asked:
            time.sleep(max(0.0, self._not_before - time.monotonic()))
            return None
        if len(self._asked) == 1:
            return next(iter(self._asked))
        with selectors.DefaultSelector() as selector:
            for leader, asked in self._asked.items():
                selector.register(asked.response, selectors.EVENT_READ, leader)
            ready = selector.select(self._settings.timeout_s)
        for key, _ in ready:
            first: BrokerId = key.data
            return first
        for leader in list(self._asked):
            self._on_failure(leader, f"broker {leader} does not answer")
        return None

    def _locate(self) -> None:
        """Look up the leaders of the open ranges. If no broker answers, the next `request` tries again.

        Close the ranges of partitions that do not exist any more.

        Raises:
            AuthenticationError: a broker rejects the login.
            DataLossError: a range was closed, and failOnDataLoss is true.
            BarnabasError: a topic has a permanent error.
        """
        self._not_before = time.monotonic() + self._settings.retry_s
        try:
            topics = self._lookup.topics({tp.topic for tp in self._ranges})
        except AuthenticationError:
            raise
        except ClientError as error:
            self._leaders = {}
            self.last_problem = str(error)
            return
        self._is_stale = False
        self._leaders = {}
        for tp in self._ranges:
            self._note_leader(tp, topics[tp.topic])

    def _note_leader(self, tp: TopicPartition, topic: Topic) -> None:
        if topic.error is not ErrorCode.NONE and topic.error not in _GONE and not topic.error.retriable:
            raise BarnabasError(f"cannot read {tp}: {topic.error.doc}")
        if topic.error in _GONE or (topic.error is ErrorCode.NONE and tp.partition not in topic.leaders):
            self._missed[tp] += 1
            missed_s = time.monotonic() - self._missed_since.setdefault(tp, time.monotonic())
            if self._missed[tp] >= _ASKED_FOR_GONE and missed_s >= _MISSED_FOR_GONE_S:
                self._ranges.close_gone(tp)
        elif self._is_another(tp.topic, topic.topic_id):
            self._ranges.close_gone(tp)
        else:
            self._missed[tp] = 0
            self._missed_since.pop(tp, None)
            leader = topic.leaders.get(tp.partition, -1)
            if leader >= 0:
                self._leaders[tp] = leader
        if tp in self._ranges and tp not in self._leaders:
            self._is_stale = True
            self.last_problem = f"{tp} has no leader"

    def _is_another(self, name: str, topic_id: TopicId) -> bool:
        """Whether the topic `name` was deleted and created again, which changed its id to `topic_id`.

        If the topic has no stored id, store `topic_id` and return False. If `topic_id` is zero, also return
        False, because some brokers send no ids.
        """
        known = self._topic_ids.get(name, ZERO_TOPIC_ID)
        if known == ZERO_TOPIC_ID:
            self._topic_ids[name] = topic_id
            return False
        return topic_id not in (known, ZERO_TOPIC_ID)

    def _on_failure(self, leader: BrokerId, problem: object) -> None:
        """Forget a leader whose request failed, so that leaders are looked up again.

        Raises AuthenticationError if `problem` is one.
        """
        if (asked := self._asked.pop(leader, None)) is not None:
            asked.response.abandon()
        if isinstance(problem, AuthenticationError):
            raise problem
        self._leaders = {tp: node for tp, node in self._leaders.items() if node != leader}
        self._is_stale = True
        self.last_problem = str(problem)

    def _on_error(self, tp: TopicPartition, error: ErrorCode) -> None:
        """Handle a leader's error for one partition: continue at the log start, or look up the leader again.

        Raises BarnabasError if the error is permanent.
        """
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            earliest = self._ask(tp, EARLIEST)
            if earliest is not None:
                self._ranges.go_on_at(tp, earliest)
        elif error.retriable or error in _GONE:
            self._leaders.pop(tp, None)
            self._is_stale = True
            self.last_problem = f"{tp}: {error.doc}"
        else:
            raise BarnabasError(f"cannot read {tp}: {error.doc}")

    def _ask(self, tp: TopicPartition, which_end: int) -> int | None:
        """Return the earliest or latest offset of the log; None if the leader does not answer now.

        `which_end` is `EARLIEST` or `LATEST`. Also return None if the leader is not known, or while a fetch
        from it is pending.
        """
        leader = self._leaders.get(tp)
        if leader is None or leader in self._asked:
            return None
        request = offsets_request({tp: which_end}, committed=self._settings.read_committed)
        try:
            ((_, found),) = by_partition(self._brokers.ask(leader, request))
        except ClientError as failure:
            self._on_failure(leader, failure)
            return None
        if found.error_code:
            self._on_error(tp, error_code(found.error_code))
            return None
        offset: int = found.offset
        return offset
