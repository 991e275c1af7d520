"""Throttles of `barnabas topics reassign execute`: which copies of a plan are limited."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.base.types import TopicPartition
from barnabas.cli import moving
from barnabas.client import move_throttle
from barnabas.client.moves import Move, PartitionReplicas

ORDERS = ("orders", 0)


@pytest.fixture
def copies_of(monkeypatch):
    """``copies_of(plan, under_way, holders)``: return (sources, added replicas) of each throttled move."""
    throttled = {}
    monkeypatch.setattr(move_throttle, "throttle", lambda brokers, moves, *rest: throttled.update(moves))

    def copies(plan, under_way, replicas):
        cluster = SimpleNamespace(
            brokers=None,
            cluster=lambda: SimpleNamespace(nodes=[]),
            reassignments=lambda: under_way,
            replicas_of=lambda topics: {
                each: PartitionReplicas(1, held, (1,)) for each, held in replicas.items()
            },
        )
        plan = {TopicPartition(*partition): target for partition, target in plan.items()}
        moving.throttle_plan(cluster, plan, 5_000)
        return {
            partition: ([each for each in move.replicas if each not in move.adding], [*move.adding])
            for partition, move in throttled.items()
        }

    return copies


def test_a_plan_that_begins_throttles_the_copies_to_its_new_replicas(copies_of):
    assert copies_of({ORDERS: (2, 3)}, {}, {ORDERS: (1, 2)}) == {ORDERS: ([1, 2], [3])}


def test_a_plan_that_is_under_way_stays_throttled_when_it_is_executed_again(copies_of):
    under_way = {ORDERS: Move(replicas=(2, 3, 1), adding=(3,), removing=(1,))}
    assert copies_of({ORDERS: (2, 3)}, under_way, {ORDERS: (2, 3, 1)}) == {ORDERS: ([2, 1], [3])}


def test_a_plan_that_replaces_a_move_throttles_its_own_new_replicas(copies_of):
    under_way = {ORDERS: Move(replicas=(2, 3, 1), adding=(3,), removing=(1,))}
    assert copies_of({ORDERS: (2, 4)}, under_way, {ORDERS: (2, 3, 1)}) == {ORDERS: ([2, 1], [4])}


def test_moves_outside_the_plan_are_throttled_too(copies_of):
    other = ("payments", 0)
    under_way = {other: Move(replicas=(1, 2), adding=(2,), removing=())}
    copies = copies_of({ORDERS: (3,)}, under_way, {ORDERS: (1,)})
    assert copies == {other: ([1], [2]), ORDERS: ([1], [3])}
