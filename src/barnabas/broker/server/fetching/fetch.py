"""Executes a Fetch request: reads its partitions, and waits for more records if there are too few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, NO_LEADER_EPOCH, BrokerId, Chunk, Offset, TopicKey
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import Watcher
from barnabas.broker.server.fetching.sessions import FetchSession, FetchTarget
from barnabas.broker.storage import ColdRead
from barnabas.broker.storage.open_files import LogFile
from barnabas.kafka.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from barnabas.broker.replication.manager import ReplicaManager


#: which broker to fetch a partition from, given the offset; -1 for this one
PreferredReplica: TypeAlias = Callable[[Partition, Offset], BrokerId]

#: how many targets `Fetch.steps` reads at once
_TARGETS_A_STEP = 64
T = TypeVar("T")

#: how many reads of the disk a fetch waits for at a time
_COLD_READS = 16


class Fetch:
    """A fetch in progress. Call `attempt` at once, and again after new records while it returns None.

    A later attempt reads only partitions with notifications. So its cost does not grow with the number of
    partitions that the client waits for.

    Args:
        replicas: the partitions of this broker.
        wanted: partitions to read, in this order; or the fetch session that has them.
        min_bytes: bytes that the response needs before the maximum wait time is over.
        max_bytes: largest size of the response; the first batch is sent even if it is larger.
        committed: reads up to the last stable offset (read_committed) instead of the high watermark.
        from_followers: allows reads from a follower replica (KIP-392).
        preferred: returns the broker from which to fetch a partition, -1 for this one.
        admits: whether the quota allows the client this number of bytes now. If not, the response is empty,
            and the fetch session does not change.
        refuses: called at each read: whether the client may not read a topic. None if it may read all topics.
        is_kept: whether to watch on after a response without records and errors, because the same request may
            come again (`end`).
    """

    __slots__ = (
        "_admits",
        "_committed",
        "_failed",
        "_from_followers",
        "_has_changed",
        "_is_kept",
        "_left",
        "_max_bytes",
        "_may_wait",
        "_min_bytes",
        "_new_bytes",
        "_preferred",
        "_read_bytes",
        "_refuses",
        "_replicas",
        "_results",
        "_session",
        "_unread",
        "_warmed",
        "cold_reads",
        "is_watching",
        "response",
        "watchers",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        wanted: FetchSession | Iterable[FetchTarget],
        *,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
        from_followers: bool = False,
        preferred: PreferredReplica | None = None,
        admits: Callable[[int], bool] | None = None,
        refuses: Callable[[TopicKey], bool] | None = None,
        is_kept: bool = False,
    ) -> None:
        self._replicas = replicas
        self._from_followers = from_followers
        self._preferred = preferred
        self._admits = admits
        self._refuses = refuses
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_bytes = max_bytes
        self._committed = committed
        self._session = wanted if isinstance(wanted, FetchSession) else None
        targets = wanted.to_read(committed=committed) if isinstance(wanted, FetchSession) else wanted
        #: what the next attempt reads: what it has not read, what had records, and what has had news
        self._unread: dict[FetchTarget, None] = dict.fromkeys(targets)
        #: what was read; None for what has to be read again
        self._results: dict[FetchTarget, PartitionData | None] = {}
        self._is_kept = is_kept
        #: whether it receives notifications
        self.is_watching = False
        self._new_bytes = self._read_bytes = 0
        self._failed = False
        self._may_wait = True
        #: reads of the last attempt that need the disk
        self.cold_reads: list[ColdRead] = []
        #: reads that a thread has brought into the page cache; if they were evicted again, the loop reads
        #: from the disk
        self._warmed: set[tuple[LogFile, int, int]] = set()

    @property
    def unread(self) -> int:
        """Number of partitions that the next attempt reads."""
        return len(self._unread)

    def attempt(self, final: bool, may_wait: bool = True) -> FetchResponse | None:
        """Return the response, or None if there are too few records and this attempt is not `final`.

        Args:
            may_wait: allows reads that wait for the disk. If False, the result is None while there are
                `cold_reads`: read them into memory and try again.
        """
        if self.is_watching and not final and not self.cold_reads and not self._is_worth_reading():
            return None
        self._begin(may_wait)
        unread, self._unread = self._unread, {}
        self._read_all(unread)
        return self._respond_if_enough(final)

    def steps(self) -> Iterator[None]:
        """Do the work of `attempt` in steps of some partitions each. Afterwards `is_answered` has the result.

        It never waits for the disk; see `cold_reads`.
        """
        watches = not self.is_watching and self._session is None
        self._start_watching()  # partitions go on between the steps
        self._begin(may_wait=False)
        unread, self._unread = list(self._unread), {}
        for targets in _steps_of(unread):
            if watches:
                for target in targets:
                    target.watch(self)
            self._read_all(targets)
            yield

    def is_answered(self, final: bool) -> bool:
        """Whether the `steps` found enough for a response. If True, run `last_steps` to make it."""
        if self.cold_reads and self._waits_for_disk():
            return False
        if self._is_enough(final):
            return True
        self._wait_for_more()
        return False

    def last_steps(self) -> Iterator[None]:
        """Make the `response` in steps, and stop the notifications."""
        refusal = self._refusal()
        if refusal is not None:
            self.response = refusal
        else:
            topics: list[FetchableTopicResponse] = []
            for results in _steps_of(list(self._results.items())):
                self._describe(results, topics)
                yield
            self.response = self._response_of(topics)
        if self._session is None and not self._stays:
            for targets in _steps_of([*self._results, *self._unread]):
                for target in targets:
                    target.unwatch()
                yield
            self.is_watching = False
        self.close()

    def has_moved(self) -> bool:
        """Whether records arrived during the steps, so that the steps must run again."""
        return bool(self._new_bytes or self._has_changed) and self._is_worth_reading()

    def is_due(self, final: bool) -> bool | None:
        """Whether the steps must run again now: True, or None for not yet."""
        return final or self._is_worth_reading() or None

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """Read `target` again in the next attempt, because it has new records (see `NewsListener`)."""
        self._unread[target] = None
        if new_bytes:
            self._new_bytes += new_bytes
        else:
            self._has_changed = True
        for watcher in self.watchers:
            watcher.progressed(new_bytes)

    def has_changed(self, target: FetchTarget) -> None:
        """Read `target` again in the next attempt, because its state has changed (see `NewsListener`)."""
        self._unread[target] = None

    def watch(self) -> None:
        """Start to receive notifications."""
        if not self.is_watching:
            self._start_watching()
            if self._session is None:
                for target in (*self._results, *self._unread):
                    target.watch(self)

    def _start_watching(self) -> None:
        if not self.is_watching:
            self.is_watching = True
            #: the operation that waits for this fetch to progress
            self.watchers: dict[Watcher, None] = {}
            if self._session is not None:
                self._session.join(self)

    def close(self, _future: object = None) -> None:
        """Stop the notifications: the fetch has its response, or its client is gone."""
        if self._stays:
            self.watch()
        elif self.is_watching:
            self.is_watching = False
            if self._session is not None:
                self._session.leave(self)
                return
            for target in (*self._results, *self._unread):
                target.unwatch()

    def end(self) -> None:
        """Receive no more notifications, though the fetch was to be kept."""
        self._is_kept = False
        self.close()

    @property
    def _stays(self) -> bool:
        return self._is_kept and not self._read_bytes and not self._failed and not self.cold_reads

    def _begin(self, may_wait: bool) -> None:
        self._may_wait = may_wait
        self.cold_reads = []
        self._has_changed = self._failed = False
        self._new_bytes = self._read_bytes = 0
        self._left = self._max_bytes

    def _read_all(self, targets: Iterable[FetchTarget]) -> None:
        left, size = self._left, self._read_bytes
        results = self._results
        is_incremental = self._session is not None and self._session.epoch > 1
        for target in targets:
            if is_incremental and size and not left:
                break  # the others stay ready for the next request: reading on would cost and send nothing
            try:
                data = self._read(target, min(left, target.max_bytes), size == 0)
            except ColdRead as cold:
                found = self._read_later(target, cold, min(left, target.max_bytes), size == 0)
                if found is None:
                    continue
                data = found
            if data.records:
                chunks: list[Chunk] = data.records  # type: ignore[assignment]
                read = sum(map(len, chunks))
                size += read
                left = max(0, left - read)
            elif data.error_code or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                self._failed = True
            results[target] = data
        self._left, self._read_bytes = left, size

    def _respond_if_enough(self, final: bool) -> FetchResponse | None:
        if self.cold_reads and self._waits_for_disk():
            return None
        if self._is_enough(final):
            response = self._refusal()
            if response is None:
                topics: list[FetchableTopicResponse] = []
                self._describe(self._results.items(), topics)
                response = self._response_of(topics)
            self.close()
            return response
        self._wait_for_more()
        return None

    def _is_enough(self, final: bool) -> bool:
        session = self._session
        is_of_nothing = not (self._results if session is None else session.targets)
        return self._read_bytes >= self._min_bytes or self._failed or final or is_of_nothing

    def _refusal(self) -> FetchResponse | None:
        """Make the empty response for a client whose quota does not allow the records now."""
        if self._admits is None or self._admits(self._read_bytes):
            return None
        session = self._session
        is_known = session is not None and session.epoch > 1
        return FetchResponse(session_id=session.session_id if session and is_known else 0)

    def _wait_for_more(self) -> None:
        if self._read_bytes:
            self._read_records_again()
        self.watch()

    def _read_records_again(self) -> None:
        """Discard the records read, because the log has changed. The next attempt reads them again."""
        results = self._results
        for target, data in results.items():
            if data is not None and data.records:
                results[target] = None
                self._uncount(target, data)
                self._unread[target] = None

    def _uncount(self, target: FetchTarget, data: PartitionData) -> None:
        """Remove unsent bytes from the count of read bytes."""
        if target.partition is not None:
            chunks: list[Chunk] = data.records  # type: ignore[assignment]
            target.partition.traffic.bytes_out -= sum(map(len, chunks))

    def _read_later(
        self, target: FetchTarget, cold: ColdRead, max_bytes: int, min_one: bool
    ) -> PartitionData | None:
        """Add a target to the cold reads.

        Return its records if they were read ahead and are no longer in memory.
        """
        if cold.place in self._warmed:
            self._may_wait = True
            try:
                return self._read(target, max_bytes, min_one)
            finally:
                self._may_wait = False
        if len(self.cold_reads) < _COLD_READS:
            self.cold_reads.append(cold)
        self._results[target] = None
        self._unread[target] = None
        return None

    def _waits_for_disk(self) -> bool:
        """Whether to make the cold reads before the response.

        A response with enough bytes can leave the cold reads to the next one. But the first response waits
        for them. Otherwise partitions in memory would always come before those on disk.
        """
        session = self._session
        is_incremental = session is not None and session.epoch > 1
        if is_incremental and self._warmed and self._read_bytes >= self._min_bytes:
            return False
        self._warmed.update(cold.place for cold in self.cold_reads)
        self._read_records_again()
        self._unread = {target: None for target, data in self._results.items() if data is None} | self._unread
        self.watch()  # partitions go on meanwhile
        return True

    def _is_worth_reading(self) -> bool:
        """Whether an attempt can succeed.

        Enough bytes were committed since the last one, or the leader or the existence of a partition has
        changed.
        """
        if self._committed and self._new_bytes:
            return True  # the end of a transaction lets out more than its own bytes
        return self._has_changed or self._read_bytes + self._new_bytes >= self._min_bytes

    def _read(self, target: FetchTarget, max_bytes: int, min_one: bool) -> PartitionData:
        try:
            if self._refuses is not None and self._refuses(target.topic):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = target.find_partition(self._replicas)
            if self._from_followers:
                partition.check_epoch(target.current_leader_epoch)
            else:
                partition.check_leader(target.current_leader_epoch)
            log = partition.log
            traffic = partition.traffic
            traffic.fetches += 1
            data = PartitionData(
                partition_index=target.index,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                aborted_transactions=[] if self._committed else None,
                records=b"",
            )
            if target.last_fetched_epoch >= 0 and self._diverges(partition, target, data):
                return data
            if self._preferred is not None:
                data.preferred_read_replica = self._preferred(partition, target.offset)
                if data.preferred_read_replica != NO_BROKER:
                    return data
            bound = data.last_stable_offset if self._committed else data.high_watermark
            if target.offset != bound and (max_bytes > 0 or min_one):
                fetched = log.read(target.offset, max_bytes, bound, min_one, self._may_wait)
                data.records = fetched.chunks
                if self._committed and fetched.size:
                    data.aborted_transactions = [
                        AbortedTransaction(producer_id=t.producer_id, first_offset=t.first_offset)
                        for t in log.aborted_transactions(target.offset, fetched.size, self._may_wait)
                    ]
                traffic.bytes_out += fetched.size
            return data
        except KafkaError as error:
            if target.partition is not None:
                target.partition.traffic.failed_fetches += 1
            return PartitionData(
                partition_index=target.index,
                error_code=error.code,
                high_watermark=-1,
                aborted_transactions=[] if self._committed else None,
                records=b"",
            )

    @staticmethod
    def _diverges(partition: Partition, target: FetchTarget, data: PartitionData) -> bool:
        """Add the offset at which a fetcher must truncate its log, if that log diverges (KIP-595)."""
        epoch, end_offset = partition.end_offset_for_epoch(target.last_fetched_epoch)
        if epoch == NO_LEADER_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == target.last_fetched_epoch and end_offset >= target.offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    def _describe(
        self,
        results: Iterable[tuple[FetchTarget, PartitionData | None]],
        topics: list[FetchableTopicResponse],
    ) -> None:
        """Add some of the results to the response's `topics`."""
        session = self._session
        current: TopicKey | None = (topics[-1].topic or topics[-1].topic_id) if topics else None
        for target, data in results:
            if data is None:
                continue
            if session is not None:
                is_news = target.is_news(data)
                if data.records:
                    session.was_served(target)
                elif self._has_nothing_left(target, data):
                    session.was_told(target)
                if not is_news and session.epoch > 1:
                    continue
            if target.topic != current:
                current = target.topic
                topics.append(
                    FetchableTopicResponse(topic=current)
                    if isinstance(current, str)
                    else FetchableTopicResponse(topic_id=current)
                )
            topics[-1].partitions.append(data)

    def _response_of(self, topics: list[FetchableTopicResponse]) -> FetchResponse:
        return FetchResponse(session_id=self._session.session_id if self._session else 0, responses=topics)

    def _has_nothing_left(self, target: FetchTarget, data: PartitionData) -> bool:
        """Whether a partition has no more records to send, and no notification since the last read."""
        bound = data.last_stable_offset if self._committed else data.high_watermark
        return (
            target.offset == bound
            and not data.error_code
            and data.diverging_epoch.epoch < 0
            and target not in self._unread
        )


def _steps_of(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Divide items into groups of one step each."""
    for start in range(0, len(items), _TARGETS_A_STEP):
        yield items[start : start + _TARGETS_A_STEP]
