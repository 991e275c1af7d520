"""Replicas of new partitions: on different brokers, in different racks, evenly."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.controller.conftest import broker_image

from barnabas.broker.controller.placement import place_replicas


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    factor=st.integers(1, 9),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_replicas_are_spread_over_racks_and_leaders_evenly(
    racks: list[str | None], factor: int, partitions: int, seed: int
) -> None:
    factor = min(factor, len(racks))
    rack_of = dict(enumerate(racks, 1))
    brokers = [broker_image(number, rack) for number, rack in rack_of.items()]
    placed = place_replicas(brokers, partitions, factor, Random(seed))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        used = Counter(rack_of[replica] for replica in replicas)
        assert len(used) == min(factor, len(set(racks)))
        sizes = Counter(racks)
        # a rack has one more than another only when the other is full
        assert all(
            used[rack] <= used[other] + 1 or used[other] == sizes[other] for rack in used for other in sizes
        )
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[number] for number in rack_of) <= 1


@given(brokers=st.integers(1, 6), rounds=st.integers(1, 5), factor=st.integers(1, 6))
def test_without_racks_every_broker_has_as_many_replicas(brokers: int, rounds: int, factor: int) -> None:
    factor = min(factor, brokers)
    images = [broker_image(number) for number in range(1, brokers + 1)]
    placed = place_replicas(images, brokers * rounds, factor, Random(1))
    held = Counter(replica for replicas in placed for replica in replicas)
    assert set(held.values()) == {rounds * factor}


@given(
    running=st.integers(1, 5),
    starting=st.integers(0, 3),
    away=st.integers(0, 3),
    factor=st.integers(1, 11),
    seed=st.integers(0, 9),
)
def test_others_get_replicas_only_where_those_that_run_are_too_few(
    running: int, starting: int, away: int, factor: int, seed: int
) -> None:
    factor = min(factor, running + starting + away)
    ids = [*range(1, 12)]
    alive = ids[:running]
    others = ids[running : running + starting], ids[running + starting :][:away]
    placed = place_replicas(map(broker_image, alive), 12, factor, Random(seed), others=others)
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in alive
        counts = [len({*replicas}.intersection(group)) for group in (alive, *others)]
        assert counts[0] == min(factor, running)
        assert counts[1] == min(factor - counts[0], starting)
