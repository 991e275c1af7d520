"""Executes a Fetch request: reads partitions, and waits while there are fewer bytes than `min_bytes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, NO_LEADER_EPOCH, BrokerId, Chunk, Offset, TopicKey, TopicPartition
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.purgatory import Watcher
from barnabas.broker.server.fetching.sessions import FetchSession, FetchTarget
from barnabas.broker.server.responses.leaders import Leaders
from barnabas.broker.storage import ColdRead
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from barnabas.broker.replication.manager import ReplicaManager


#: returns the broker from which a client should fetch a partition at an offset; -1 for this broker
PreferredReplica: TypeAlias = Callable[[Partition, Offset], BrokerId]

#: number of targets that `Fetch.steps` reads in one step
_TARGETS_A_STEP = 64
T = TypeVar("T")

#: largest number of cold reads that a fetch waits for at a time
_COLD_READS = 16


class Fetch:
    """A Fetch request in progress. Call `attempt`. While it returns None, call it again after new records.

    A later attempt reads only the partitions that have changed. So its cost does not grow with the number of
    partitions in the request.

    Args:
        replicas: finds the partitions of this broker.
        wanted: partitions to read, in this order; or the fetch session that has them.
        min_bytes: bytes that the response needs before the maximum wait time is over.
        max_bytes: largest size of the response; the first batch is sent even if it is larger.
        committed: reads up to the last stable offset (read_committed) instead of the high watermark.
        from_followers: allows reads from a follower replica (KIP-392).
        preferred: called with a partition and the client's fetch offset; returns the id of the broker from
            which the client should fetch, -1 for this broker. None: always this broker.
        admits: called with the number of bytes in the response; returns whether the client's quota allows
            them now. If it returns False, the response is empty, and the fetch session does not change. None:
            there is no quota.
        refuses: called with the name or id of a topic at each read; returns whether the client may not read
            the topic. None: the client may read all topics.
        is_in_doubt: called with a partition; returns whether its leader may have been replaced. If it returns
            True, the response to an offset after the log's end is NOT_LEADER_OR_FOLLOWER: the log of another
            leader may reach further, and a client resets its position after OFFSET_OUT_OF_RANGE. None: always
            False.
        view: cluster image with the leaders, which the response then names for partitions that have moved
            (KIP-951). None: the response names no leaders.
        listener: listener of the client's connection, which selects the addresses of the leaders.
        is_kept: whether the client may send the same request again. If true, the fetch keeps watching its
            partitions after a response without records and errors, until `end` is called.
    """

    __slots__ = (
        "_admits",
        "_committed",
        "_failed",
        "_from_followers",
        "_has_changed",
        "_is_in_doubt",
        "_is_kept",
        "_leaders",
        "_left",
        "_listener",
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
        "_view",
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
        is_in_doubt: Callable[[TopicPartition], bool] | None = None,
        view: BrokerView | None = None,
        listener: str = "",
        is_kept: bool = False,
    ) -> None:
        self._replicas = replicas
        self._from_followers = from_followers
        self._preferred = preferred
        self._admits = admits
        self._refuses = refuses
        self._is_in_doubt = is_in_doubt
        self._view = view
        self._listener = listener
        #: the leaders that the response names, after the first error
        self._leaders: Leaders | None = None
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_bytes = max_bytes
        self._committed = committed
        self._session = wanted if isinstance(wanted, FetchSession) else None
        targets = wanted.to_read(committed=committed) if isinstance(wanted, FetchSession) else wanted
        #: targets that the next attempt reads
        self._unread: dict[FetchTarget, None] = dict.fromkeys(targets)
        #: results of the reads; None for a target to be read again
        self._results: dict[FetchTarget, PartitionData | None] = {}
        self._is_kept = is_kept
        #: whether the fetch receives notifications from its partitions
        self.is_watching = False
        self._new_bytes = self._read_bytes = 0
        self._failed = False
        self._may_wait = True
        #: reads of the last attempt that must wait for the disk
        self.cold_reads: list[ColdRead] = []
        #: reads that a thread has already brought into the page cache. If the system evicted them again, the
        #: event loop reads them from the disk
        self._warmed: set[tuple[LogFile, int, int]] = set()

    @property
    def unread(self) -> int:
        """Number of partitions that the next attempt reads."""
        return len(self._unread)

    def attempt(self, final: bool, may_wait: bool = True) -> FetchResponse | None:
        """Read the partitions that have changed. Return the response, or None if there are too few records.

        After None, the fetch watches its partitions.

        Args:
            final: return a response even if there are too few records.
            may_wait: allows reads that wait for the disk. If False, records that are not in memory are left
                out. If `cold_reads` is then not empty, the caller must read these bytes into memory, and call
                `attempt` again.
        """
        if self.is_watching and not final and not self.cold_reads and not self._is_worth_reading():
            return None
        self._begin(may_wait)
        unread, self._unread = self._unread, {}
        self._read_all(unread)
        return self._respond_if_enough(final)

    def resume(self, read: Iterable[FetchTarget], unread: Iterable[FetchTarget]) -> None:
        """Take over the partitions of another fetch, which has found no records yet.

        Args:
            read: the partitions that the other fetch has read, in the order of the response.
            unread: the partitions that the next attempt must read. They can also be in `read`.
        """
        self._unread = dict.fromkeys(unread)
        self._results = {t: None if t in self._unread else self._read(t, 0, False) for t in read}

    def steps(self) -> Iterator[None]:
        """Read the partitions that have changed, and yield after every 64 of them.

        The caller must run all steps, and then call `is_answered`.

        The reads never wait for the disk. Reads that would have to wait are in `cold_reads` afterwards.
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
        """Whether `steps` has read enough for a response. If True, run `last_steps` to build the response.

        `final` says whether the wait time is over. If it is over, any number of records is enough.

        If False, the fetch watches its partitions, and `steps` must run again later. Before this, the caller
        must read `cold_reads` into memory, or wait for new records if `cold_reads` is empty.
        """
        if self.cold_reads and self._waits_for_disk():
            return False
        if self._is_enough(final):
            return True
        self._wait_for_more()
        return False

    def last_steps(self) -> Iterator[None]:
        """Build `response`, and yield between the steps. At the end, close the fetch (`close`)."""
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

    def must_run_again(self) -> bool:
        """Whether partitions changed while `steps` ran, so that `steps` must run again now."""
        return bool(self._new_bytes or self._has_changed) and self._is_worth_reading()

    def is_ready(self, final: bool) -> bool | None:
        """Return True if `steps` must run again now, and None if not yet (for a `DelayedOperation`).

        If `final` is true, the wait time is over: then always return True.
        """
        return final or self._is_worth_reading() or None

    def on_progress(self, target: FetchTarget, new_bytes: int) -> None:
        """Mark `target` for the next attempt, and notify the operation that waits for this fetch.

        `new_bytes` is 0 if the partition has changed but has no new records (`TargetListener`).
        """
        self._unread[target] = None
        if new_bytes:
            self._new_bytes += new_bytes
        else:
            self._has_changed = True
        for watcher in self.watchers:
            watcher.progressed(new_bytes)

    def on_change(self, target: FetchTarget) -> None:
        """Mark `target` for the next attempt, without a notification (`TargetListener`)."""
        self._unread[target] = None

    def watch(self) -> None:
        """Start to receive notifications from the partitions. A second call does nothing."""
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
        """Stop watching the partitions, because the fetch has its response or its client is gone.

        A kept fetch (`is_kept`) continues to watch after a response without records and errors.
        """
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
        """Stop watching the partitions of a kept fetch."""
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
        """Return an empty response if the client's quota does not allow the records now.

        Return None if the quota allows them.
        """
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
        """Discard all records that were read, because a log can change before the response.

        The next attempt reads these partitions again.
        """
        results = self._results
        for target, data in results.items():
            if data is not None and data.records:
                results[target] = None
                self._uncount(target, data)
                self._unread[target] = None

    def _uncount(self, target: FetchTarget, data: PartitionData) -> None:
        """Subtract the size of the records in `data`, which are not sent, from the partition's sent bytes."""
        if target.partition is not None:
            chunks: list[Chunk] = data.records  # type: ignore[assignment]
            target.partition.traffic.bytes_out -= sum(map(len, chunks))

    def _read_later(
        self, target: FetchTarget, cold: ColdRead, max_bytes: int, min_one: bool
    ) -> PartitionData | None:
        """Add `cold` to `cold_reads` if there are fewer than `_COLD_READS`, and return None.

        The next attempt reads `target` again.

        If a thread has already read these records into memory, but the system has evicted them, do not wait
        for a thread again. Read the records from the disk at once, and return the partition's data. The event
        loop then waits for the disk.

        Args:
            target: the partition to read.
            cold: the exception that says which part of a file is not in memory.
            max_bytes: largest number of bytes to read.
            min_one: whether to read the first batch even if it is larger.
        """
        if cold.extent in self._warmed:
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
        """Whether the response must wait until a thread has read the `cold_reads` from the disk.

        If the response must wait, discard the records that were read. The next attempt reads them again,
        together with the cold reads.

        Each fetch waits for its first cold reads. Without this wait, clients would always get partitions in
        memory before partitions on disk. A fetch of a session that has waited once, and has read at least
        `min_bytes`, does not wait for further cold reads. The client's next fetch makes these reads.
        """
        session = self._session
        is_incremental = session is not None and session.epoch > 1
        if is_incremental and self._warmed and self._read_bytes >= self._min_bytes:
            return False
        self._warmed.update(cold.extent for cold in self.cold_reads)
        self._read_records_again()
        self._unread = {target: None for target, data in self._results.items() if data is None} | self._unread
        self.watch()  # partitions go on meanwhile
        return True

    def _is_worth_reading(self) -> bool:
        """Whether a new attempt can now produce a response.

        The result is True in each of these cases:

        - A partition has changed without new records, for example because it has another leader.
        - The last attempt has read at least `min_bytes`, together with the bytes committed since then.
        - The fetch uses read_committed, and any bytes were committed since the last attempt. A transaction
          marker has few bytes, but makes all records of its transaction readable.
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
            code = self._code_of(error, target)
            data = PartitionData(
                partition_index=target.index,
                error_code=code,
                high_watermark=-1,
                aborted_transactions=[] if self._committed else None,
                records=b"",
            )
            if self._view is not None:
                self._leaders = self._leaders or Leaders(self._view, self._listener)
                data.current_leader = self._leaders.after(code, target.topic, target.index)
            return data

    def _code_of(self, error: KafkaError, target: FetchTarget) -> ErrorCode:
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and self._is_in_doubt is not None:
            partition = target.find_partition(self._replicas)
            if target.offset > partition.log.log_end_offset and self._is_in_doubt(partition.topic_partition):
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error.code

    @staticmethod
    def _diverges(partition: Partition, target: FetchTarget, data: PartitionData) -> bool:
        """Whether the log of the broker that fetches diverges from this broker's log (KIP-595).

        If the logs diverge, set `data.diverging_epoch` to the epoch and the offset for the other broker's
        truncation.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, this broker knows no leader epoch of the log, or the other
                broker's last leader epoch is later than all epochs that this broker knows.
        """
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
        """Add `results` to the topics of the response, and report to the session what the response contains.

        An incremental response leaves out partitions that have nothing new for the client.
        """
        session = self._session
        current: TopicKey | None = (topics[-1].topic or topics[-1].topic_id) if topics else None
        for target, data in results:
            if data is None:
                continue
            if session is not None:
                is_news = target.has_changed(data)
                if data.records:
                    session.move_to_end(target)
                elif self._has_nothing_left(target, data):
                    session.remove_ready(target)
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
        session_id = self._session.session_id if self._session else 0
        response = FetchResponse(session_id=session_id, responses=topics)
        if self._leaders is not None:
            response.node_endpoints = self._leaders.endpoints
        return response

    def _has_nothing_left(self, target: FetchTarget, data: PartitionData) -> bool:
        """Whether a partition has no more records for the client, after its read with the result `data`.

        The result is false after an error or a divergence, or if the partition has changed since the read.
        """
        bound = data.last_stable_offset if self._committed else data.high_watermark
        return (
            target.offset == bound
            and not data.error_code
            and data.diverging_epoch.epoch < 0
            and target not in self._unread
        )


def _steps_of(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield `items` in groups of at most `_TARGETS_A_STEP`."""
    for start in range(0, len(items), _TARGETS_A_STEP):
        yield items[start : start + _TARGETS_A_STEP]
