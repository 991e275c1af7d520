"""The records of one share partition that are in flight: pure state, without a clock or I/O.

The state is an ordered list of ranges of offsets, from the start offset (SPSO) to the end offset (SPEO). Each
offset between them is in one range, also where the log has a gap. All records of a range have the same state.
Neighbouring ranges with the same state become one range. So a batch that one member acknowledges needs only
one range.

The leader reads batches from `next_offset` on and calls `acquire`. An acknowledgement only sets `target` of
its ranges. When the caller has stored a write, it calls `written`, and `target` becomes the state. The end of
a lock (`expire`, `end_session`) changes the state at once.

`begin_write` collects all changes since the last write. One write is in progress at a time. After a failed
write its acknowledged ranges are acquired again, or available if their locks have ended (KAFKA-19476). A
write that failed may still have been stored. So the next write contains the current state of the same
records.

If the group has a dead-letter queue (KIP-1191), a record that it gives up is *archiving* first. When this
state is stored, `due_letters` returns the record. After its dead letter is written, the caller calls
`letters_written`, and the record is archived. A record that waits for its dead letter counts against the
limit of record locks. Finished records that only stay because of an earlier such record do not count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

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
_TARGETS = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED}
_NOBODY = ""
_LOWEST_THROTTLED = 2
#: the most ranges for each record lock while records wait for their dead letters
_RANGES_A_LOCK = 2
_first = attrgetter("first")


class Limits(NamedTuple):
    """The limits of a share group for each partition."""

    #: how many records may be in flight (``share.partition.max.record.locks``)
    record_locks: int = 2000
    #: how often a record is delivered at most (``share.delivery.count.limit``)
    deliveries: int = 5
    #: whether the group has a dead-letter queue (``errors.deadletterqueue.topic.name``)
    has_dead_letters: bool = False


class ReadBatch(NamedTuple):
    """A batch in the log; both offsets are inclusive."""

    first: Offset
    last: Offset
    #: whether members get its records: it has some, is no control batch, and its transaction is not aborted
    is_deliverable: bool = True


class Acquired(NamedTuple):
    """Records that a member has acquired; both offsets are inclusive."""

    first: Offset
    last: Offset
    deliveries: int


class Acknowledgement(NamedTuple):
    """A member's answer about records that it has acquired; both offsets are inclusive.

    `types` has one acknowledgement type for all records, or one for each record.
    """

    first: Offset
    last: Offset
    #: one type for all records, or one for each
    types: Sequence[int]


class DeadLetters(NamedTuple):
    """Contiguous records that the group has given up; both offsets are inclusive."""

    first: Offset
    last: Offset
    deliveries: int
    #: whether a member has rejected the records; False if they have reached the limit of deliveries
    is_rejected: bool


class StateWrite(NamedTuple):
    """The changes that one write stores."""

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

    @property
    def is_finished(self) -> bool:
        return self.state in _FINISHED

    @property
    def is_gap(self) -> bool:
        """Whether the range has no records that members can receive, as far as this broker has seen."""
        return self.state == ARCHIVED and self.deliveries == 0

    def is_like(self, other: Range) -> bool:
        """Whether this range and its neighbour `other` can become one range.

        Acquired ranges, and ranges with an acknowledgement that is not stored yet, cannot.
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
        batches: the stored states of records from the start offset on, in order. Records between them are
            available.
    """

    def __init__(self, start: Offset, limits: Limits, batches: Iterable[StateBatch] = ()) -> None:
        #: start offset (SPSO): all records before it are finished
        self.start = start
        #: end offset (SPEO): the offset after the last record in flight
        self.end = start
        self.limits = limits
        self._ranges: list[Range] = []
        #: no record before this offset is available
        self._hint = start
        #: the number of finished records in flight, and of all records in flight except gaps
        self._finished = 0
        self._held = 0
        #: the number of records that wait for their dead letters
        self._archiving = 0
        #: a start offset, an offset from which `_settled` counts on, and its count between these offsets
        self._counted = start, start, 0
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
            state: the stored state, with a start offset that is known.
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
        return self._held

    # --- acquire ---

    @property
    def next_offset(self) -> Offset:
        """The first available offset.

        If no record in flight is available, `end`, from which to read more records.
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
        """The end of the available range at `next_offset`. None if that offset is not in flight yet."""
        at = self.next_offset
        return None if at == self.end else self._ranges[self._index_of(at)].last + 1

    @property
    def is_full(self) -> bool:
        """Whether `acquire` can acquire nothing: no record in flight is available, and no locks are left."""
        return self._room <= 0 and self.next_offset == self.end

    @property
    def _room(self) -> int:
        """The number of further records that can come in flight.

        It can be negative after a change of the limit. While records wait for dead letters, the finished
        records before the first record in use do not count. To limit the memory, there is then no room at all
        with more than `_RANGES_A_LOCK` ranges for each lock.
        """
        locks = self.limits.record_locks
        if not self._archiving:
            return locks - self._held
        if len(self._ranges) >= _RANGES_A_LOCK * locks:
            return 0
        return locks - max(self._archiving, self._held - self._settled())

    def _settled(self) -> int:
        """Return the number of settled records: those before the first available or acquired one.

        Gaps do not count. A settled record stays settled. So this method counts each record once, until the
        start offset moves.
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
        for first, last in plan.gaps:
            self._archive(first, last)
        acquired = []
        for first, last, deliveries in plan.parts:
            self._replace(Range(first, last, ACQUIRED, deliveries + 1, member, until))
            acquired.append(Acquired(first, last, deliveries + 1))
        self._advance()
        return acquired

    def _plan_gap(self, plan: _Plan, first: Offset, last: Offset) -> None:
        plan.end = max(plan.end, last + 1)
        plan.gaps += [(a, b) for a, b, _ in self._available(first, last)]

    def _plan_batch(self, plan: _Plan, position: Offset, batch: ReadBatch) -> bool:
        """Add the batch's available records from `position` on to the plan.

        Return False if the plan is complete.
        """
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
            most = self._most_together(deliveries, batch.last - batch.first + 1)
            if most is not None and plan.count:
                return False  # not together with other records
            if most is not None:
                taken = min(taken, most)
            plan.add(first, first + taken - 1, deliveries)
            if taken < size or most is not None:
                return False
        return True

    def _most_together(self, deliveries: int, batch_records: int) -> int | None:
        """Return how many records may be delivered together after `deliveries` attempts (KAFKA-17541).

        Return None for no limit. A record that no member can process uses up the deliveries of all records
        delivered with it. So the later attempts deliver fewer records, and the last one a single record.
        """
        limit = self.limits.deliveries
        throttled = max(_LOWEST_THROTTLED, (limit + 1) // 2)
        if deliveries < throttled:
            return None
        return 1 if deliveries >= limit - 1 else max(1, batch_records >> (deliveries - throttled + 1))

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

        Acknowledged records get their new state in `written`. Renewed records get a later end of their locks
        at once. Offsets below the start offset are ignored.

        Args:
            member: the member's id.
            acknowledgements: must be in the order of their offsets.
            until: the time at which the locks of renewed records end (KIP-1222).

        Returns:
            Whether there is a change to store.

        Raises:
            KafkaError: INVALID_RECORD_STATE, the member has not acquired one of the records, or has lost or
                acknowledged it; INVALID_REQUEST, the acknowledgements are malformed, or name offsets from
                `end` on.
        """
        parts = [part for each in check_acknowledgements(acknowledgements) for part in _parts_of(each)]
        parts = [(max(first, self.start), last, kind) for first, last, kind in parts if last >= self.start]
        if parts and parts[-1][1] >= self.end:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"offset {parts[-1][1]} has not been acquired")
        for first, last, _ in parts:
            self._check_owner(member, first, last)
        has_marked = False
        for first, last, kind in parts:
            for each in self._divided(first, last):
                if kind == RENEW:
                    each.until = until
                    continue
                each.target = self._target(each, kind)
                each.is_rejected = kind == REJECT and each.target == ARCHIVING
                self._marked.append(each)
                has_marked = True
            if kind != RENEW:
                self._dirty.append((first, last))
        return has_marked

    def _check_owner(self, member: str, first: Offset, last: Offset) -> None:
        for index in range(self._index_of(first), len(self._ranges)):
            each = self._ranges[index]
            if each.first > last:
                return
            if each.state != ACQUIRED or each.target is not None or each.member != member:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"the member has not acquired offset {max(first, each.first)}",
                )

    def _target(self, each: Range, kind: int) -> int:
        if kind == RELEASE:
            return self._released_state(each)
        return self._given_up if kind == REJECT else _TARGETS[kind]

    def _released_state(self, each: Range) -> int:
        return self._given_up if each.deliveries >= self.limits.deliveries else AVAILABLE

    @property
    def _given_up(self) -> int:
        """The next state of a record that the group gives up.

        It depends on whether there is a dead-letter queue.
        """
        return ARCHIVING if self.limits.has_dead_letters else ARCHIVED

    # --- the end of locks ---

    @property
    def next_expiry(self) -> float | None:
        """The time at which the first lock ends; None if no record has a lock that can end."""
        return min((each.until for each in self._ranges if _is_locked(each)), default=None)

    def expire(self, now: float) -> int:
        """Release records whose locks end at `now` or earlier. Return the number of these records."""
        expired = [each for each in self._ranges if _is_locked(each) and each.until <= now]
        count = sum(each.size for each in expired)
        for each in expired:
            self._release(each)
        self._tidy()
        return count

    def end_session(self, member: str) -> bool:
        """Release all records that a member has acquired, because its share session has ended.

        Return whether the member had any. The delivery still counts, because a record may have crashed the
        member. Records whose acknowledgements are not stored yet are released only if their write fails.
        """
        held = [each for each in self._ranges if each.member == member]
        for each in held:
            if each.target is not None:
                each.until = 0.0
                continue
            self._release(each)
        self._tidy()
        return bool(held)

    def start_moved(self, log_start: Offset) -> bool:
        """Drop the records below `log_start`, the start offset of the log.

        Return whether the start offset has moved.
        """
        if log_start <= self.start:
            return False
        ranges = self._ranges
        gone = bisect_left(ranges, log_start, key=attrgetter("last"))
        for each in ranges[:gone]:
            self._count(each, -1)
        del ranges[:gone]
        if ranges and ranges[0].first < log_start:
            self._count(ranges[0], -1)
            ranges[0].first = log_start
            self._count(ranges[0], 1)
        self.start = log_start
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
        """Return the changes since the last write. The previous write must have ended."""
        assert self._writing is None
        marked, self._marked = self._marked, []
        dirty, self._dirty = _union(self._dirty), []
        self._writing = marked, dirty
        start = self.start
        for each in self._ranges:
            if not (each.is_finished or each.target in _FINISHED):
                break
            start = each.last + 1
        finished = self._finished - (start - self.start)
        for each in marked:
            if each.last >= self.start and each.target in _FINISHED:
                finished += each.size
        batches: list[StateBatch] = []
        for first, last in dirty:
            first = max(first, start)
            if first > last or first >= self.end:
                continue
            for index in range(self._index_of(first), len(self._ranges)):
                each = self._ranges[index]
                if each.first > last:
                    break
                _add(batches, _stored(each, max(first, each.first), min(last, each.last)))
        return StateWrite(start, finished, tuple(batches))

    def written(self) -> bool:
        """Apply the acknowledgements of the current write, which is stored.

        Return whether the write made records available, or the start offset has moved.
        """
        marked, self._writing = self._taken_write()[0], None
        is_available = False
        for each in marked:
            if each.last < self.start:
                continue  # `start_moved` has dropped the range
            assert each.target is not None
            is_available = is_available or each.target == AVAILABLE
            self._change(each, each.target)
            self._join(each)
        return self._advance() or is_available

    def write_failed(self, now: float) -> bool:
        """Undo the acknowledgements of the current write, which failed.

        The next write contains its changes again.

        Records whose locks have ended at `now` are released. Return whether there are such records.
        """
        (marked, dirty), self._writing = self._taken_write(), None
        self._dirty += dirty
        is_available = False
        for each in marked:
            each.target = None
            each.is_rejected = False
            if each.last >= self.start and each.until <= now:
                self._release(each)
                is_available = True
        self._tidy()
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

        These are the archiving records whose state is stored, so that another leader also knows of them. As
        long as the archived state of records with earlier dead letters is not stored, return none. So after a
        failover, only the last dead letters can be written twice.
        """
        if not self._archiving:
            return []
        unstored = _union(self._dirty + (self._writing[1] if self._writing else []))
        self._written_letters = [
            span for span in self._written_letters if list(_without(*span, unstored)) != [span]
        ]
        if self._written_letters:
            return []
        return [
            DeadLetters(first, last, each.deliveries, each.is_rejected)
            for each in self._ranges
            if each.state == ARCHIVING
            for first, last in _without(each.first, each.last, unstored)
        ]

    def letters_written(self, first: Offset, last: Offset) -> bool:
        """Archive the records from `first` to `last`, because their dead letters are written.

        Return whether the start offset has moved.
        """
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return False
        for each in self._divided(first, last):
            if each.state == ARCHIVING:
                self._change(each, ARCHIVED)
        self._dirty.append((first, last))
        self._written_letters.append((first, last))
        before = self.start
        self._tidy()
        return self.start != before

    # --- the list of ranges ---

    def ranges(self) -> Sequence[Range]:
        """Return the ranges in the order of their offsets. The caller must not change them."""
        return self._ranges

    def ranges_from(self, offset: Offset, most: int) -> Sequence[Range]:
        """Return at most `most` ranges, from the range that contains `offset` on.

        The caller must not change them.
        """
        index = max(0, self._index_of(offset))
        return self._ranges[index : index + most]

    def _index_of(self, offset: Offset) -> int:
        """Return the index of the range that contains `offset`; `start` <= `offset` < `end`."""
        return bisect_right(self._ranges, offset, key=_first) - 1

    def _split(self, offset: Offset) -> int:
        """Return the index of the range that begins at `offset`.

        If `offset` is inside a range, split it there first.
        """
        index = bisect_left(self._ranges, offset, key=_first)
        if index and self._ranges[index - 1].last >= offset:
            head = self._ranges[index - 1]
            tail = Range(offset, head.last, head.state, head.deliveries, head.member, head.until)
            tail.is_rejected = head.is_rejected
            head.last = offset - 1
            self._ranges.insert(index, tail)
        return index

    def _divided(self, first: Offset, last: Offset) -> list[Range]:
        """Return the ranges from `first` to `last`. Split ranges that reach beyond these offsets."""
        return self._ranges[self._split(first) : self._split(last + 1)]

    def _replace(self, new: Range) -> None:
        """Put the range `new` in place of the ranges, and the parts of ranges, at its offsets."""
        begin, end = self._split(new.first), self._split(new.last + 1)
        for each in self._ranges[begin:end]:
            self._count(each, -1)
        self._ranges[begin:end] = [new]
        self._count(new, 1)

    def _archive(self, first: Offset, last: Offset) -> None:
        for each in self._divided(first, last):
            self._change(each, ARCHIVED)
            self._join(each)

    def _change(self, each: Range, state: int) -> None:
        """Set the state of a range, and remove its member, its lock and its target."""
        self._count(each, -1)
        each.state = state
        each.member = _NOBODY
        each.until = 0.0
        each.target = None
        each.is_rejected = each.is_rejected and state == ARCHIVING
        self._count(each, 1)
        if state == AVAILABLE:
            self._hint = min(self._hint, each.first)

    def _count(self, each: Range, factor: int) -> None:
        state, size = each.state, factor * (each.last - each.first + 1)
        if state >= ACKNOWLEDGED:
            if state == ARCHIVING:
                self._archiving += size
            else:
                self._finished += size
                if state == ARCHIVED and not each.deliveries:
                    return  # a gap
        self._held += size

    def _extend(self, last: Offset) -> None:
        """Make `last` the last offset in flight. The offsets that come in flight are available."""
        if last >= self.end:
            self._append(Range(self.end, last, AVAILABLE, 0))

    def _append(self, each: Range) -> None:
        self._count(each, 1)
        self.end = each.last + 1
        if self._ranges and self._ranges[-1].is_like(each):
            self._ranges[-1].last = each.last
        else:
            self._ranges.append(each)

    def _join(self, each: Range) -> None:
        """Join a range with its neighbours, where `is_like` allows it."""
        ranges = self._ranges
        index = self._index_of(each.first)
        if index + 1 < len(ranges) and each.is_like(ranges[index + 1]):
            each.last = ranges.pop(index + 1).last
        if index and ranges[index - 1].is_like(each):
            ranges[index - 1].last = each.last
            del ranges[index]

    def _tidy(self) -> None:
        """Join all neighbouring ranges where `is_like` allows it.

        Then move the start offset past finished ones.
        """
        joined: list[Range] = []
        for each in self._ranges:
            if joined and joined[-1].is_like(each):
                joined[-1].last = each.last
            else:
                joined.append(each)
        self._ranges = joined
        self._advance()

    def _advance(self) -> bool:
        """Move the start offset past the finished records at the start. Return whether it has moved."""
        ranges = self._ranges
        count = 0
        while count < len(ranges) and ranges[count].is_finished:
            self._count(ranges[count], -1)
            count += 1
        del ranges[:count]
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
        self._finished = self._held = self._archiving = 0
        for each in self._ranges:
            self._count(each, 1)
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
        if not all(GAP <= kind <= RENEW for kind in types):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an acknowledgement has an unknown type")
        end = last
    return acknowledgements


def _parts_of(each: Acknowledgement) -> Iterator[tuple[Offset, Offset, int]]:
    """Yield the parts of an acknowledgement whose records have the same type."""
    first, last, types = each
    if len(types) == 1:
        yield first, last, types[0]
        return
    for kind, run in groupby(enumerate(types), key=itemgetter(1)):
        size = sum(1 for _ in run)
        yield first, first + size - 1, kind
        first += size


def _is_locked(each: Range) -> bool:
    return each.state == ACQUIRED and each.target is None


def _stored(each: Range, first: Offset, last: Offset) -> StateBatch:
    """Return the state to store for the offsets from `first` to `last` of a range.

    An acknowledged range gets its target. An acquired range gets the state and the number of deliveries from
    before the delivery.
    """
    if each.target is not None:
        return StateBatch(first, last, each.target, each.deliveries)
    if each.state == ACQUIRED:
        return StateBatch(first, last, AVAILABLE, each.deliveries - 1)
    return StateBatch(first, last, each.state, each.deliveries)


def _add(batches: list[StateBatch], new: StateBatch) -> None:
    if batches and batches[-1][1] + 1 == new[0] and batches[-1][2:] == new[2:]:
        batches[-1] = batches[-1]._replace(last_offset=new.last_offset)
    else:
        batches.append(new)


def _union(bounds: list[tuple[Offset, Offset]]) -> list[tuple[Offset, Offset]]:
    """Return the pairs of first and last offset as the fewest pairs with the same offsets, in order."""
    union: list[tuple[Offset, Offset]] = []
    for first, last in sorted(bounds):
        if union and first <= union[-1][1] + 1:
            union[-1] = (union[-1][0], max(union[-1][1], last))
        else:
            union.append((first, last))
    return union


def _without(
    first: Offset, last: Offset, bounds: Sequence[tuple[Offset, Offset]]
) -> Iterator[tuple[Offset, Offset]]:
    """Yield the parts of `first` to `last` that are outside of all `bounds`. `_union` returned the bounds."""
    for begin, end in bounds[bisect_left(bounds, first, key=itemgetter(1)) :]:
        if begin > last:
            break
        if begin > first:
            yield first, begin - 1
        first = end + 1
    if first <= last:
        yield first, last
