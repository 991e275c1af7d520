"""Exclusive and shared operations of one key, in the order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinator.keyed_lock import KeyedLock


class Operations:
    """Operations of one key, as a runtime runs them. Each holds the lock until the test ends it."""

    def __init__(self):
        self.lock = KeyedLock()
        self.running: list[tuple[int, bool]] = []
        self.started: list[int] = []

    def ask(self, number, shared):
        if self.lock.is_free("k", shared):
            self._start(number, shared)
        else:
            self.lock.wait("k", shared, lambda: self._start(number, shared))

    def finish(self, index):
        _, shared = self.running.pop(index)
        self.lock.release("k", shared)

    def _start(self, number, shared):
        self.started.append(number)
        self.running.append((number, shared))
        self.lock.acquire("k", shared)
        alone = [n for n, t in self.running if not t]
        assert not alone or len(self.running) == 1


@pytest.fixture
def operations():
    return Operations()


def test_an_exclusive_operation_runs_alone(operations):
    operations.ask(1, shared=False)
    operations.ask(2, shared=False)
    operations.ask(3, shared=True)
    assert operations.started == [1]
    operations.finish(0)
    assert operations.started == [1, 2]
    operations.finish(0)
    assert operations.started == [1, 2, 3]


def test_shared_operations_run_at_once(operations):
    for number in (1, 2, 3):
        operations.ask(number, shared=True)
    assert operations.started == [1, 2, 3]


def test_an_exclusive_operation_is_not_overtaken(operations):
    operations.ask(1, shared=True)
    operations.ask(2, shared=False)
    operations.ask(3, shared=True)
    assert operations.started == [1]
    operations.finish(0)
    assert operations.started == [1, 2]
    operations.finish(0)
    assert operations.started == [1, 2, 3]


def test_keys_do_not_wait_for_each_other(operations):
    operations.ask(1, shared=False)
    assert operations.lock.is_free("other", shared=False)


@given(st.lists(st.one_of(st.booleans(), st.integers(0, 5)), max_size=40))
def test_everybody_runs_once_in_the_order_of_arrival(steps):
    operations, asked = Operations(), 0
    for step in steps:
        if isinstance(step, bool):
            operations.ask(asked, shared=step)
            asked += 1
        elif operations.running:
            operations.finish(step % len(operations.running))
    while operations.running:
        operations.finish(0)
    assert operations.started == list(range(asked))
    assert operations.lock.is_free("k", shared=False)
