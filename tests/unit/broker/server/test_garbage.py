"""Full garbage collections of a broker's process."""

import asyncio
import gc
import sys

import pytest
from simulation.virtual_time import run_virtual

from barnabas.broker.server import garbage

THRESHOLDS = gc.get_threshold()


class Circle:
    def __init__(self):
        self.me = self


def circles():
    return sum(isinstance(thing, Circle) for thing in gc.get_objects())


@pytest.fixture(autouse=True)
def frozen_again():
    """Freeze the objects of pytest again, because a later collection of them would take 0.3 s of CPU time."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def collections():
    with garbage.short_collections() as collections:
        collections.begin()
        yield collections


def old_circles():
    """Return reference cycles that have survived a full collection and are not used any more."""
    kept = [Circle() for _ in range(10)]
    gc.collect()
    del kept


def overdue(collections):
    """Make a full collection due: many new objects, and much more memory in use."""
    collections._new_ones = garbage._NEW_ONES
    collections._blocks = 0


def left_of_old_circles():
    gc.unfreeze()
    try:
        return circles()
    finally:
        gc.freeze()


def test_what_has_survived_is_not_looked_at_again(collections):
    kept = [Circle() for _ in range(100)]
    gc.collect()
    before = gc.get_freeze_count()
    assert circles() == 0  # they are out of the collector's sight
    del kept
    gc.collect()
    assert gc.get_freeze_count() <= before


def test_new_circles_are_freed(collections):
    Circle()
    gc.collect()
    assert circles() == 0


def test_old_circles_wait_however_many_collections_there_are(collections):
    old_circles()
    for _ in range(3 * garbage._NEW_ONES):
        gc.collect()
    assert left_of_old_circles() == 10


class Clients:
    """Clients that send something every few seconds until they end."""

    def __init__(self, every, end):
        self.every, self.end = every, end

    def silent_for(self):
        now = asyncio.get_running_loop().time()
        return now % self.every if now < self.end else now - self.end


def served(collections, silent_for, seconds, cpu_time=lambda: 0.0):
    """Serve for some virtual seconds."""

    async def serve():
        collecting = asyncio.ensure_future(garbage.collect_all_when_idle(collections, silent_for, cpu_time))
        await asyncio.sleep(seconds)
        collecting.cancel()

    run_virtual(serve())


def test_all_objects_are_collected_only_when_the_clients_have_been_silent_for_long(collections, monkeypatch):
    monkeypatch.setattr(garbage.Collections, "seconds", 0.25)
    overdue(collections)
    old_circles()
    clients = Clients(every=2.4, end=100)
    served(collections, clients.silent_for, 100)
    assert left_of_old_circles() == 10
    clients.end = 0
    served(collections, clients.silent_for, 4)
    assert left_of_old_circles() == 0


def test_clients_may_come_right_after_the_start(collections, monkeypatch):
    monkeypatch.setattr(garbage.Collections, "seconds", 0.25)
    overdue(collections)
    old_circles()
    served(collections, lambda: float("inf"), 2)
    assert left_of_old_circles() == 10


def test_a_process_that_works_is_not_idle_though_no_client_sends_anything(collections):
    overdue(collections)
    old_circles()
    served(collections, lambda: 100.0, 60, lambda: asyncio.get_running_loop().time() * 0.5)
    assert left_of_old_circles() == 10


def test_a_collection_of_all_objects_is_due_after_many_of_new_ones_once_memory_has_grown(
    collections, monkeypatch
):
    blocks = 1000
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: blocks)
    collections.collect_all()
    for _ in range(garbage._NEW_ONES):
        gc.collect()
    assert not collections.due
    blocks = 1500
    assert collections.due
    collections.collect_all()
    assert not collections.due


def test_a_collection_of_all_objects_is_due_once_few_objects_hold_many_more_bytes(collections, monkeypatch):
    held = 100 << 20
    monkeypatch.setattr(garbage, "memory_held", lambda: held)
    collections.collect_all()
    held = 140 << 20  # not by half
    assert not collections.due
    held = 164 << 20
    assert collections.due
    collections.collect_all()
    assert not collections.due


def test_a_small_process_may_grow_by_some_megabytes(collections, monkeypatch):
    held = 20 << 20
    monkeypatch.setattr(garbage, "memory_held", lambda: held)
    collections.collect_all()
    held = 80 << 20
    assert not collections.due
    held = 84 << 20
    assert collections.due


def test_a_broker_that_does_not_grow_is_never_stopped_for_all_objects(collections, monkeypatch):
    monkeypatch.setattr(garbage.Collections, "seconds", 0.0)
    old_circles()
    for _ in range(garbage._NEW_ONES):
        gc.collect()
    served(collections, lambda: float("inf"), 100)
    assert left_of_old_circles() == 10


def test_it_is_known_how_long_a_collection_of_all_objects_will_take(collections):
    collections.collect_all()
    before = collections.seconds
    assert before > 0
    kept = [[] for _ in range(500_000)]
    assert collections.seconds > before
    del kept


def test_nothing_is_collected_during_the_start():
    with garbage.short_collections() as collections:
        assert not gc.isenabled()
        collections.begin()
        assert gc.isenabled()
        assert gc.get_freeze_count()


@pytest.mark.parametrize("has_started", [False, True])
def test_everything_is_as_before_when_it_is_left(has_started):
    with garbage.short_collections() as collections:
        if has_started:
            collections.begin()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == THRESHOLDS
