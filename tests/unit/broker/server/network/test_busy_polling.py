"""The event loop polls for the next request, and pauses the polling."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable

import pytest

from barnabas.broker.server.network.busy_polling import (
    CREDIT,
    ITERATIONS,
    MAX_CREDIT,
    MAX_PAUSE,
    MIN_PAUSE,
    BusyPolling,
)

SOON, LATE = ITERATIONS // 2, ITERATIONS + 1
A_TRIAL = CREDIT // 2 + 1  # polls


class Loop:
    """An event loop that sleeps without callbacks. Requests arrive when the test says."""

    def __init__(self) -> None:
        self._soon: deque[Callable[[], None]] = deque()
        self._polling = BusyPolling(self._soon.append)

    def requests(self, after: Iterable[int]) -> list[bool]:
        """Serve a request, then wait this number of turns, and repeat. Return whether the loop is awake at
        each request.
        """
        return [self._awake_after(turns) for turns in after]

    def _awake_after(self, turns: int) -> bool:
        self._polling.served()
        for _ in range(turns):
            if self._soon:
                self._soon.popleft()()
        assert len(self._soon) <= 1
        return bool(self._soon)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_the_loop_stays_awake_while_requests_come_one_upon_the_other(loop: Loop) -> None:
    assert all(loop.requests([SOON] * 1000))


def test_it_sleeps_when_a_poll_is_over(loop: Loop) -> None:
    assert loop.requests([ITERATIONS - 1, ITERATIONS]) == [True, False]


def test_it_pauses_longer_and_longer_while_requests_come_late(loop: Loop) -> None:
    pause = MIN_PAUSE
    while pause < MAX_PAUSE:
        assert loop.requests([LATE] * A_TRIAL) == [False] * A_TRIAL
        assert not any(loop.requests([SOON] * pause))
        pause *= 2
    for _ in range(2):  # no longer than that
        loop.requests([LATE] * A_TRIAL)
        assert not any(loop.requests([SOON] * MAX_PAUSE))
    assert all(loop.requests([SOON] * 10))


def test_a_trial_that_pays_makes_up_for_those_that_did_not(loop: Loop) -> None:
    for pause in (MIN_PAUSE, 2 * MIN_PAUSE, 4 * MIN_PAUSE):
        loop.requests([LATE] * A_TRIAL + [LATE] * pause)
    loop.requests([SOON] * 2 * MAX_CREDIT)
    loop.requests([LATE] * (MAX_CREDIT // 2 + 1) + [LATE] * MIN_PAUSE)
    assert all(loop.requests([SOON] * 10))


@pytest.mark.parametrize(("late", "awake"), [(0.05, True), (0.25, True), (0.4, False), (0.6, False)])
def test_it_pays_while_more_than_two_of_three_requests_come_soon(
    loop: Loop, late: float, awake: bool
) -> None:
    chance = random.Random(7)
    after = [LATE if chance.random() < late else SOON for _ in range(40_000)]
    met = sum(loop.requests(after)) / (len(after) * (1 - late))
    assert met > 0.9 if awake else met < 0.1
