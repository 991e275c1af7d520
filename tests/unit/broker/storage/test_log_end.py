"""Tests of `contains`: whether a log has all records of another one, by leader epochs alone."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.log_end import LogEnd, contains

STARTS = [(2, 5), (3, 14), (6, 20)]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (LogEnd(2, 14), True),
        (LogEnd(2, 15), False),  # records of epoch 2 that the log has replaced by records of epoch 3
        (LogEnd(3, 20), True),
        (LogEnd(5, 18), False),  # the log has no records of epoch 5
        (LogEnd(6, 30), True),
        (LogEnd(6, 31), False),
        (LogEnd(7, 31), False),
        (LogEnd(1, 5), False),  # older epochs are not known
        (LogEnd(1, 6), False),  # the other log has an older record where this one has a record of epoch 2
        (LogEnd(-1, 4), False),  # its records were removed: this log may have others at their offsets
        (LogEnd(-1, 0), True),  # it never had a record
    ],
)
def test_log_contains_another_one_whose_last_epoch_reaches_as_far_in_it(
    other: LogEnd, expected: bool
) -> None:
    assert contains(STARTS, LogEnd(6, 30), other) is expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [(LogEnd(6, 30), True), (LogEnd(6, 31), False), (LogEnd(5, 9), False), (LogEnd(-1, 9), False)],
)
def test_of_a_log_that_tells_no_epochs_only_the_last_epoch_is_known(other: LogEnd, expected: bool) -> None:
    assert contains([], LogEnd(6, 30), other) is expected


def test_log_that_tells_nothing_contains_only_what_never_had_a_record() -> None:
    assert contains([], LogEnd(-1, 30), LogEnd(-1, 0))
    assert not contains([], LogEnd(-1, 30), LogEnd(-1, 9))
    assert not contains([], LogEnd(-1, 30), LogEnd(2, 9))
