"""The counts of a share group's fetches."""

from __future__ import annotations

from barnabas.broker.sharing.counts import MAX_GROUPS, ShareCounts


def test_a_group_that_never_acquired_records_has_no_counts():
    counts = ShareCounts()
    counts.fetched("idle", 0, 3, 5.0)
    assert not counts.fetches


def test_a_fetch_of_a_large_session_begins_the_counts_though_its_ratio_is_0():
    counts = ShareCounts()
    counts.fetched("g", 1, 101, 0.001)
    assert (counts.fetches["g"].ratios.sum, counts.fetches["g"].ratios.count) == (0, 1)


def test_later_fetches_without_records_count_too():
    counts = ShareCounts()
    counts.fetched("g", 2, 3, 0.25)
    counts.fetched("g", 0, 3, 0.5)
    found = counts.fetches["g"]
    assert (found.ratios.sum, found.ratios.count) == (66, 2)
    assert (found.times.seconds, found.times.count) == (0.75, 2)


def test_groups_without_end_do_not_have_counts_without_end():
    counts = ShareCounts()
    for number in range(MAX_GROUPS + 5):
        for group in ("busy", f"g{number}"):
            counts.fetched(group, 1, 1, 0.001)
            counts.letters_of(group).requests += 1
    assert len(counts.fetches) == len(counts.letters) == MAX_GROUPS
    assert counts.fetches["busy"].times.count == counts.letters["busy"].requests == MAX_GROUPS + 5
    assert "g0" not in counts.letters
