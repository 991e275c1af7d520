"""Which of two logs has all records of the other one, by leader epochs alone."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.log_end import LogEnd, may_contain

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
        (LogEnd(1, 5), True),  # older epochs are not known
        (LogEnd(1, 6), False),  # the other log has an older record where this one has a record of epoch 2
        (LogEnd(-1, 99), True),  # its records were removed
    ],
)
def test_log_contains_another_one_whose_last_epoch_reaches_as_far_in_it(
    other: LogEnd, expected: bool
) -> None:
    assert may_contain(STARTS, 30, other) is expected


def test_log_whose_epochs_are_not_known_may_contain_any() -> None:
    assert may_contain([], 30, LogEnd(5, 31))
