"""Compares the records in flight of a share partition with a model of single offsets.

The test compares both after each event: with random events on many offsets (hypothesis), and with every
sequence of a few events on four offsets.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.share_state.persister import ShareState, StateBatch
from barnabas.broker.sharing.in_flight import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    InFlight,
    Limits,
    ReadBatch,
    StateWrite,
)

LOCK = 10
MEMBERS = ("a", "b")
FINISHED = (ACKNOWLEDGED, ARCHIVED)
TARGETS = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED}


@dataclass
class Cell:
    """One offset in flight."""

    state: int = AVAILABLE
    deliveries: int = 0
    member: str = ""
    until: float = 0.0
    target: int | None = None
    is_rejected: bool = False

    def become(self, state: int) -> None:
        self.state, self.member, self.until, self.target = state, "", 0.0, None
        self.is_rejected = self.is_rejected and state == ARCHIVING

    def stored(self) -> tuple[int, int]:
        if self.target is not None:
            return self.target, self.deliveries
        return (AVAILABLE, self.deliveries - 1) if self.state == ACQUIRED else (self.state, self.deliveries)


class Model:
    """A model of a share partition, offset by offset."""

    def __init__(self, start: int, limits: Limits) -> None:
        self.start = self.end = start
        self.deleted_before = 0
        self.limits = limits
        self.cells: dict[int, Cell] = {}
        self.dirty: set[int] = set()
        self.marked: set[int] = set()
        self.writing: tuple[set[int], set[int]] | None = None
        #: whose dead letter is written, until that is stored
        self.lettered: set[int] = set()
        #: how many ranges the real state has: there is a bound while dead letters are due
        self.ranges = 0

    @property
    def next_offset(self) -> int:
        return next((o for o in range(self.start, self.end) if self.cells[o].state == AVAILABLE), self.end)

    def held(self) -> int:
        return sum(not (c.state == ARCHIVED and c.deliveries == 0) for c in self.cells.values())

    def room(self) -> int:
        """Return the number of records that may still come in flight.

        Settled records before the first one in use do not count, if only dead letters keep them.
        """
        locks = self.limits.record_locks
        waiting = sum(c.state == ARCHIVING for c in self.cells.values())
        if not waiting:
            return locks - self.held()
        if self.ranges >= 2 * locks:
            return 0
        in_use = [o for o, c in self.cells.items() if c.state in (AVAILABLE, ACQUIRED)]
        settled = [c for o, c in self.cells.items() if o < min(in_use, default=self.end)]
        held = self.held() - sum(not (c.state == ARCHIVED and c.deliveries == 0) for c in settled)
        return locks - max(waiting, held)

    def due_letters(self) -> dict[int, tuple[int, bool]]:
        unstored = self.dirty | (self.writing[1] if self.writing else set())
        self.lettered &= unstored
        if self.lettered:
            return {}
        return {
            o: (c.deliveries, c.is_rejected)
            for o, c in self.cells.items()
            if c.state == ARCHIVING and o not in unstored
        }

    def letters_written(self, first: int, last: int) -> None:
        for offset in range(max(first, self.start), min(last + 1, self.end)):
            if self.cells[offset].state == ARCHIVING:
                self.cells[offset].become(ARCHIVED)
            self.dirty.add(offset)
            self.lettered.add(offset)
        self.advance()

    def acquire(
        self, member: str, at: int, batches: list[ReadBatch], until: float, max_records: int, is_strict: bool
    ) -> dict[int, int]:
        taken: dict[int, int] = {}
        gaps: list[int] = []
        room = self.room()
        position = at
        for batch in batches:
            if batch.last < position:
                continue
            gaps += range(position, batch.first if batch.is_deliverable else batch.last + 1)
            if batch.is_deliverable and not self.take(
                taken, range(max(position, batch.first), batch.last + 1), batch, room, max_records, is_strict
            ):
                break
            position = batch.last + 1
        for offset in sorted({*taken, *gaps}):
            if offset >= self.end:
                assert offset == self.end
                self.cells[offset] = Cell()
                self.end += 1
            cell = self.cells[offset]
            if offset not in taken:
                if cell.state == AVAILABLE:
                    cell.become(ARCHIVED)
                continue
            cell.state, cell.member, cell.until = ACQUIRED, member, until
            cell.deliveries += 1
            taken[offset] = cell.deliveries
        self.advance()
        return taken

    def take(
        self,
        taken: dict[int, int],
        offsets: range,
        batch: ReadBatch,
        room: int,
        max_records: int,
        is_strict: bool,
    ) -> bool:
        throttled = max(2, -(-self.limits.deliveries // 2))
        before: tuple[int, bool, int] | None = None
        left = -1
        for offset in offsets:
            is_new = offset >= self.end
            cell = Cell() if is_new else self.cells[offset]
            if cell.state != AVAILABLE:
                before = None
                continue
            run = offset - 1, is_new, cell.deliveries
            if run != before:  # another run of records that are alike
                if len(taken) >= max_records:
                    return False
                left = -1
                if cell.deliveries >= throttled:
                    if taken:
                        return False
                    size = batch.last - batch.first + 1
                    left = max(1, size >> (cell.deliveries - throttled + 1))
                    if cell.deliveries >= self.limits.deliveries - 1:
                        left = 1
                if is_new and room <= sum(o >= self.end for o in taken):
                    return False
            elif left == 0:
                return False
            if is_strict and len(taken) >= max_records:
                return False
            if is_strict and is_new and room <= sum(o >= self.end for o in taken):
                return False
            taken[offset] = 0
            left -= 1
            before = offset, is_new, cell.deliveries
            if left >= 0 and not self.goes_on(offset, offsets, cell):
                return False
        return left < 0

    def goes_on(self, offset: int, offsets: range, cell: Cell) -> bool:
        after = self.cells.get(offset + 1)
        same = after is not None and after.state == AVAILABLE and after.deliveries == cell.deliveries
        return offset + 1 in offsets and same

    def acknowledge(self, member: str, parts: list[tuple[int, int]], lasts: list[int], until: float) -> bool:
        if any(self.deleted_before <= last < self.start for last in lasts):
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE)
        parts = [(o, kind) for o, kind in parts if o >= self.start]
        if any(offset >= self.end for offset, _ in parts):
            code = ErrorCode.INVALID_RECORD_STATE if self.start == self.end else ErrorCode.INVALID_REQUEST
            raise KafkaError(code)
        for offset, _ in parts:
            cell = self.cells[offset]
            if cell.state != ACQUIRED or cell.member != member or cell.target is not None:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE)
        for offset, kind in parts:
            cell = self.cells[offset]
            if kind == RENEW:
                cell.until = until
                continue
            given_up = ARCHIVING if self.limits.has_dead_letters else ARCHIVED
            cell.target = {RELEASE: self.released(cell), REJECT: given_up, **TARGETS}[kind]
            cell.is_rejected = kind == REJECT and cell.target == ARCHIVING
            self.marked.add(offset)
            self.dirty.add(offset)
        return any(kind != RENEW for _, kind in parts)

    def released(self, cell: Cell) -> int:
        given_up = ARCHIVING if self.limits.has_dead_letters else ARCHIVED
        return given_up if cell.deliveries >= self.limits.deliveries else AVAILABLE

    def expire(self, now: float) -> None:
        for offset, cell in self.cells.items():
            if cell.state == ACQUIRED and cell.target is None and cell.until <= now:
                cell.become(self.released(cell))
                self.dirty.add(offset)
        self.advance()

    def end_session(self, member: str) -> None:
        for offset, cell in self.cells.items():
            if cell.member != member:
                continue
            if cell.target is not None:
                cell.until = 0.0
                continue
            cell.become(self.released(cell))
            self.dirty.add(offset)
        self.advance()

    def start_moved(self, log_start: int) -> None:
        if log_start > self.start:
            self.cells = {o: c for o, c in self.cells.items() if o >= log_start}
            self.start = self.deleted_before = log_start
            self.end = max(log_start, self.end)
            self.advance()

    def begin_write(self) -> tuple[int, int, dict[int, tuple[int, int]]]:
        self.writing = self.marked, self.dirty
        self.marked, self.dirty = set(), set()
        done = {o for o, c in self.cells.items() if c.stored()[0] in FINISHED}
        start = self.start
        while start in done:
            start += 1
        changed = {
            o: self.cells[o].stored() for o in sorted(self.writing[1]) if o >= start and o in self.cells
        }
        return start, sum(o >= start for o in done), changed

    def written(self) -> None:
        assert self.writing is not None
        for offset in self.writing[0]:
            if offset in self.cells:
                target = self.cells[offset].target
                assert target is not None
                self.cells[offset].become(target)
        self.writing = None
        self.advance()

    def write_failed(self, now: float) -> None:
        assert self.writing is not None
        marked, dirty = self.writing
        self.writing = None
        self.dirty |= dirty
        for offset in marked:
            cell = self.cells.get(offset)
            if cell is not None:
                cell.target, cell.is_rejected = None, False
                if cell.until <= now:
                    cell.become(self.released(cell))
        self.advance()

    def advance(self) -> None:
        while self.start in self.cells and self.cells[self.start].state in FINISHED:
            del self.cells[self.start]
            self.start += 1


class Pair:
    """A share partition and its model, with the same operations."""

    def __init__(self, start: int, limits: Limits) -> None:
        self.real = InFlight(start, limits)
        self.model = Model(start, limits)
        self.now = 100.0

    def acquire(
        self, member: str, batches: list[ReadBatch], max_records: int, is_strict: bool, batch_size: int = 0
    ) -> None:
        at = self.real.next_offset
        until = self.now + LOCK
        self.model.ranges = len(self.real.ranges())
        found = self.real.acquire(
            member,
            at,
            batches,
            until=until,
            max_records=max_records,
            batch_size=batch_size,
            is_strict=is_strict,
        )
        wanted = self.model.acquire(member, at, batches, until, max_records, is_strict)
        assert {o: n for first, last, n in found for o in range(first, last + 1)} == wanted

    def acknowledge(self, member: str, parts: list[tuple[int, int]], shape: list[Acknowledgement]) -> None:
        results = []
        for act in (
            lambda: self.model.acknowledge(member, parts, [each.last for each in shape], self.now + LOCK),
            lambda: self.real.acknowledge(member, shape, self.now + LOCK),
        ):
            try:
                results.append(act())
            except KafkaError as error:
                results.append(error.code)
        assert results[0] == results[1]

    def letters_written(self, first: int, last: int) -> None:
        self.model.letters_written(first, last)
        self.real.letters_written(first, last)

    def begin_write(self) -> StateWrite:
        start, finished, changed = self.model.begin_write()
        write = self.real.begin_write()
        assert (write.start_offset, write.delivery_complete_count) == (start, finished)
        assert expanded(write.batches) == changed
        return write

    def check(self) -> None:
        real, model = self.real, self.model
        assert (real.start, real.end, real.next_offset) == (model.start, model.end, model.next_offset)
        cells: dict[int, Cell] = {}
        position = real.start
        for each in real.ranges():
            assert each.first == position
            position = each.last + 1
            for offset in range(each.first, each.last + 1):
                cells[offset] = Cell(
                    each.state, each.deliveries, each.member, each.until, each.target, each.is_rejected
                )
        assert position == real.end
        assert cells == model.cells
        for one, other in zip(real.ranges(), real.ranges()[1:], strict=False):
            assert not one.is_like(other)
        assert real.is_dirty == bool(model.dirty)
        model.ranges = len(real.ranges())
        is_full = model.room() <= 0 and model.next_offset == model.end
        assert real.is_full == is_full
        assert real.has_letters == any(c.state == ARCHIVING for c in model.cells.values())
        due = {
            o: (letters.deliveries, letters.is_rejected)
            for letters in real.due_letters()
            for o in range(letters.first, letters.last + 1)
        }
        assert due == model.due_letters()
        locks = [c.until for c in model.cells.values() if c.state == ACQUIRED and c.target is None]
        assert real.next_expiry == min(locks, default=None)


def expanded(batches: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    cells: dict[int, tuple[int, int]] = {}
    for first, last, state, deliveries in batches:
        for offset in range(first, last + 1):
            assert offset not in cells
            cells[offset] = state, deliveries
    return cells


class ShareMachine(RuleBasedStateMachine):
    """Random events of three members on a log that grows, is compacted and loses its first records."""

    @initialize(
        locks=st.integers(1, 12),
        deliveries=st.integers(2, 6),
        start=st.integers(0, 3),
        has_dead_letters=st.booleans(),
    )
    def begin(self, locks: int, deliveries: int, start: int, has_dead_letters: bool) -> None:
        self.pair = Pair(start, Limits(locks, deliveries, has_dead_letters))
        self.log: list[ReadBatch] = []
        self.log_end = start
        self.log_start = 0
        self.stored: dict[int, tuple[int, int]] = {}
        self.write: StateWrite | None = None

    @rule(size=st.integers(1, 6), gap=st.integers(0, 2), is_deliverable=st.integers(0, 4))
    def append(self, size: int, gap: int, is_deliverable: int) -> None:
        first = self.log_end + gap
        self.log.append(ReadBatch(first, first + size - 1, is_deliverable > 0))
        self.log_end = first + size

    @rule(
        member=st.sampled_from("abc"),
        max_records=st.integers(1, 15),
        is_strict=st.booleans(),
        batch_size=st.integers(0, 4),
        batches=st.integers(1, 4),
    )
    def acquire(self, member: str, max_records: int, is_strict: bool, batch_size: int, batches: int) -> None:
        if self.pair.real.is_full:
            return
        at = self.pair.real.next_offset
        read = [batch for batch in self.log if batch.last >= at][:batches]
        self.pair.acquire(member, read, max_records, is_strict, batch_size)

    @rule(member=st.sampled_from("abc"), data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        low = max(0, self.pair.model.start - 2)
        offsets = st.integers(low, self.pair.model.end + 1)
        shape, parts, after = [], [], low
        for _ in range(data.draw(st.integers(1, 3))):
            mine = [o for o, c in self.pair.model.cells.items() if c.member == member and o >= after]
            first = data.draw(st.sampled_from(mine)) if mine else max(after, data.draw(offsets))
            last = first + data.draw(st.integers(0, 4))
            kinds = data.draw(
                st.lists(st.integers(GAP, RENEW), min_size=last - first + 1, max_size=last - first + 1)
            )
            if data.draw(st.booleans()):
                kinds = kinds[:1]
            shape.append(Acknowledgement(first, last, kinds))
            every = kinds * (last - first + 1) if len(kinds) == 1 else kinds
            parts += zip(range(first, last + 1), every, strict=True)
            after = last + 1
        self.pair.acknowledge(member, parts, shape)

    @rule(seconds=st.integers(1, LOCK))
    def time_passes(self, seconds: int) -> None:
        self.pair.now += seconds

    @rule()
    def expire(self) -> None:
        self.pair.model.expire(self.pair.now)
        self.pair.real.expire(self.pair.now)

    @rule(member=st.sampled_from("abc"))
    def end_session(self, member: str) -> None:
        self.pair.model.end_session(member)
        self.pair.real.end_session(member)

    @rule(ahead=st.integers(1, 4))
    def log_start_moves(self, ahead: int) -> None:
        self.log_start = min(self.log_end, self.log_start + ahead)
        self.log = [
            b._replace(first=max(b.first, self.log_start)) for b in self.log if b.last >= self.log_start
        ]
        self.pair.model.start_moved(self.log_start)
        self.pair.real.start_moved(self.log_start)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        if self.log:
            self.log.remove(data.draw(st.sampled_from(self.log)))

    @precondition(lambda self: self.pair.model.due_letters())
    @rule(data=st.data(), more=st.integers(0, 3))
    def letters_written(self, data: st.DataObject, more: int) -> None:
        first = data.draw(st.sampled_from(sorted(self.pair.model.due_letters())))
        last = first
        while more and last + 1 in self.pair.model.due_letters():
            last, more = last + 1, more - 1
        self.pair.letters_written(first, last)

    @precondition(lambda self: self.write is None)
    @rule()
    def begin_write(self) -> None:
        self.write = self.pair.begin_write()

    @precondition(lambda self: self.write is not None)
    @rule(is_stored=st.booleans(), is_answered=st.booleans())
    def end_write(self, is_stored: bool, is_answered: bool) -> None:
        """End a write. If it fails, the store may have stored it."""
        assert self.write is not None
        if is_stored:
            self.stored |= expanded(self.write.batches)
            self.stored = {o: s for o, s in self.stored.items() if o >= self.write.start_offset}
        if is_stored and is_answered:
            self.pair.model.written()
            self.pair.real.written()
        else:
            self.pair.model.write_failed(self.pair.now)
            self.pair.real.write_failed(self.pair.now)
        self.write = None
        if not self.pair.real.is_dirty:
            self.check_another_leader()

    def check_another_leader(self) -> None:
        """Check that another leader, which loads the stored state, delivers the same records with the same
        counts.
        """
        model = self.pair.model
        batches = tuple(StateBatch(o, o, *self.stored[o]) for o in sorted(self.stored))
        other = InFlight.restored(ShareState(0, 0, model.start, 0, batches), model.limits, self.log_end)
        known = {o: (r.state, r.deliveries) for r in other.ranges() for o in range(r.first, r.last + 1)}
        for offset, cell in model.cells.items():
            if offset >= other.start and not self.finds_gap_again(offset, cell):
                assert known.get(offset, (AVAILABLE, 0)) == cell.stored()

    def finds_gap_again(self, offset: int, cell: Cell) -> bool:
        """Whether another leader archives an archived offset anew, because the log lacks its record."""
        state, _ = self.stored.get(offset, (AVAILABLE, 0))
        has_record = any(batch.first <= offset <= batch.last for batch in self.log)
        return cell.state == ARCHIVED and (
            offset not in self.stored or (state == AVAILABLE and not has_record)
        )

    @invariant()
    def both_are_alike(self) -> None:
        if hasattr(self, "pair"):
            self.pair.check()


TestShareMachine = ShareMachine.TestCase


# --- every sequence of a few events ---

LOG = [ReadBatch(0, 1), ReadBatch(2, 3)]
Event = Callable[[Pair], None]


def _acquire(member: str, max_records: int, is_strict: bool) -> Event:
    return lambda pair: None if pair.real.is_full else pair.acquire(member, LOG, max_records, is_strict)


def _acknowledge(member: str, kind: int, is_whole: bool) -> Event:
    def event(pair: Pair) -> None:
        mine = sorted(o for o, c in pair.model.cells.items() if c.member == member)
        if not mine:
            return
        last = mine[0]
        while is_whole and last + 1 in mine:
            last += 1
        parts = [(o, kind) for o in range(mine[0], last + 1)]
        pair.acknowledge(member, parts, [Acknowledgement(mine[0], last, [kind])])

    return event


def _time_passes(pair: Pair) -> None:
    pair.now += LOCK
    pair.model.expire(pair.now)
    pair.real.expire(pair.now)


def _end_session(pair: Pair) -> None:
    pair.model.end_session("a")
    pair.real.end_session("a")


def _start_moves(pair: Pair) -> None:
    pair.model.start_moved(1)
    pair.real.start_moved(1)


def _write_begins(pair: Pair) -> None:
    if pair.model.writing is None and pair.model.dirty:
        pair.begin_write()


def _write_ends(pair: Pair) -> None:
    if pair.model.writing is not None:
        pair.model.written()
        pair.real.written()


def _letter_is_written(pair: Pair) -> None:
    due = pair.model.due_letters()
    if due:
        pair.letters_written(min(due), min(due))


def _write_fails(pair: Pair) -> None:
    if pair.model.writing is not None:
        pair.model.write_failed(pair.now)
        pair.real.write_failed(pair.now)


EVENTS: dict[str, Event] = {
    "a acquires one record": _acquire("a", 1, True),
    "a acquires a batch": _acquire("a", 1, False),
    "b acquires all": _acquire("b", 9, False),
    "b acquires all, strictly": _acquire("b", 9, True),
    "a accepts one": _acknowledge("a", ACCEPT, False),
    "a accepts all": _acknowledge("a", ACCEPT, True),
    "a releases one": _acknowledge("a", RELEASE, False),
    "b releases all": _acknowledge("b", RELEASE, True),
    "b rejects one": _acknowledge("b", REJECT, False),
    "a renews": _acknowledge("a", RENEW, False),
    "locks end": _time_passes,
    "the session of a ends": _end_session,
    "the log start moves": _start_moves,
    "a write begins": _write_begins,
    "it is stored": _write_ends,
    "it fails": _write_fails,
    "a dead letter is written": _letter_is_written,
}


def _explore(depth: int, limits: Limits) -> int:
    """Try every sequence of events, and stop at known states. Return the number of states.

    An event that leaves a pair as it was, by `_identity`, leaves it for the next event too: only after
    another event is the pair made anew from its bytes.
    """
    layer: dict[bytes, list[str]] = {pickle.dumps(Pair(0, limits)): []}
    seen: set[object] = set()
    for left in reversed(range(depth)):
        after: dict[bytes, list[str]] = {}
        for frozen, path in layer.items():
            pair: Pair = pickle.loads(frozen)
            before = _identity(pair)
            for name, event in EVENTS.items():
                try:
                    event(pair)
                    pair.check()
                except Exception as error:
                    raise AssertionError(f"after {[*path, name]}: {error!r}") from error
                key = _identity(pair)
                if key not in seen:
                    seen.add(key)
                    if left:
                        after[pickle.dumps(pair)] = [*path, name]
                if key != before:
                    pair = pickle.loads(frozen)
        layer = after
    return len(seen)


def _identity(pair: Pair) -> object:
    """Return a key for everything that affects later events, with times relative to now."""
    model = pair.model
    cells = tuple(
        (o, c.state, c.deliveries, c.member, c.until - pair.now if c.until else None, c.target, c.is_rejected)
        for o, c in sorted(model.cells.items())
    )
    writing = tuple(map(frozenset, model.writing)) if model.writing else None
    ranges = tuple(each.first for each in pair.real.ranges())
    offsets = frozenset(model.dirty), frozenset(model.marked), frozenset(model.lettered)
    return model.start, model.end, cells, offsets, writing, ranges


LIMITS = [Limits(3, 3), Limits(3, 2, has_dead_letters=True)]


@pytest.mark.parametrize("limits", LIMITS)
def test_every_short_sequence_of_events_on_four_offsets(limits: Limits) -> None:
    assert _explore(5, limits) > 500


@pytest.mark.timeout(600)
@pytest.mark.parametrize("limits", LIMITS)
def test_every_sequence_of_seven_events_on_four_offsets(limits: Limits) -> None:
    assert _explore(7, limits) > 5000
