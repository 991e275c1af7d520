"""Combines ranges of delivery states, and compares the result with a model of single records."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinator import StateBatch
from barnabas.broker.coordinator.share_state.batches import combine, is_ordered

LAST = 30
states = st.sampled_from([0, 2, 4])
counts = st.integers(1, 3)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[StateBatch, ...]:
    """Generate batches in order, without overlaps."""
    ends = sorted(draw(st.lists(st.integers(0, LAST), unique=True, max_size=12)))
    pairs = zip(ends[::2], ends[1::2], strict=False)
    return tuple(StateBatch(first, last, draw(states), draw(counts)) for first, last in pairs)


def records(batches: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    """Return the state and the delivery count of each record."""
    return {
        offset: (state, count) for first, last, state, count in batches for offset in range(first, last + 1)
    }


@given(st.lists(ranges(), max_size=5), st.integers(-1, LAST + 2))
def test_combined_ranges_are_what_the_records_are_one_by_one(layers, start):
    combined: tuple[StateBatch, ...] = ()
    model: dict[int, tuple[int, int]] = {}
    for layer in layers:
        combined = combine(combined, layer, -1)
        for offset, (state, count) in records(layer).items():
            there = model.get(offset)
            model[offset] = max((state, count), there or (state, count), key=lambda each: (each[1], each[0]))
    combined = combine(combined, (), start)
    assert records(combined) == {offset: each for offset, each in model.items() if offset >= start}
    assert is_ordered(combined)
    for before, after in pairwise(combined):
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:], "not joined"


@given(ranges(), ranges())
def test_a_late_duplicate_changes_nothing(older, newer):
    combined = combine(combine((), older, -1), newer, -1)
    assert combine(combined, newer, -1) == combined
    assert combine(combined, older, -1) == combined


def test_a_start_inside_a_range_cuts_it():
    assert combine((StateBatch(0, 9, 2, 1), StateBatch(10, 19, 0, 1)), (), 5) == (
        StateBatch(5, 9, 2, 1),
        StateBatch(10, 19, 0, 1),
    )


def test_ranges_of_one_state_are_joined_across_what_is_between_them():
    older = (StateBatch(0, 4, 2, 1), StateBatch(10, 14, 2, 1))
    assert combine(older, [StateBatch(5, 9, 2, 1)], -1) == (StateBatch(0, 14, 2, 1),)


def test_overlapping_reversed_and_negative_ranges_are_not_in_order():
    good = StateBatch(5, 9, 0, 1)
    assert is_ordered([good, StateBatch(10, 10, 0, 1)])
    for bad in (StateBatch(9, 12, 0, 1), StateBatch(12, 11, 0, 1), StateBatch(0, 1, 0, 1)):
        assert not is_ordered([good, bad])
    assert not is_ordered([StateBatch(-1, 3, 0, 1)])


def test_an_accepted_record_needs_no_dead_letter_though_a_lost_rejection_was_stored() -> None:
    rejected, accepted, archived = (StateBatch(5, 5, state, 1) for state in (3, 2, 4))
    assert combine((rejected,), (accepted,), -1) == (accepted,)
    assert combine((accepted,), (rejected,), -1) == (accepted,)
    assert combine((rejected,), (archived,), -1) == (archived,)
    assert combine((rejected,), (StateBatch(5, 5, 0, 1),), -1) == (rejected,)
