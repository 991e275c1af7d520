"""Combines the stored state batches of a share partition with newer ones.

An older and a newer batch can contain the same record. The record then gets the state and the count of the
batch with the higher delivery count, as in Kafka. At equal counts, the record gets the later of the two
delivery states, in the order available, archiving, acknowledged, archived. A record's count and state never
fall. So a late duplicate of a write changes nothing.

Unlike in Kafka, acknowledged comes after archiving. An example: a member rejects a record. The state
archiving is stored, but the member gets an error. The member then still has the record, and accepts it. The
state must become acknowledged, because the broker must not write an accepted record to a dead letter queue.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from barnabas.base.types import Offset
from barnabas.broker.coordinator.share_state.persister import StateBatch

#: by delivery state, its place in the order in which states override each other
_ORDER = {0: 0, 3: 1, 2: 2, 4: 3}
_first, _last = attrgetter("first_offset"), attrgetter("last_offset")


def is_ordered(batches: Sequence[StateBatch]) -> bool:
    """Whether the batches are in the order of their offsets, without overlaps, and none is empty."""
    end = -1
    for first, last, _, _ in batches:
        if not end < first <= last:
            return False
        end = last
    return True


def combine(
    older: tuple[StateBatch, ...], newer: Sequence[StateBatch], start: Offset
) -> tuple[StateBatch, ...]:
    """Return the combined batches, cut off below `start`. Each argument must pass `is_ordered`.

    The time grows with the number of newer batches and of older batches in the range of the newer ones.
    """
    combined = older
    if newer:
        # Older batches that touch a newer one may be joined with it.
        low = bisect_left(older, newer[0].first_offset - 1, key=_last)
        high = bisect_right(older, newer[-1].last_offset + 1, key=_first)
        touched = older[low:high]
        joined = tuple(_joined(_laid_over(touched, newer) if touched else iter(newer)))
        combined = older[:low] + joined + older[high:]
    below = bisect_left(combined, start, key=_last)
    if below:
        combined = combined[below:]
    if combined and combined[0].first_offset < start:
        combined = (combined[0]._replace(first_offset=start), *combined[1:])
    return combined


def _laid_over(older: Sequence[StateBatch], newer: Sequence[StateBatch]) -> Iterator[StateBatch]:
    """Yield the batches of both arguments, ordered by offset and cut so that they do not overlap.

    Offsets in two batches are yielded once: with the higher delivery count or, at equal counts, with the
    later delivery state in `_ORDER`.
    """
    olds, news = iter(older), iter(newer)
    old, new = next(olds, None), next(news, None)
    while old is not None and new is not None:
        if old.last_offset < new.first_offset:
            yield old
            old = next(olds, None)
        elif new.last_offset < old.first_offset:
            yield new
            new = next(news, None)
        elif old.first_offset < new.first_offset:
            yield old._replace(last_offset=new.first_offset - 1)
            old = old._replace(first_offset=new.first_offset)
        elif new.first_offset < old.first_offset:
            yield new._replace(last_offset=old.first_offset - 1)
            new = new._replace(first_offset=old.first_offset)
        else:
            end = min(old.last_offset, new.last_offset)
            kept = max(new, old, key=_rank)
            yield kept if kept.last_offset == end else kept._replace(last_offset=end)
            old = next(olds, None) if old.last_offset == end else old._replace(first_offset=end + 1)
            new = next(news, None) if new.last_offset == end else new._replace(first_offset=end + 1)
    if old is not None:
        yield old
    if new is not None:
        yield new
    yield from olds
    yield from news


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, _ORDER.get(batch.delivery_state, batch.delivery_state)


def _joined(batches: Iterator[StateBatch]) -> Iterator[StateBatch]:
    """Yield the batches, with contiguous ones of the same state and delivery count joined."""
    before = next(batches, None)
    if before is None:
        return
    _, last, state, count = before
    for batch in batches:
        next_first, next_last, next_state, next_count = batch
        if next_first == last + 1 and next_state == state and next_count == count:
            before = before._replace(last_offset=next_last)
        else:
            yield before
            before, state, count = batch, next_state, next_count
        last = next_last
    yield before
