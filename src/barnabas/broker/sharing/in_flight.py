"""The records of one share partition that are in flight: pure state, without a clock or I/O.

The state is an ordered list of ranges of offsets, from the start offset (SPSO) to the end offset (SPEO). Each
offset between them is in one range, also where the log has a gap. All records of a range have the same state.
Neighbouring ranges with the same state become one range. So a batch that one member acknowledges needs only
one range.

The leader reads batches from `next_offset` on and calls `acquire`. An acknowledgement only sets `target` of
its ranges. When the caller has stored a write, it calls `written`, and `target` becomes the state. The end of
a lock (`expire`, `end_session`) changes the state at once.

`begin_write` collects all changes since the last write. One write is in progress at a time. After a failed
write, its acknowledged ranges are acquired again, or released if their locks have ended (KAFKA-19476). A
write that failed may still have been stored. So the next write contains the current state of the same
records.

If the group has a dead-letter queue (KIP-1191), a record that it gives up is *archiving* first. When this
state is stored, `due_letters` returns the record. After its dead letter is written, the caller calls
`letters_written`, and the record is archived. A record that waits for its dead letter counts against the
limit of record locks. Finished records that stay in flight only because an earlier record waits for its dead
letter do not count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset
from barnabas.broker.coordinator.share_state.persister import ShareState, StateBatch

# delivery states, with their numbers in the stored state; ACQUIRED is never stored
AVAILABLE = 0
ACQUIRED = 1
ACKNOWLEDGED = 2
ARCHIVING = 3
ARCHIVED = 4

# acknowledgement types, with their numbers in the protocol
GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4

_FINISHED = (ACKNOWLEDGED, ARCHIVED)
_NOBODY = ""
_LOWEST_THROTTLED = 2
#: the most ranges for each record lock while records wait for their dead letters
_RANGES_A_LOCK = 2
#: the number of noted locks beyond which those that have ended are forgotten
_FEW_LOCKS = 8
#: the distance, in ranges, within which a step from range to range is cheaper than a search
_NEAR = 8
_first, _last = attrgetter("first"), attrgetter("last")

#: contiguous records: their first and last offset, and further values that belong to them
Part = TypeVar("Part", bound=Sequence[int])


class Limits(NamedTuple):
    """The settings of a share group that limit each of its share partitions.

    Attributes:
        record_locks: how many records may be in flight (``share.partition.max.record.locks``).
        deliveries: how often a record is delivered at most (``share.delivery.count.limit``).
        has_dead_letters: whether the group has a dead-letter queue (``errors.deadletterqueue.topic.name``).
    """

    record_locks: int = 2000
    deliveries: int = 5
    has_dead_letters: bool = False


class ReadBatch(NamedTuple):
    """The offsets of a record batch in the log; both are inclusive.

    Attributes:
        is_deliverable: whether members get the records of the batch. This is false if the batch has no
            records, is a control batch, or belongs to an aborted transaction.
    """

    first: Offset
    last: Offset
    is_deliverable: bool = True


class Acquired(NamedTuple):
    """Contiguous records that a member has acquired; both offsets are inclusive.

    Attributes:
        deliveries: how often each of the records was delivered, including this delivery.
    """

    first: Offset
    last: Offset
    deliveries: int


class Acknowledgement(NamedTuple):
    """A member's answer about records that it has acquired; both offsets are inclusive.

    Attributes:
        types: one acknowledgement type for all records, or one for each record: `GAP`, `ACCEPT`, `RELEASE`,
            `REJECT` or `RENEW`.
    """

    first: Offset
    last: Offset
    types: Sequence[int]


class DeadLetters(NamedTuple):
    """Contiguous records that the group has given up, and that need dead letters; both offsets are inclusive.

    Attributes:
        deliveries: how often each of the records was delivered.
        is_rejected: whether a member has rejected the records; False if they have reached the limit of
            deliveries.
    """

    first: Offset
    last: Offset
    deliveries: int
    is_rejected: bool


class StateWrite(NamedTuple):
    """The changes of a share partition that one write to the share coordinator stores.

    Attributes:
        start_offset: the start offset after the write (SPSO).
        delivery_complete_count: the number of finished records from the start offset on.
        batches: the new states of changed records.
    """

    start_offset: Offset
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class Range:
    """Consecutive offsets whose records have the same state. A range takes less than 200 bytes of memory."""

    __slots__ = ("deliveries", "first", "is_rejected", "last", "member", "state", "target", "until")

    def __init__(
        self,
        first: Offset,
        last: Offset,
        state: int,
        deliveries: int,
        member: str = _NOBODY,
        until: float = 0.0,
        target: int | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        #: how often the records were delivered, including the current delivery
        self.deliveries = deliveries
        #: the id of the member that has acquired the records
        self.member = member
        #: when the lock of the member ends
        self.until = until
        #: the state after the acknowledgement, until that is stored; None without an acknowledgement
        self.target = target
        #: whether a member has rejected the records; kept while they are archiving
        self.is_rejected = False

    def __repr__(self) -> str:
        target = "" if self.target is None else f" to {self.target}"
        return f"<{self.first}-{self.last} {self.state}{target} x{self.deliveries} {self.member}>"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def cut_head(self, offset: Offset) -> Range:
        """Remove the records before `offset` from this range, and return them as a new range.

        This range must not have an acknowledgement that is not stored yet (`target`).
        """
        head = Range(self.first, offset - 1, self.state, self.deliveries, self.member, self.until)
        head.is_rejected = self.is_rejected
        self.first = offset
        return head

    @property
    def is_finished(self) -> bool:
        return self.state in _FINISHED

    @property
    def is_gap(self) -> bool:
        """Whether the range has no records that members can receive, as far as this broker has seen."""
        return self.state == ARCHIVED and self.deliveries == 0

    def is_like(self, other: Range) -> bool:
        """Whether this range and its neighbour `other` can become one range.

        This is true if their records have the same state, the same number of deliveries, and the same
        `is_rejected`. It is false if a range is acquired, or has an acknowledgement that is not stored yet.
        """
        return (
            self.state == other.state != ACQUIRED
            and self.deliveries == other.deliveries
            and self.is_rejected == other.is_rejected
            and self.target is None
            and other.target is None
        )


class InFlight:
    """The records in flight of one share partition. Times are in seconds; the caller chooses the clock.

    Args:
        start: the start offset.
        limits: the limits of the group; the attribute can be replaced at any time.
        batches: the stored states of records from the start offset on, in the order of their offsets. Records
            between two of these batches are available.
    """

    def __init__(self, start: Offset, limits: Limits, batches: Iterable[StateBatch] = ()) -> None:
        #: start offset (SPSO): all records before it are finished
        self.start = start
        #: the last log start offset above `start`. The log deleted records before it, and `start` followed
        self._deleted_before = 0
        #: end offset (SPEO): the offset after the last record in flight
        self.end = start
        self.limits = limits
        self._ranges: list[Range] = []
        #: no record before this offset is available
        self._hint = start
        #: the number of records in flight by state, with gaps; and the number of gaps
        self._counts = [0, 0, 0, 0, 0]
        self._gaps = 0
        #: a heap of locks: the time at which they end, and the first and the last record that they include.
        #: Locks that have ended before their time are still noted
        self._locks: list[tuple[float, Offset, Offset]] = []
        #: a start offset, an offset from which `_settled` counts on, and its count between these offsets
        self._counted = start, start, 0
        #: first and last offsets that include all archiving records, in any order; they may overlap
        self._archiving_spans: list[tuple[Offset, Offset]] = []
        #: the records whose dead letters are written, until their archived state is stored
        self._written_letters: list[tuple[Offset, Offset]] = []
        #: first and last offsets of the changes that no write contains yet
        self._dirty: list[tuple[Offset, Offset]] = []
        #: the ranges with a target that no write contains; then those of the current write, with its offsets
        self._marked: list[Range] = []
        self._writing: tuple[list[Range], list[tuple[Offset, Offset]]] | None = None
        for first, last, state, deliveries in batches:
            if last < max(start, self.end):
                continue
            self._extend(first - 1)
            self._append(Range(max(first, self.end), last, state, deliveries))
        self._advance()

    @classmethod
    def restored(cls, state: ShareState, limits: Limits, log_end: Offset) -> InFlight:
        """Return the records in flight from the stored `state`.

        Args:
            state: the stored state. Its start offset must be known, not -1.
            limits: the limits of the group.
            log_end: the end offset of the log. Stored records from this offset on are left out.
        """
        in_flight = cls(state.start_offset, limits, state.batches)
        in_flight._cut_off(log_end)
        return in_flight

    def __repr__(self) -> str:
        return f"<InFlight {self.start} to {self.end}: {self._ranges}>"

    @property
    def size(self) -> int:
        """The number of records in flight, without gaps."""
        return self.end - self.start - self._gaps

    @property
    def _archiving(self) -> int:
        """The number of records that wait for their dead letters."""
        return self._counts[ARCHIVING]

    # --- acquire ---

    @property
    def next_offset(self) -> Offset:
        """The first available offset.

        If no record in flight is available, the result is `end`: the leader reads more records from there.
        """
        if self._hint < self.end:
            ranges = self._ranges
            for index in range(self._index_of(max(self._hint, self.start)), len(ranges)):
                if ranges[index].state == AVAILABLE:
                    self._hint = max(self._hint, ranges[index].first)
                    return self._hint
        self._hint = self.end
        return self.end

    @property
    def available_end(self) -> Offset | None:
        """The offset after the available range that begins at `next_offset`.

        None if no record in flight is available.
        """
        at = self.next_offset
        return None if at == self.end else self._ranges[self._index_of(at)].last + 1

    @property
    def is_full(self) -> bool:
        """Whether `acquire` can acquire nothing.

        This is so if no record in flight is available, and the limit of record locks is reached.
        """
        return self._room <= 0 and self.next_offset == self.end

    @property
    def _room(self) -> int:
        """The number of records that `acquire` can add to the records in flight.

        It is negative if the limit of record locks was lowered below the number of records in flight.

        - If no record waits for its dead letter, all records in flight count against the limit.
        - If some records wait, finished records at the start do not count: those before the first available
          or acquired record. But the result is 0 if there are `_RANGES_A_LOCK` ranges for each record lock,
          because ranges use memory.
        """
        locks = self.limits.record_locks
        if not self._archiving:
            return locks - self.size
        if len(self._ranges) >= _RANGES_A_LOCK * locks:
            return 0
        return locks - max(self._archiving, self.size - self._settled())

    def _settled(self) -> int:
        """Return the number of records before the first available or acquired record.

        Offsets without records do not count. The counted records can never become available again. So each
        call continues at the offset at which the previous call stopped. But if the start offset has moved,
        the call counts from the start offset again.
        """
        start, position, count = self._counted
        if start != self.start:
            position, count = self.start, 0
        for index in range(self._index_of(position), len(self._ranges)):
            each = self._ranges[index]
            if each.state < ACKNOWLEDGED:
                break
            count += 0 if each.is_gap else each.last + 1 - max(position, each.first)
            position = each.last + 1
        self._counted = self.start, position, count
        return count

    def acquire(
        self,
        member: str,
        at: Offset,
        batches: Iterable[ReadBatch],
        *,
        until: float,
        max_records: int,
        batch_size: int = 0,
        is_strict: bool = False,
    ) -> list[Acquired]:
        """Acquire records for a member.

        Offsets between the batches become gaps, which need no acknowledgement.

        Args:
            member: the member's id.
            at: `next_offset`, from which the log was read.
            batches: the batches in the log from `at` on, in order.
            until: the time at which the locks end.
            max_records: the number of acquired records after which no further batch is acquired.
            batch_size: the number of records after which the result begins a new entry at the next batch; 0
                for no limit.
            is_strict: whether `max_records` also divides batches (KIP-1206). `batch_size` is then ignored.

        Returns:
            The acquired records. One entry has contiguous records that were delivered equally often. Empty if
            there is nothing to acquire; the start offset may still have moved past gaps.
        """
        plan = _Plan(self._room, max_records, 0 if is_strict else batch_size, is_strict)
        position = at
        for batch in batches:
            if batch.last < position:
                continue
            if batch.first > position:
                self._plan_gap(plan, position, batch.first - 1)
                position = batch.first
            if not batch.is_deliverable:
                self._plan_gap(plan, position, batch.last)
            elif not self._plan_batch(plan, position, batch):
                break
            position = batch.last + 1
        self._extend(plan.end - 1)
        self._archive(plan.gaps)
        acquired = []
        for each, (first, last, deliveries) in self._divided(plan.parts):
            assert each.first == first and each.last == last
            each.state = ACQUIRED
            each.deliveries, each.member, each.until = deliveries + 1, member, until
            acquired.append(Acquired(first, last, deliveries + 1))
        if acquired:
            self._counts[AVAILABLE] -= plan.count
            self._counts[ACQUIRED] += plan.count
            self._note_lock(until, acquired[0].first, acquired[-1].last)
        self._advance()
        return acquired

    def undo(self, acquired: Sequence[Acquired]) -> None:
        """Undo an `acquire` call whose result, `acquired`, was not sent to the member.

        The records become available again, and their delivery does not count.
        """
        for each, _ in self._overlapping(acquired):
            each.deliveries -= 1
            self._change(each, AVAILABLE)
        self._join(acquired[0].first, acquired[-1].last)

    def _plan_gap(self, plan: _Plan, first: Offset, last: Offset) -> None:
        plan.end = max(plan.end, last + 1)
        plan.gaps += [(a, b) for a, b, _ in self._available(first, last)]

    def _plan_batch(self, plan: _Plan, position: Offset, batch: ReadBatch) -> bool:
        """Add the batch's available records from `position` on to the plan.

        Return False if the plan can take no further batch, for one of two reasons:

        - A limit of the plan is reached.
        - Some of the batch's records were already delivered `_throttled` times or more. They must not be
          delivered together with records of other batches.
        """
        throttled = self._throttled
        for first, last, deliveries in self._available(position, batch.last):
            left = plan.max_records - plan.count
            if left <= 0:
                return False
            size = last - first + 1
            taken = min(size, left) if plan.is_strict else size
            if first >= self.end:
                if plan.room <= plan.count_new:
                    return False
                if plan.is_strict:
                    taken = min(taken, plan.room - plan.count_new)
                plan.count_new += taken
            is_throttled = deliveries >= throttled
            if is_throttled:
                if plan.count:
                    return False  # not together with other records
                taken = min(taken, self._max_together(deliveries, batch.last - batch.first + 1))
            plan.add(first, first + taken - 1, deliveries)
            if taken < size or is_throttled:
                return False
        return True

    @property
    def _throttled(self) -> int:
        """The number of attempts after which fewer records are delivered together (KAFKA-17541).

        A record that no member can process uses up the deliveries of all records delivered with it. So the
        later attempts deliver fewer records, and the last one a single record.
        """
        return max(_LOWEST_THROTTLED, (self.limits.deliveries + 1) // 2)

    def _max_together(self, deliveries: int, batch_records: int) -> int:
        """Return how many records of a batch may be delivered together (`_throttled`).

        Args:
            deliveries: how often these records were delivered before.
            batch_records: number of records in the batch.
        """
        if deliveries >= self.limits.deliveries - 1:
            return 1
        return max(1, batch_records >> (deliveries - self._throttled + 1))

    def _available(self, first: Offset, last: Offset) -> Iterator[tuple[Offset, Offset, int]]:
        """Yield the available offsets from `first` to `last`, as (first, last, deliveries so far).

        First come the available ranges in flight, then the offsets from `end` on.
        """
        if first < self.end:
            for index in range(self._index_of(first), len(self._ranges)):
                each = self._ranges[index]
                if each.first > last:
                    break
                if each.state == AVAILABLE:
                    yield max(first, each.first), min(last, each.last), each.deliveries
        if last >= self.end:
            yield max(first, self.end), last, 0

    # --- acknowledge ---

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement], until: float) -> bool:
        """Apply a member's acknowledgements, or none of them if one is invalid.

        Acknowledged records get their new state when the caller calls `written`. Renewed records get a later
        end of their locks at once.

        Offsets below the start offset are ignored. An acknowledgement that has only such offsets is valid if
        the log has deleted the records, and invalid if the group has finished them.

        Args:
            member: the member's id.
            acknowledgements: must be in the order of their offsets.
            until: the time at which the locks of renewed records end (KIP-1222).

        Returns:
            Whether there is a change to store.

        Raises:
            KafkaError: INVALID_RECORD_STATE, the member has not acquired one of the records, or has lost or
                acknowledged it, the group has finished all records of an acknowledgement, or no record is in
                flight; INVALID_REQUEST, the acknowledgements are malformed, or name offsets from `end` on.
        """
        for first, last, _ in check_acknowledgements(acknowledgements):
            if self._deleted_before <= last < self.start:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"the group has finished {first}-{last}")
        parts = _parts_of(acknowledgements, self.start)
        if parts and parts[-1][1] >= self.end:
            code = ErrorCode.INVALID_RECORD_STATE if self.start == self.end else ErrorCode.INVALID_REQUEST
            raise KafkaError(code, f"offset {parts[-1][1]} has not been acquired")
        self._check_owner(member, parts)
        marked = []
        targets = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, REJECT: self._given_up}
        for each, (_, _, kind) in self._divided(parts):
            if kind == RENEW:
                each.until = until
                self._note_lock(until, each.first, each.last)
                continue
            each.target = self._released_state(each) if kind == RELEASE else targets[kind]
            each.is_rejected = kind == REJECT and each.target == ARCHIVING
            marked.append(each)
        self._marked += marked
        self._dirty += _union([(each.first, each.last) for each in marked])
        return bool(marked)

    def _check_owner(self, member: str, parts: Sequence[tuple[Offset, Offset, int]]) -> None:
        for each, (first, _, _) in self._overlapping(parts):
            if each.state != ACQUIRED or each.target is not None or each.member != member:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"the member has not acquired offset {max(first, each.first)}",
                )

    def _released_state(self, each: Range) -> int:
        return self._given_up if each.deliveries >= self.limits.deliveries else AVAILABLE

    @property
    def _given_up(self) -> int:
        """The next state of a record that the group gives up.

        The result depends on whether the group has a dead-letter queue.
        """
        return ARCHIVING if self.limits.has_dead_letters else ARCHIVED

    # --- the end of locks ---

    @property
    def next_expiry(self) -> float | None:
        """The time at which the first lock ends; None if no record has a lock that can end."""
        locks = self._locks
        while locks:
            until, first, last = locks[0]
            for each in self._locked(first, last):
                if each.until == until:
                    heapreplace(locks, (until, each.first, last))
                    return until
            heappop(locks)
        return None

    def expire(self, now: float) -> int:
        """Release records whose locks end at `now` or earlier. Return the number of these records.

        A released record becomes available. If it has reached the limit of deliveries, the group gives it up
        instead.
        """
        count = 0
        while self._locks and self._locks[0][0] <= now:
            _, first, last = heappop(self._locks)
            expired = [each for each in self._locked(first, last) if each.until <= now]
            for each in expired:
                self._release(each)
            if expired:
                count += sum(each.size for each in expired)
                self._join(first, last)
        self._advance()
        return count

    def _locked(self, first: Offset, last: Offset) -> Iterator[Range]:
        """Yield the ranges from `first` to `last` that members have acquired and not acknowledged."""
        first, last = max(first, self.start), min(last, self.end - 1)
        for each, _ in self._overlapping([(first, last)] if first <= last else ()):
            if each.state == ACQUIRED and each.target is None:
                yield each

    def _note_lock(self, until: float, first: Offset, last: Offset) -> None:
        """Add an entry to `_locks`: the locks of the records from `first` to `last` end at `until`.

        If `_locks` has become too long, first build it again from the ranges.
        """
        if len(self._locks) >= _FEW_LOCKS + 2 * len(self._ranges):
            self._locks = [(each.until, each.first, each.last) for each in self._locked(self.start, self.end)]
            heapify(self._locks)
        heappush(self._locks, (until, first, last))

    def end_session(self, member: str) -> bool:
        """Release all records that a member has acquired, because its share session has ended.

        A released record becomes available. If it has reached the limit of deliveries, the group gives it up
        instead. Its delivery to this member counts, because the record itself may have crashed the member.

        If the acknowledgement of a record is not stored yet, the record stays acquired. It is released only
        if its write fails.

        Returns:
            Whether the member had acquired any record.
        """
        held = [each for each in self._ranges if each.member == member]
        for each in held:
            if each.target is not None:
                each.until = 0.0
                continue
            self._release(each)
        self._join(self.start, self.end - 1)
        self._advance()
        return bool(held)

    def start_moved(self, log_start: Offset) -> bool:
        """Drop the records below `log_start`, the log start offset.

        Return whether the share partition's start offset (`start`) has moved.
        """
        if log_start <= self.start:
            return False
        ranges = self._ranges
        gone = bisect_left(ranges, log_start, key=_last)
        for each in ranges[:gone]:
            self._count(each, -each.size)
        del ranges[:gone]
        if ranges and ranges[0].first < log_start:
            self._count(ranges[0], ranges[0].first - log_start)
            ranges[0].first = log_start
        self.start = self._deleted_before = log_start
        self.end = max(self.end, log_start)
        self._hint = max(self._hint, log_start)
        self._advance()
        return True

    def _release(self, each: Range) -> None:
        self._change(each, self._released_state(each))
        self._dirty.append((each.first, each.last))

    # --- store ---

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes that no write contains yet."""
        return bool(self._dirty)

    def note_start(self) -> None:
        """Mark the start offset as changed, so that the next write stores it."""
        self._dirty.append((self.start, self.start - 1))

    def begin_write(self) -> StateWrite:
        """Begin a write: return all changes since the last one. The previous write must have ended.

        When the write has ended, the caller calls `written` or `write_failed`.
        """
        assert self._writing is None
        marked, self._marked = self._marked, []
        dirty, self._dirty = _union(self._dirty), []
        self._writing = marked, dirty
        start = self.start
        for each in self._ranges:
            if not (each.is_finished or each.target in _FINISHED):
                break
            start = each.last + 1
        finished = self._counts[ACKNOWLEDGED] + self._counts[ARCHIVED] - (start - self.start)
        for each in marked:
            if each.last >= self.start and each.target in _FINISHED:
                finished += each.last - each.first + 1
        spans = [(max(first, start), last) for first, last in dirty if start <= last]
        return StateWrite(start, finished, self._stored(spans))

    def _stored(self, spans: Sequence[tuple[Offset, Offset]]) -> tuple[StateBatch, ...]:
        """Return the states to store for the records in `spans`, pairs of first and last offset.

        A record with an unstored acknowledgement is stored with its state after the acknowledgement. An
        acquired record is stored as available, with the number of its deliveries before the present one.
        """
        batches: list[StateBatch] = []
        before = StateBatch(-2, -2, AVAILABLE, 0)  # no neighbour of an offset
        for each, (first, last) in self._overlapping(spans):
            if first < each.first:
                first = each.first
            if last > each.last:
                last = each.last
            state, deliveries = each.target, each.deliveries
            if state is None:
                state = each.state
                if state == ACQUIRED:
                    state, deliveries = AVAILABLE, deliveries - 1
            if before[1] + 1 == first and before[2] == state and before[3] == deliveries:
                before = batches[-1] = before._replace(last_offset=last)
            else:
                before = StateBatch(first, last, state, deliveries)
                batches.append(before)
        return tuple(batches)

    def written(self) -> bool:
        """Apply the acknowledgements of the current write, which is stored.

        Return whether the write made records available, or the share partition's start offset has moved.
        """
        (marked, dirty), self._writing = self._taken_write(), None
        is_available = False
        for each in marked:
            if each.last < self.start:
                continue  # `start_moved` has dropped the range
            assert each.target is not None
            is_available = is_available or each.target == AVAILABLE
            self._change(each, each.target)
        for first, last in _union(dirty, _NEAR):
            self._join(first, last)
        return self._advance() or is_available

    def write_failed(self, now: float) -> bool:
        """Undo the acknowledgements of the current write, which failed.

        The next write contains the changes of the failed write again.

        If the lock of a record in these acknowledgements has ended at `now`, release the record, as `expire`
        does. Return whether this released any record.
        """
        (marked, dirty), self._writing = self._taken_write(), None
        self._dirty += dirty
        is_available = False
        for each in marked:
            each.target = None
            each.is_rejected = False
            if each.last < self.start:
                continue
            if each.until <= now:
                self._release(each)
                is_available = True
            else:
                self._note_lock(each.until, each.first, each.last)
        self._join(self.start, self.end - 1)
        self._advance()
        return is_available

    def _taken_write(self) -> tuple[list[Range], list[tuple[Offset, Offset]]]:
        assert self._writing is not None
        return self._writing

    # --- dead letters ---

    @property
    def has_letters(self) -> bool:
        """Whether records wait for their dead letters, also records whose state is not stored yet."""
        return bool(self._archiving)

    def due_letters(self) -> list[DeadLetters]:
        """Return the records whose dead letters can be written now, in the order of their offsets.

        These are the records whose state ARCHIVING is stored, so that a later leader reads this state, too.

        While records that were passed to `letters_written` have an unstored state ARCHIVED, the result is
        empty. So only the dead letters of the last `LetterWriter.write` call are uncertain after a failover.
        """
        if not self._archiving:
            return []
        archiving = [each for each in self._within(_union(self._archiving_spans)) if each.state == ARCHIVING]
        self._archiving_spans = [(each.first, each.last) for each in archiving]
        unstored = _union(self._dirty + (self._writing[1] if self._writing else []))
        self._written_letters = [
            span for span in self._written_letters if list(_without(*span, unstored)) != [span]
        ]
        if self._written_letters:
            return []
        return [
            DeadLetters(first, last, each.deliveries, each.is_rejected)
            for each in archiving
            for first, last in _without(each.first, each.last, unstored)
        ]

    def _within(self, spans: Iterable[tuple[Offset, Offset]]) -> Iterator[Range]:
        """Yield the ranges that overlap with `spans`.

        `spans` must be in order. They may contain offsets that are not in flight.
        """
        start, end = self.start, self.end
        parts = [
            (max(first, start), min(last, end - 1)) for first, last in spans if first < end and last >= start
        ]
        return (each for each, _ in self._overlapping(parts))

    def letters_written(self, first: Offset, last: Offset) -> bool:
        """Archive the records from `first` to `last` that wait for their dead letters: these are written.

        Return whether the share partition's start offset (`start`) has moved.
        """
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return False
        for each, _ in self._divided([(first, last)]):
            if each.state == ARCHIVING:
                self._change(each, ARCHIVED)
        self._join(first, last)
        self._dirty.append((first, last))
        self._written_letters.append((first, last))
        return self._advance()

    # --- the list of ranges ---

    def ranges(self) -> Sequence[Range]:
        """Return the ranges in the order of their offsets. The caller must not change them."""
        return self._ranges

    def ranges_from(self, offset: Offset, max_ranges: int) -> Sequence[Range]:
        """Return at most `max_ranges` ranges, from the range that contains `offset` on.

        The caller must not change them.
        """
        index = max(0, self._index_of(offset))
        return self._ranges[index : index + max_ranges]

    def _index_of(self, offset: Offset, low: int = 0) -> int:
        """Return the index of the range that contains `offset`; `start` <= `offset` < `end`.

        The caller knows that the index is at least `low`.
        """
        return bisect_right(self._ranges, offset, low, key=_first) - 1

    def _index_after(self, offset: Offset, index: int) -> int:
        """Return the index of the range that contains `offset`.

        The caller knows that the result is at least `index`.
        """
        ranges, near = self._ranges, index + _NEAR
        if near < len(ranges) and ranges[near].last < offset:
            return self._index_of(offset, near)
        while ranges[index].last < offset:
            index += 1
        return index

    def _overlapping(self, parts: Iterable[Part]) -> Iterator[tuple[Range, Part]]:
        """Yield (range, part) for each range and each part that overlap, in the order of their offsets.

        Args:
            parts: each is a tuple that begins with its first and its last offset. All offsets must be between
                `start` and `end`. The parts must be in the order of their offsets, and must not overlap.
        """
        ranges, index = self._ranges, -1
        for part in parts:
            first, last = part[0], part[1]
            if index < 0:
                index = self._index_of(first)
            elif ranges[index].last < first:
                index = self._index_after(first, index)
            yield ranges[index], part
            while ranges[index].last < last:
                index += 1
                yield ranges[index], part

    def _divided(self, parts: Sequence[Part]) -> list[tuple[Range, Part]]:
        """Split the ranges at the bounds of `parts`, and return (range, part) for each range inside a part.

        This method changes the list of ranges only once for all parts, because an acknowledgement can have a
        part for each record.

        Args:
            parts: each is a tuple that begins with its first and its last offset. All offsets must be between
                `start` and `end`. The parts must be in the order of their offsets, and must not overlap.
        """
        if not parts:
            return []
        ranges = self._ranges
        begin = index = self._index_of(parts[0][0])
        found: list[tuple[Range, Part]] = []
        #: replaces the ranges from `begin` to before `index`
        new: list[Range] = []
        each = ranges[index]
        for part in parts:
            first, last = part[0], part[1]
            near = index + _NEAR
            while each.last < first:
                if index < near:
                    new.append(each)
                    index += 1
                else:
                    index, after = self._index_of(first, index), index
                    new += ranges[after:index]
                each = ranges[index]
            if each.first < first:
                new.append(each.cut_head(first))
            while each.last < last:
                new.append(each)
                found.append((each, part))
                index += 1
                each = ranges[index]
            if each.last > last:
                head = each.cut_head(last + 1)
                new.append(head)
                found.append((head, part))
            else:
                found.append((each, part))
        ranges[begin:index] = new
        return found

    def _archive(self, parts: Sequence[tuple[Offset, Offset]]) -> None:
        for each, _ in self._divided(parts):
            self._change(each, ARCHIVED)
        for first, last in parts:
            self._join(first, last)

    def _change(self, each: Range, state: int) -> None:
        """Set the state of a range. Remove its member, its lock and its unstored acknowledgement."""
        size = each.last - each.first + 1
        counts = self._counts
        counts[each.state] -= size
        counts[state] += size
        each.state = state
        each.member = _NOBODY
        each.until = 0.0
        each.target = None
        if state == ARCHIVING:
            self._archiving_spans.append((each.first, each.last))
            return
        each.is_rejected = False
        if state == AVAILABLE:
            if each.first < self._hint:
                self._hint = each.first
        elif state == ARCHIVED and each.is_gap:
            self._gaps += size

    def _count(self, each: Range, size: int) -> None:
        """Add `size`, which can be negative, to the number of records in the state of `each`."""
        state = each.state
        self._counts[state] += size
        if state == ARCHIVED and each.is_gap:
            self._gaps += size

    def _extend(self, last: Offset) -> None:
        """Add the offsets from `end` to `last` to the records in flight, as available records.

        If `last` is below `end`, do nothing.
        """
        if last >= self.end:
            self._append(Range(self.end, last, AVAILABLE, 0))

    def _append(self, each: Range) -> None:
        self._count(each, each.size)
        if each.state == ARCHIVING:
            self._archiving_spans.append((each.first, each.last))
        self.end = each.last + 1
        if self._ranges and self._ranges[-1].is_like(each):
            self._ranges[-1].last = each.last
        else:
            self._ranges.append(each)

    def _join(self, first: Offset, last: Offset) -> None:
        """Join the ranges from `first` to `last`, and their neighbours, where `is_like` allows it."""
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return
        begin = max(0, self._index_of(first) - 1)
        end = self._index_of(last, begin) + 2
        joined: list[Range] = []
        for each in self._ranges[begin:end]:
            if joined and joined[-1].is_like(each):
                joined[-1].last = each.last
            else:
                joined.append(each)
        self._ranges[begin:end] = joined

    def _advance(self) -> bool:
        """Move the start offset past the finished records at the start. Return whether it has moved."""
        ranges = self._ranges
        finished = 0
        for each in ranges:
            if each.state not in _FINISHED:
                break
            self._count(each, each.first - each.last - 1)
            finished += 1
        del ranges[:finished]
        before, self.start = self.start, ranges[0].first if ranges else self.end
        self._hint = max(self._hint, self.start)
        return self.start != before

    def _cut_off(self, log_end: Offset) -> None:
        """Drop records from `log_end` on, because the log does not have them."""
        if self.end <= log_end:
            return
        del self._ranges[bisect_left(self._ranges, log_end, key=_first) :]
        if self._ranges:
            self._ranges[-1].last = min(self._ranges[-1].last, log_end - 1)
        self.end = log_end
        self.start = min(self.start, log_end)
        self._hint = self.start
        self._counts, self._gaps = [0, 0, 0, 0, 0], 0
        for each in self._ranges:
            self._count(each, each.size)
        self._advance()


class _Plan:
    """The changes that `InFlight.acquire` is going to make."""

    def __init__(self, room: int, max_records: int, batch_size: int, is_strict: bool) -> None:
        #: the number of records that may still come in flight
        self.room = room
        self.max_records = max_records
        self.is_strict = is_strict
        self._batch_size = batch_size
        #: the offset after the last planned record or gap
        self.end: Offset = 0
        #: the number of planned records, and of those among them that are not in flight yet
        self.count = 0
        self.count_new = 0
        self.gaps: list[tuple[Offset, Offset]] = []
        #: first offset, last offset, deliveries so far
        self.parts: list[tuple[Offset, Offset, int]] = []

    def add(self, first: Offset, last: Offset, deliveries: int) -> None:
        self.end = max(self.end, last + 1)
        self.count += last - first + 1
        if self.parts:
            begin, end, before = self.parts[-1]
            is_whole = self._batch_size and end - begin + 1 >= self._batch_size
            if end + 1 == first and before == deliveries and not is_whole:
                self.parts[-1] = (begin, last, deliveries)
                return
        self.parts.append((first, last, deliveries))


def check_acknowledgements(acknowledgements: Sequence[Acknowledgement]) -> Sequence[Acknowledgement]:
    """Return the acknowledgements if they are well-formed.

    Raises:
        KafkaError: INVALID_REQUEST, offsets overlap or are not in order, a type is unknown, or the number of
            types is neither 1 nor the number of records.
    """
    end = -1
    for first, last, types in acknowledgements:
        if first < 0 or last < first or first <= end:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"acknowledgements are in the order of their offsets: {first}-{last}",
            )
        if len(types) != 1 and len(types) != last - first + 1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{len(types)} types are given for the offsets {first}-{last}"
            )
        if min(types) < GAP or max(types) > RENEW:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an acknowledgement has an unknown type")
        end = last
    return acknowledgements


def _parts_of(acknowledgements: Sequence[Acknowledgement], start: Offset) -> list[tuple[Offset, Offset, int]]:
    """Return the acknowledged records from `start` on, as tuples (first offset, last offset, type).

    Adjacent records with the same type share a tuple, even if they come from two acknowledgements. The tuples
    are in the order of the offsets, as the acknowledgements must be.
    """
    parts: list[tuple[Offset, Offset, int]] = []
    first, end, kind = -1, -1, -1  # the part that may still grow
    for begin, last, types in acknowledgements:
        if last < start:
            continue
        if begin < start:
            begin, types = start, types if len(types) == 1 else types[start - begin :]
        if begin != end:
            if end >= 0:
                parts.append((first, end - 1, kind))
            first, kind = begin, types[0]
        for offset, each in enumerate(types, begin):
            if each != kind:
                parts.append((first, offset - 1, kind))
                first, kind = offset, each
        end = last + 1
    if end >= 0:
        parts.append((first, end - 1, kind))
    return parts


def _union(bounds: Iterable[tuple[Offset, Offset]], distance: int = 1) -> list[tuple[Offset, Offset]]:
    """Merge spans of offsets. Return the merged spans, in the order of their offsets.

    A span is a pair of its first and its last offset. With the default `distance`, adjacent and overlapping
    spans become one span: (0, 4), (5, 9) and (20, 29) become (0, 9) and (20, 29). With `distance` 11, they
    become (0, 29), because 20 is 11 after 9. The offsets between merged spans then belong to the result.
    """
    ordered = sorted(bounds)
    if not ordered:
        return ordered
    union: list[tuple[Offset, Offset]] = []
    begin, end = ordered[0]
    for first, last in ordered:
        if first > end + distance:
            union.append((begin, end))
            begin, end = first, last
        elif last > end:
            end = last
    union.append((begin, end))
    return union


def _without(
    first: Offset, last: Offset, bounds: Sequence[tuple[Offset, Offset]]
) -> Iterator[tuple[Offset, Offset]]:
    """Yield the first and last offset of each part of `first` to `last` that is outside of all `bounds`.

    `bounds` must be in order and must not overlap, as `_union` returns them.
    """
    for index in range(bisect_left(bounds, first, key=itemgetter(1)), len(bounds)):
        begin, end = bounds[index]
        if begin > last:
            break
        if begin > first:
            yield first, begin - 1
        first = end + 1
    if first <= last:
        yield first, last
