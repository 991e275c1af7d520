"""The time since a partition ended at a group's offset."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from barnabas.base.types import TopicPartition
from barnabas.broker.server.monitoring.log_ends import EndHistory

ORDERS = TopicPartition("orders", 0)


def history(*seen):
    made = EndHistory()
    for now, end in seen:
        made.note(ORDERS, end, now)
    return made


def test_a_group_at_the_end_is_not_behind():
    assert history((0, 10)).seconds_behind(ORDERS, 10, 10, 100) == 0


def test_the_time_at_which_the_partition_ended_there_is_interpolated():
    seen = history((0, 0), (10, 100), (20, 100), (30, 200))
    assert seen.seconds_behind(ORDERS, 50, 200, 30) == approx(25)
    assert seen.seconds_behind(ORDERS, 100, 200, 30) == approx(20)
    assert seen.seconds_behind(ORDERS, 199, 200, 40) == approx(10.2)


def test_what_was_there_before_the_first_reading_is_extrapolated():
    assert history((0, 100), (10, 200)).seconds_behind(ORDERS, 50, 200, 10) == approx(15)


def test_without_growth_the_first_reading_is_a_lower_bound():
    assert history((0, 100)).seconds_behind(ORDERS, 50, 100, 60) == 60


def test_a_partition_that_was_made_again_begins_anew():
    seen = history((0, 100), (10, 5), (20, 15))
    assert seen.seconds_behind(ORDERS, 5, 15, 20) == approx(10)


def test_what_no_group_reads_any_more_is_forgotten():
    seen = history((0, 100))
    seen.keep_only({})
    assert seen.seconds_behind(ORDERS, 0, 100, 50) == 0


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 1000)), min_size=1, max_size=200))
def test_lag_is_never_negative_and_grows_towards_older_offsets(steps):
    made, now, end = EndHistory(), 0.0, 0
    for seconds, records in steps:
        now, end = now + seconds, end + records
        made.note(ORDERS, end, now)
    behind = [
        made.seconds_behind(ORDERS, offset, end, now) for offset in range(0, end + 1, max(1, end // 20))
    ]
    assert all(each >= 0 for each in behind)
    assert all(a >= b - 1e-6 for a, b in itertools.pairwise(behind))
    assert len(made._seen[ORDERS]) <= 32
