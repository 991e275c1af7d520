"""A search finds the rows of a batch that a sink rejects: it tries parts of the batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipelines.bisect import find_rejected

COUNT = 200


class Sink:
    """A sink that accepts all parts without a bad row, and remembers their order."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.taken: list[int] = []
        self.attempts = 0

    def attempt(self, start: int, end: int) -> str | None:
        self.attempts += 1
        rejected = [row for row in range(start, end) if row in self.bad]
        if rejected:
            return f"row {rejected[0]}"
        self.taken += range(start, end)
        return None


@given(st.sets(st.integers(0, COUNT - 1)))
def test_exactly_the_bad_rows_are_rejected_and_the_others_taken_once_in_their_order(bad: set[int]) -> None:
    sink = Sink(bad)
    found = find_rejected(COUNT, sink.attempt, lambda count, reason: None)
    assert found == {row: f"row {row}" for row in sorted(bad)}
    assert list(found) == sorted(bad)
    assert sink.taken == [row for row in range(COUNT) if row not in bad]


def test_a_batch_without_bad_rows_takes_one_attempt_and_one_without_rows_none() -> None:
    sink = Sink(set())
    find_rejected(COUNT, sink.attempt, lambda count, reason: None)
    assert sink.attempts == 1
    assert find_rejected(0, sink.attempt, lambda count, reason: None) == {}
    assert sink.attempts == 1


def test_too_many_bad_rows_end_the_search_early() -> None:
    sink = Sink(set(range(100_000)))

    def check(count: int, reason: str) -> None:
        if count > 3:
            raise ValueError(reason)

    with pytest.raises(ValueError, match="row 3"):
        find_rejected(100_000, sink.attempt, check)
    assert sink.attempts < 30
