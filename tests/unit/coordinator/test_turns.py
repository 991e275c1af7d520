"""Turns: alone or together, in the order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.turns import Turns


class Operations:
    """Operations of one key as a runtime runs them: each holds its turn until it is told to finish."""

    def __init__(self):
        self.turns = Turns()
        self.running: list[tuple[int, bool]] = []
        self.started: list[int] = []

    def ask(self, number, together):
        if self.turns.is_free("k", together):
            self._start(number, together)
        else:
            self.turns.wait("k", together, lambda: self._start(number, together))

    def finish(self, index):
        _, together = self.running.pop(index)
        self.turns.give_back("k", together)

    def _start(self, number, together):
        self.started.append(number)
        self.running.append((number, together))
        self.turns.take("k", together)
        alone = [n for n, t in self.running if not t]
        assert not alone or len(self.running) == 1


@pytest.fixture
def operations():
    return Operations()


def test_alone_means_alone(operations):
    operations.ask(1, together=False)
    operations.ask(2, together=False)
    operations.ask(3, together=True)
    assert operations.started == [1]
    operations.finish(0)
    assert operations.started == [1, 2]
    operations.finish(0)
    assert operations.started == [1, 2, 3]


def test_together_means_at_once(operations):
    for number in (1, 2, 3):
        operations.ask(number, together=True)
    assert operations.started == [1, 2, 3]


def test_who_wants_to_be_alone_is_not_passed_by(operations):
    operations.ask(1, together=True)
    operations.ask(2, together=False)
    operations.ask(3, together=True)
    assert operations.started == [1]
    operations.finish(0)
    assert operations.started == [1, 2]
    operations.finish(0)
    assert operations.started == [1, 2, 3]


def test_keys_do_not_wait_for_each_other(operations):
    operations.ask(1, together=False)
    assert operations.turns.is_free("other", together=False)


@given(st.lists(st.one_of(st.booleans(), st.integers(0, 5)), max_size=40))
def test_everybody_runs_once_in_the_order_of_arrival(steps):
    operations, asked = Operations(), 0
    for step in steps:
        if isinstance(step, bool):
            operations.ask(asked, together=step)
            asked += 1
        elif operations.running:
            operations.finish(step % len(operations.running))
    while operations.running:
        operations.finish(0)
    assert operations.started == list(range(asked))
    assert operations.turns.is_free("k", together=False)
