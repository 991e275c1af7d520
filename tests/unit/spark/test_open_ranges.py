"""The progress of a task, and the lost records of its ranges."""

from __future__ import annotations

import logging

import pytest

from barnabas.base.types import TopicPartition
from barnabas.spark.open_ranges import DataLossError, OpenRanges
from barnabas.spark.ranges import OffsetRange

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(*ranges: tuple[int, int], fail: bool = True) -> OpenRanges:
    planned = [OffsetRange("t", partition, start, end) for partition, (start, end) in enumerate(ranges)]
    return OpenRanges(planned, fail)


def test_a_range_ends_when_its_end_is_reached_or_passed() -> None:
    ranges = opened((3, 6), (0, 2))
    ranges.advance(A, 5)
    assert (list(ranges), ranges.position(A)) == ([B, A], 5)
    ranges.advance(A, 9)  # the last offsets of the range were a gap
    ranges.advance(B, 2)
    assert not ranges


def test_who_was_served_last_is_asked_for_last() -> None:
    ranges = opened((0, 9), (0, 9))
    ranges.advance(A, 1)
    assert list(ranges) == [B, A]
    ranges.advance(B, 1)
    assert list(ranges) == [A, B]


def test_a_log_that_starts_within_the_range_is_gone_on_with(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ranges = opened((3, 9), fail=False)
        ranges.go_on_at(A, 5)
    assert ranges.position(A) == 5
    assert "t-0: offsets 3 to 4 are gone; continuing, because failOnDataLoss=false" in caplog.text


@pytest.mark.parametrize("earliest", [9, 20, 0])
def test_a_log_that_has_nothing_of_the_range_ends_it(earliest: int) -> None:
    ranges = opened((3, 9), fail=False)
    ranges.go_on_at(A, earliest)
    assert not ranges


def test_a_loss_fails_the_task_and_names_what_is_gone() -> None:
    hint = "to continue with the remaining records, set the option failOnDataLoss=false"
    with pytest.raises(DataLossError, match=f"t-0: offsets 3 to 8 are gone; {hint}"):
        opened((3, 9)).end_early(A)
    with pytest.raises(DataLossError, match=f"t-0 is gone; {hint}"):
        opened((3, 9)).close_gone(A)
