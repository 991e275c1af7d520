"""One share partition on the leader of its partition: record states, locks, and waiting fetches.

`SharePartition` reads the stored state from the share coordinator, and stores each change there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import UNKNOWN_OFFSET, Chunk, Offset
from barnabas.broker.config import GroupConfig
from barnabas.broker.config.share_start import EARLIEST, LATEST, start_timestamp
from barnabas.broker.coordinator.backoff import backoff_ms
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey, SharePersister, ShareState
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.metadata.features import DEAD_LETTERS_LEVEL, SHARE_VERSION
from barnabas.broker.replication.partition import Partition
from barnabas.broker.sharing.counts import ShareCounts
from barnabas.broker.sharing.dead_lettering import CheckLeader, DeadLettering, LetterWriter
from barnabas.broker.sharing.in_flight import Acknowledgement, Acquired, InFlight, Limits, Range, ReadBatch
from barnabas.broker.sharing.reading import LogBatches
from barnabas.broker.storage import ColdRead, OffsetAtTimestamp
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.view import BrokerView

log = logger_of(__name__)

READ_COMMITTED = "read_committed"

#: locks end at most this much too late, in seconds, so that one timer call ends many of them
_LOCK_GRAIN = 0.05
#: the most bytes read at a time for records in flight that are available again: their size is unknown
_REDELIVERED_BYTES = 64 * 1024

#: the most reads in one turn of the event loop while they find only gaps
_GAPS_AT_ONCE = 8

#: the most waiting fetches that try in one turn of the event loop, while they wait for more bytes
_FETCHES_A_TURN = 16

#: for how long a stored state counts as unchanged after this leader has read or written it, in seconds
_CONFIRMED_SECONDS = 1.0

#: errors of the persister after which a later attempt can succeed
_RETRIABLE = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
}
#: errors of a read without retries after which a later attempt can succeed. A share coordinator may not know
#: a new topic yet. If a topic is deleted, the leadership of its partitions ends
_RETRIABLE_READS = _RETRIABLE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
#: the longest pause between two reads, in milliseconds: a failover takes about a second
_MAX_READ_PAUSE_MS = 1000
#: another leader has the stored state, or it was initialized again
_FENCED = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH}


class FetchLimits(NamedTuple):
    """The limits of a ShareFetch request for one share partition.

    Attributes:
        max_bytes: the largest size of the record batches in the response.
        min_one: whether to return the first batch even if it is larger than `max_bytes`.
        max_records: the number of acquired records after which no further batch is acquired.
        batch_size: the number of records after which a new entry of acquired records begins at the next
            batch; 0 for no limit.
        is_strict: whether `max_records` also divides batches (KIP-1206). `batch_size` is then ignored.
    """

    max_bytes: int
    min_one: bool
    max_records: int
    batch_size: int
    is_strict: bool


class AcquiredRecords(NamedTuple):
    """Records that a fetch has acquired for a member.

    Attributes:
        records: the bytes of the batches that contain the records. Whole batches are returned, so they can
            also contain records that the member has not acquired.
        acquired: the offsets that the member has acquired, in order.
    """

    records: Chunk
    acquired: list[Acquired]


class WaitingFetch(Protocol):
    """A ShareFetch request that waits for records of share partitions.

    Attributes:
        waits_for_bytes: whether the fetch waits until more bytes are available (`min_bytes`). Until then,
            other fetches can acquire the available records.
    """

    waits_for_bytes: bool

    def try_now(self, source: SharePartition) -> bool:
        """Acquire records from `source`. Return whether the fetch has a result now: records, or an error."""

    def failed(self, source: SharePartition, error: KafkaError) -> None:
        """Add `error` to the results of the fetch, because `source` has ended."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts of a broker that all its share partitions use."""

    view: BrokerView
    persister: SharePersister
    cold_reads: ColdReads
    #: finds the first record at or after a time, however long it takes
    find_offset: Callable[[Partition, int], Awaitable[OffsetAtTimestamp | None]]
    #: returns the writer of a share partition's dead letters. Its third argument says whether a former leader
    #: may have written dead letters for records that still wait for them.
    letter_writer: Callable[[SharePartitionKey, Partition, bool, CheckLeader], LetterWriter]
    counts: ShareCounts
    #: limits how many states are read at the same time
    loading: asyncio.Semaphore


class SharePartition:
    """A partition as one share group consumes it, for one leader epoch. The event loop owns this object.

    The constructor begins to load the stored state, and fetches wait until it is loaded. After a retriable
    error, the share partition loads the state again after a back-off, while a fetch waits. If no fetch waits,
    or after any other error, the share partition ends. Acknowledgements are answered when they are stored.
    One write is in progress at a time. The next write contains all changes that are made in the meantime.

    An error that is no `KafkaError` is a defect of the broker. It also ends the share partition. The next
    fetch makes a new one from the stored state.

    Args:
        key: group, topic id and partition index.
        partition: the partition, led by this broker.
        dependencies: the objects that all share partitions use.
        on_end: called once with this object, when the share partition ends.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        dependencies: Dependencies,
        on_end: Callable[[SharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        #: the fetches that wait for records, in the order of their arrival
        self.waiting_fetches: dict[WaitingFetch, None] = {}
        self._dependencies = dependencies
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._in_flight: InFlight | None = None
        self._state_epoch = 0
        self._initialized_at: Offset = -1
        self._stored_start: Offset = UNKNOWN_OFFSET
        self._has_ended = False
        self._is_waking = False
        #: the number of records whose locks have expired
        self.expired_locks = 0
        #: the result of `available_bytes`: its first offset, its end offset, its `max_bytes`, and the size
        self._counted_bytes = UNKNOWN_OFFSET, UNKNOWN_OFFSET, 0, 0
        #: whether the share partition ends when all changes are stored
        self._is_leaving = False
        #: reads records from the disk into memory; fetches wait until it ends
        self._reading: asyncio.Task[None] | None = None
        #: the last range read into memory; if it was evicted since, the event loop itself reads the disk
        self._warmed: tuple[LogFile, int, int] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        #: compares the stored state with this object, and when the two were known to agree
        self._checking: asyncio.Task[None] | None = None
        self._confirmed = 0.0
        self._letters: DeadLettering | None = None
        #: the futures of the acknowledgements that no write contains yet
        self._unwritten: list[asyncio.Future[None]] = []
        #: the futures of the acknowledgements in the last write, which may still be in progress
        self._in_write: list[asyncio.Future[None]] = []
        partition.watchers[self] = None
        self._began = self._loop.time()
        self._loading = start_task(self._run(self._load()), f"state of {self}")

    def __str__(self) -> str:
        return f"{self.partition.topic_partition} of share group {self.key.group}"

    @property
    def config(self) -> GroupConfig:
        return self._dependencies.view.group_config(self.key.group)

    @property
    def lock_seconds(self) -> float:
        """The duration of a member's lock on an acquired record, in seconds."""
        return self.config.share_record_lock_duration_ms / 1000

    @property
    def in_flight(self) -> InFlight | None:
        """The records in flight, which the caller must not change; None until the stored state is loaded."""
        return self._in_flight

    def lock_ms_left(self, locked: Range) -> int:
        """Return the time until the lock of acquired records ends, in milliseconds; 0 if it has ended."""
        return max(0, round((locked.until - self._loop.time()) * 1000))

    @property
    def _limits(self) -> Limits:
        config, features = self.config, self._dependencies.view.image.features
        return Limits(
            config.share_partition_max_record_locks,
            config.share_delivery_count_limit,
            bool(config.errors_deadletterqueue_topic_name)
            and features.level(SHARE_VERSION) >= DEAD_LETTERS_LEVEL,
        )

    @property
    def is_ended(self) -> bool:
        """Whether `end` was called, the leader epoch has ended, or the partition is unavailable."""
        partition = self.partition
        return (
            self._has_ended
            or partition.unavailable is not None
            or not partition.is_leader
            or partition.leader_epoch != self.leader_epoch
        )

    # --- fetches ---

    @property
    def can_acquire(self) -> bool:
        """Whether `acquire` may find records now.

        The state must be loaded, and no disk read may be in progress. There must be offsets that the group
        may read. A record in flight must be available, or the limit of record locks must not be reached.
        """
        flight = self._in_flight
        return (
            flight is not None
            and self._reading is None
            and flight.next_offset < self._bound(self.config)
            and not flight.is_full
        )

    def available_bytes(self, max_bytes: int) -> int:
        """Return the size of the batches from the first available record on, counted up to `max_bytes` bytes.

        Return 0 if `can_acquire` is false.

        As in Kafka, the result is an estimate: other members may have acquired some of the records. Return
        `max_bytes` if the records are in an older segment, or on disk only.
        """
        if not self.can_acquire:
            return 0
        assert self._in_flight is not None
        partition_log, at = self.partition.log, self._in_flight.next_offset
        if at < partition_log.files.segments.active.base_offset:
            return max_bytes
        bound = self._bound(self.config)
        first, end, counted_to, size = self._counted_bytes
        if (first, end) == (at, bound) and (size < counted_to or max_bytes <= counted_to):
            return size
        try:
            size = partition_log.read(
                at, max_bytes + partition_log.config.max_message_bytes, bound, True, False
            ).size
        except ColdRead:
            return max_bytes
        self._counted_bytes = at, bound, max_bytes, size
        return size

    def acquire(self, member: str, limits: FetchLimits) -> AcquiredRecords | None:
        """Acquire records for a member, at once. Return None in these cases:

        - No records are available now.
        - The next records are on disk only. This call begins to read them into memory. When they are in
          memory, the first waiting fetch tries again.
        - The first parts of the log that this call has read have only gaps (offsets without records for the
          group). The first waiting fetch continues after these gaps.

        Raises:
            KafkaError: the log cannot be read.
        """
        for _ in range(_GAPS_AT_ONCE):
            if not self.can_acquire:
                return None
            try:
                records = self._acquire(member, limits, may_wait=False)
            except ColdRead as cold:
                if cold.extent != self._warmed:
                    self._reading = start_task(self._read_ahead(cold), f"cold read of {self}")
                    return None
                records = self._acquire(member, limits, may_wait=True)
            if records is not None:
                return records
        self.wake()  # there was nothing but gaps so far
        return None

    def _acquire(self, member: str, limits: FetchLimits, *, may_wait: bool) -> AcquiredRecords | None:
        try:
            return self._read_and_acquire(member, limits, may_wait)
        except OSError as error:
            raise self.partition.log.failed(error) from error

    def _read_and_acquire(self, member: str, limits: FetchLimits, may_wait: bool) -> AcquiredRecords | None:
        flight, partition_log, config = self._in_flight, self.partition.log, self.config
        assert flight is not None
        flight.limits = self._limits
        flight.start_moved(partition_log.log_start_offset)
        at, bound = flight.next_offset, self._bound(config)
        if at >= bound:
            return None
        max_bytes = limits.max_bytes
        if flight.available_end is not None:
            max_bytes = min(max_bytes, _REDELIVERED_BYTES)
        traffic = self.partition.traffic
        traffic.fetches += 1
        fetched = partition_log.read(at, max_bytes, bound, limits.min_one, may_wait)
        if not fetched.size:
            if limits.min_one:  # compaction has left nothing
                flight.acquire(member, at, [ReadBatch(at, bound - 1, False)], until=0.0, max_records=1)
                self._store_gaps()
            return None
        is_committed = config.share_isolation_level == READ_COMMITTED
        aborted = partition_log.aborted_transactions(at, fetched.size, may_wait) if is_committed else ()
        read = LogBatches(fetched.chunks[0], aborted)
        acquired = flight.acquire(
            member,
            at,
            read,
            until=self._loop.time() + self.lock_seconds,
            max_records=limits.max_records,
            batch_size=limits.batch_size,
            is_strict=limits.is_strict,
        )
        if not acquired:
            self._store_gaps()
            return None
        try:
            records = read.part(acquired[0].first, acquired[-1].last)
        except BaseException:
            flight.undo(acquired)
            raise
        self._watch_locks()
        traffic.bytes_out += len(records)
        return AcquiredRecords(records, acquired)

    def _store_gaps(self) -> None:
        """Store the start offset if it has moved past gaps or deleted records.

        Members do not acknowledge these, so no write of an acknowledgement stores the start offset.
        """
        assert self._in_flight is not None
        if self._in_flight.start > self._stored_start:
            self._in_flight.note_start()
            self._write_soon()

    async def _read_ahead(self, cold: ColdRead) -> None:
        try:
            await self._dependencies.cold_reads.warm([cold])
        finally:
            self._warmed, self._reading = cold.extent, None
        self.wake()

    def _bound(self, config: GroupConfig) -> Offset:
        """Return the end offset of the records that the group may read, by its isolation level."""
        if config.share_isolation_level == READ_COMMITTED:
            return self.partition.log.last_stable_offset
        return self.partition.log.high_watermark

    def wake(self) -> None:
        """Let the first waiting fetch try to acquire records, in a later turn of the event loop.

        If the fetch gets a result, or waits for more bytes (`min_bytes`), the next waiting fetch tries after
        that.
        """
        if self.waiting_fetches and not self._is_waking:
            self._is_waking = True
            self._loop.call_soon(self._wake)

    def _wake(self, untried: Sequence[WaitingFetch] | None = None) -> None:
        if untried is None:
            self._is_waking = False
            untried = list(self.waiting_fetches)
        if self.is_ended:
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        if not self.can_acquire:
            return
        for fetch in untried[:_FETCHES_A_TURN]:
            if fetch not in self.waiting_fetches:
                continue
            if fetch.try_now(self):
                self.wake()
                return
            if not fetch.waits_for_bytes:
                return
        if left := untried[_FETCHES_A_TURN:]:
            self._loop.call_soon(self._wake, left)

    def progressed(self, new_bytes: int) -> None:
        """Let the first waiting fetch try again, because the partition has changed.

        The partition calls this method of all its watchers (`broker.replication.purgatory.Watcher`).

        Args:
            new_bytes: number of newly committed bytes. It is 0 if something else has changed: the
                partition's leadership, or the first or last offset of its log. In this case, the method also
                schedules a check. The check ends this share partition if the broker no longer leads the
                partition, and drops records that the log has deleted.
        """
        if not new_bytes and self._in_flight is not None:  # leadership, or the bounds of the log
            self._loop.call_soon(self._check_partition)
        self.wake()

    def _check_partition(self) -> None:
        if self.is_ended:
            self.end(self.partition.unavailable or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif (flight := self._in_flight) is not None:
            if flight.start_moved(self.partition.log.log_start_offset):
                self.wake()
            if flight.start == flight.end:
                self._store_gaps()

    # --- acknowledgements ---

    def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement]
    ) -> asyncio.Future[None] | None:
        """Apply a member's acknowledgements, and begin to store them.

        Return a future that completes when the acknowledgements are stored. The future fails with KafkaError
        if this is not possible. Return None if there is nothing to store: the acknowledgements only renew
        locks, or the stored start offset is after all of their records.

        Raises:
            KafkaError: the errors of `InFlight.acknowledge`; NOT_LEADER_OR_FOLLOWER, the share partition has
                ended; INVALID_RECORD_STATE, the state is not loaded, so that the member has acquired nothing.
        """
        if self.is_ended:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        flight = self._in_flight
        if flight is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, "the member has acquired no records of this partition"
            )
        flight.limits = self._limits
        flight.start_moved(self.partition.log.log_start_offset)
        has_change = flight.acknowledge(member, acknowledgements, self._loop.time() + self.lock_seconds)
        self._dependencies.counts.acknowledged(acknowledgements)
        if acknowledgements and acknowledgements[0].first < flight.start:
            # The records are deleted. Until the start offset is stored, the next leader can deliver them:
            # its log may still have them.
            self._store_gaps()
            has_change = has_change or flight.start > self._stored_start
        if not has_change:
            return None
        stored: asyncio.Future[None] = self._loop.create_future()
        stored.add_done_callback(_read)  # its client may have gone
        self._unwritten.append(stored)
        self._write_soon()
        return stored

    def end_session(self, member: str) -> None:
        """Release the records that a member has acquired, because its share session has ended.

        Other members can then acquire the records that have not reached the limit of deliveries. Begin to
        store the change.
        """
        if self._in_flight is not None and self._in_flight.end_session(member):
            self._write_soon()
            self.wake()

    def end_when_written(self) -> None:
        """End the share partition when all changes are stored and all dead letters are written.

        `cancel_end` cancels this if it is called before that.
        """
        self._is_leaving = True
        self._end_if_unused()

    def cancel_end(self) -> None:
        """Cancel `end_when_written`, because a member uses the share partition."""
        self._is_leaving = False

    @property
    def is_unused(self) -> bool:
        """Whether no member uses this share partition any more, and all of its changes are stored.

        The share partition then exists only until its dead letters are written. An administrator may change
        the stored state meanwhile. So if `is_unused` is true, `SharePartitions.find` creates a new share
        partition.
        """
        return self._is_leaving and self._writing is None

    def _end_if_unused(self) -> None:
        if self.is_unused and (self._letters is None or self._letters.task is None):
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # --- locks ---

    def _watch_locks(self) -> None:
        """Set the timer for the first lock that ends, unless a timer is set."""
        if self._expiry is None and self._in_flight is not None:
            until = self._in_flight.next_expiry
            if until is not None:
                at = max(until, self._loop.time() + _LOCK_GRAIN)
                self._expiry = self._loop.call_at(at, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        assert self._in_flight is not None
        expired = self._in_flight.expire(self._loop.time())
        self.expired_locks += expired
        if expired:
            self._write_soon()
            self.wake()
        self._watch_locks()

    # --- stored state ---

    async def _load(self) -> None:
        failures = 0
        while not self.is_ended:
            try:
                state = await self._read_stored()
                self._begin(state, await self._start_of(state))
                return
            except KafkaError as error:
                # INVALID_REQUEST: the group coordinator has not initialized the state yet
                if error.code not in _RETRIABLE_READS and error.code is not ErrorCode.INVALID_REQUEST:
                    self._fail("read", error)
                    return
                failures += 1
                pause = backoff_ms(failures)
                if error.code in _RETRIABLE_READS:
                    pause = min(pause, _MAX_READ_PAUSE_MS)
                log.debug("the state of %s cannot be read yet: %s", self, error)
            await asyncio.sleep(pause / 1000)
            if not self.waiting_fetches:
                break  # no fetch waits any more; the next fetch makes a new share partition
        self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    async def _read_stored(self) -> ShareState:
        """Read the stored state once. Only some share partitions can read at the same time.

        So there are no retries meanwhile: one unavailable share coordinator would delay the share partitions
        of all others.
        """
        async with self._dependencies.loading:
            return await self._dependencies.persister.read(self.key, self.leader_epoch, retries=False)

    async def _start_of(self, state: ShareState) -> Offset:
        """Return the stored start offset.

        If no start offset is stored, return the offset that ``share.auto.offset.reset`` selects.

        Raises:
            KafkaError: OFFSET_NOT_AVAILABLE, this leader has not yet committed the records of former leaders;
                or an error of the search for an offset by time.
        """
        if state.start_offset >= 0:
            return state.start_offset
        if not self.partition.has_committed_former_epochs:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        timestamp = start_timestamp(
            self.config.share_auto_offset_reset, self._dependencies.view.clock.now_ms()
        )
        if timestamp == EARLIEST:
            return self.partition.log.log_start_offset
        if timestamp != LATEST:
            found = await self._dependencies.find_offset(self.partition, timestamp)
            if found is not None:
                return min(found.offset, self.partition.log.high_watermark)
        return self.partition.log.high_watermark

    def _begin(self, state: ShareState, start: Offset) -> None:
        if self.is_ended:
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        partition_log = self.partition.log
        flight = InFlight.restored(
            state._replace(start_offset=start), self._limits, partition_log.log_end_offset
        )
        flight.start_moved(partition_log.log_start_offset)
        self._state_epoch, self._stored_start = state.state_epoch, state.start_offset
        self._initialized_at = state.initialized_at
        self._confirmed = self._loop.time()
        self._in_flight = flight
        self._dependencies.counts.loads.add(self._loop.time() - self._began)
        if state.start_offset < 0:
            # Otherwise the next leader would choose again, and skip the records that were written meanwhile.
            flight.note_start()
            self._write_soon()
        writer = self._dependencies.letter_writer(
            self.key, self.partition, flight.has_letters, self._check_leader
        )
        self._letters = DeadLettering(
            str(self),
            flight,
            writer,
            lambda: self._dependencies.counts.letters_of(self.key.group),
            lambda: self._limits.has_dead_letters,
            self._changed,
            self._end_if_unused,
            self._end_after_defect,
        )
        self._letters.start()
        self.wake()

    def check_state(self) -> None:
        """End this share partition soon if its stored state was reset or deleted.

        An administrator can do this while the group has no members. A former member can still have a share
        session, which keeps this object. Without this check, a new member would get no records before the
        old start offset.
        """
        is_recent = self._loop.time() < self._confirmed + _CONFIRMED_SECONDS
        if self._in_flight is None or self._writing or self._checking or self._has_ended or is_recent:
            return
        self._checking = start_task(self._run(self._check_state()), f"check of {self}")

    async def _check_state(self) -> None:
        try:
            before = self._stored_start
            state = await self._read_stored()
        except KafkaError as error:
            if error.code not in _RETRIABLE_READS:
                self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message))
            return
        finally:
            self._checking = None
        if self._writing is not None or self._stored_start != before:
            return  # a write since the read finds out itself
        known = self._state_epoch, self._stored_start
        is_same = state.may_be_initialized_at(self._initialized_at)
        if not is_same or (state.state_epoch, state.start_offset) != known:
            log.info("the state of %s was reset", self)
            self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._confirmed = self._loop.time()

    async def _check_leader(self) -> None:
        """Ask the share coordinator whether this broker still owns the stored state. Return if it does.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, a later leader owns the state; or any other error of the request.
                An error that is not retriable, such as FENCED_LEADER_EPOCH, also ends the share partition.
        """
        try:
            await self._dependencies.persister.read(self.key, self.leader_epoch)
        except KafkaError as error:
            if error.code not in _RETRIABLE:
                self._fail("read", error)
            raise

    def _changed(self) -> None:
        self._write_soon()
        self.wake()

    def _write_soon(self) -> None:
        """Start the task that stores all changes, unless it runs already or the share partition has ended."""
        if self._writing is None and not self._has_ended:
            self._writing = start_task(self._run(self._write()), f"write of {self}")

    async def _write(self) -> None:
        flight = self._in_flight
        assert flight is not None
        failures = 0
        while flight.is_dirty and not self.is_ended:
            self._in_write, self._unwritten = self._unwritten, []
            start, finished, batches = flight.begin_write()
            try:
                await self._dependencies.persister.write(
                    self.key,
                    self._state_epoch,
                    self.leader_epoch,
                    start,
                    finished,
                    batches,
                    self._initialized_at,
                )
            except KafkaError as error:
                if flight.write_failed(self._loop.time()):
                    self.wake()
                self._answer_write(self._client_error(error))
                if error.code not in _RETRIABLE:
                    self._writing = None
                    self._fail("written", error)
                    return
                failures += 1
                log.warning("the state of %s cannot be written: %s", self, error)
                await asyncio.sleep(backoff_ms(failures) / 1000)
            else:
                failures = 0
                self._stored_start, self._confirmed = start, self._loop.time()
                if flight.written():
                    self.wake()
                self._store_gaps()  # those found during the write
                if self._letters is not None:
                    self._letters.start()
                self._answer_write(None)
        self._writing = None
        self._end_if_unused()

    def _answer_write(self, error: KafkaError | None) -> None:
        """Answer the acknowledgements in the last write, unless they have their answers."""
        for stored in self._in_write:
            _complete(stored, error)

    @staticmethod
    def _client_error(error: KafkaError) -> KafkaError:
        """Return the error that clients get for `error`, an error of the persister.

        If `error` says that a later leader has the share partition, or that the stored state was created
        again, return NOT_LEADER_OR_FOLLOWER. Return any other error unchanged.
        """
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) if error.code in _FENCED else error

    # --- the end ---

    async def _run(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except Exception as error:
            self._end_after_defect(error)
            raise

    def _end_after_defect(self, defect: Exception) -> None:
        """End the share partition because of a defect. The state in memory may be wrong now."""
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(defect))
        self._answer_write(error)
        self.end(error)

    def _fail(self, what: str, error: KafkaError) -> None:
        if error.code not in _FENCED:
            log.error("the state of %s cannot be %s: %s", self, what, error)
        self.end(self._client_error(error))

    def end(self, error: KafkaError) -> None:
        """End the share partition, and answer waiting fetches and unwritten acknowledgements with `error`."""
        if self._has_ended:
            return
        self._has_ended = True
        self.partition.watchers.pop(self, None)
        if self._expiry is not None:
            self._expiry.cancel()
        if self._letters is not None:
            self._letters.end()
        self._on_end(self)
        for stored in self._unwritten:
            _complete(stored, error)
        self._unwritten.clear()
        for fetch in list(self.waiting_fetches):
            fetch.failed(self, error)
        self.waiting_fetches.clear()

    def stop(self) -> list[asyncio.Task[None]]:
        """End the share partition, because the broker stops.

        Return its tasks, which the caller must cancel.
        """
        self.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        letters = None if self._letters is None else self._letters.task
        tasks = (self._loading, self._writing, self._checking, self._reading, letters)
        return [task for task in tasks if task is not None]


def _read(stored: asyncio.Future[None]) -> None:
    if not stored.cancelled():
        stored.exception()


def _complete(stored: asyncio.Future[None], error: KafkaError | None) -> None:
    if stored.done():
        return
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(error)
