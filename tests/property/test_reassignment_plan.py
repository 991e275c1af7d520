"""Plans of reassignments: even, across racks, and with as few moves as possible."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.types import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.reassignment_plan import Placement, plan_drain, plan_spread

Current = Mapping[TopicPartition, Sequence[int]]


@st.composite
def clusters(draw: st.DrawFn, *, racks: bool = True) -> tuple[Current, dict[int, str | None], int]:
    """Generate partitions with one replication factor on some brokers, the live brokers with racks, and the
    factor.
    """
    count = draw(st.integers(1, 7))
    names = st.sampled_from(["a", "b", "c"]) if racks else st.none()
    brokers = {number: draw(names) for number in range(1, count + 1)}
    factor = draw(st.integers(1, count))
    holders = st.lists(st.sampled_from(range(1, count + 3)), min_size=factor, max_size=factor, unique=True)
    partitions = draw(st.lists(holders, max_size=30))
    return {TopicPartition("t", n): replicas for n, replicas in enumerate(partitions)}, brokers, factor


def after(current: Current, plan: Placement) -> dict[TopicPartition, tuple[int, ...]]:
    return {partition: plan.get(partition, tuple(replicas)) for partition, replicas in current.items()}


def moved(current: Current, plan: Placement) -> int:
    return sum(len(set(replicas) - set(current[partition])) for partition, replicas in plan.items())


def rack_count(replicas: Sequence[int], racks: Mapping[int, str | None]) -> int:
    return len({racks[replica] for replica in replicas if replica in racks})


@given(clusters())
def test_replicas_are_where_they_may_be_and_on_no_fewer_racks(
    cluster: tuple[Current, dict[int, str | None], int],
) -> None:
    current, racks, factor = cluster
    plan = plan_spread(current, racks)
    assert all(tuple(current[partition]) != replicas for partition, replicas in plan.items())
    for partition, replicas in after(current, plan).items():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= racks.keys()
        assert rack_count(replicas, racks) >= rack_count(current[partition], racks)


@given(clusters(racks=False))
def test_without_racks_all_brokers_hold_as_much_and_no_more_moves_than_has_to(
    cluster: tuple[Current, dict[int, str | None], int],
) -> None:
    current, racks, _ = cluster
    plan = plan_spread(current, racks)
    placed = after(current, plan).values()
    held = Counter(dict.fromkeys(racks, 0)) + Counter(replica for replicas in placed for replica in replicas)
    loads = [held[broker] for broker in racks]
    assert max(loads) - min(loads) <= 1
    before = Counter(replica for replicas in current.values() for replica in replicas)
    share = math.ceil(sum(loads) / len(loads))
    too_many = sum(max(0, before[broker] - share) for broker in racks)
    homeless = sum(before[broker] for broker in before if broker not in racks)
    too_few = sum(max(0, min(loads) - before[broker]) for broker in racks)
    # A homeless replica cannot always go to a broker that has too few: it may hold the partition already.
    assert moved(current, plan) <= too_many + homeless + too_few


@given(clusters(racks=False))
def test_leaders_are_as_even_as_the_replicas_allow(
    cluster: tuple[Current, dict[int, str | None], int],
) -> None:
    current, racks, factor = cluster
    placed = after(current, plan_spread(current, racks)).values()
    led = Counter(replicas[0] for replicas in placed)
    if factor == len(racks):
        assert max(led[broker] for broker in racks) - min(led[broker] for broker in racks) <= 1
    assert all(led[broker] <= math.ceil(len(current) / len(racks)) + 1 for broker in racks)


@given(clusters())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    cluster: tuple[Current, dict[int, str | None], int],
) -> None:
    current, racks, _ = cluster
    assert plan_spread(after(current, plan_spread(current, racks)), racks) == {}


@given(clusters(), st.integers(1, 7))
def test_a_drained_broker_holds_nothing_and_nothing_else_moves(
    cluster: tuple[Current, dict[int, str | None], int], broker: int
) -> None:
    current, racks, factor = cluster
    others = racks.keys() - {broker}
    try:
        plan = plan_drain(current, racks, broker)
    except ClientError:
        assert any(broker in replicas for replicas in current.values())
        assert len(others) < factor
        return
    assert plan.keys() == {partition for partition, replicas in current.items() if broker in replicas}
    for partition, replicas in plan.items():
        gone = set(current[partition]) - set(replicas)
        assert gone == {broker}
        (new,) = set(replicas) - set(current[partition])
        assert new in others
        free = others - set(current[partition])
        stays = [racks[each] for each in replicas if each != new and each in racks]
        assert racks[new] not in stays or all(racks[each] in stays for each in free)


@given(clusters(), st.integers(1, 7))
def test_another_number_of_replicas_is_reached(
    cluster: tuple[Current, dict[int, str | None], int], factor: int
) -> None:
    current, racks, _ = cluster
    if factor > len(racks):
        if current:
            with pytest.raises(ClientError, match="brokers for them"):
                plan_spread(current, racks, replication_factor=factor)
        return
    for replicas in after(current, plan_spread(current, racks, replication_factor=factor)).values():
        assert len(set(replicas)) == len(replicas) == factor


def test_a_new_broker_takes_its_share_and_nothing_else_moves() -> None:
    current = {TopicPartition("t", n): [1 + n % 3, 1 + (n + 1) % 3] for n in range(60)}
    plan = plan_spread(current, dict.fromkeys(range(1, 5)))
    assert moved(current, plan) == 30
    assert all(set(replicas) - set(current[partition]) <= {4} for partition, replicas in plan.items())


def test_ten_thousand_partitions_are_planned_in_seconds() -> None:
    current = {TopicPartition("t", n): [n % 9, (n + 1) % 9, (n + 4) % 9] for n in range(10_000)}
    plan = plan_spread(current, {number: "abc"[number % 3] for number in range(10)})
    held = Counter(replica for replicas in after(current, plan).values() for replica in replicas)
    assert moved(current, plan) <= 3400
    assert max(held.values()) - min(held.values()) <= 400
