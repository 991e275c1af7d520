"""Faults of the connection between brokers and the simulated ZooKeeper ensemble."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from simulation.ensemble import SimulatedEnsemble

from barnabas.broker.metadata import znodes
from soak.simulated.plan import SESSION_TIMEOUT
from soak.simulated.stage import Stage, host_of


class EnsembleFaults:
    """Faults of one broker's session, and of the whole ensemble."""

    def __init__(self, stage: Stage, ensemble: SimulatedEnsemble) -> None:
        self._ensemble = ensemble
        self._names = [host_of(number) for number in stage.broker_ids]

    @property
    def kinds(self) -> list[Callable[[Random], Coroutine[Any, Any, None]]]:
        return [
            self._cut_from_ensemble,
            self._ensemble_away,
            self._suspend,
            self._expire,
            self._lag,
            self._hold_back,
            self._lose_answer_of_ensemble,
        ]

    async def _cut_from_ensemble(self, random: Random) -> None:
        """Cut a broker off from the ensemble, for less than the session timeout or for longer."""
        name = random.choice(self._names)
        self._ensemble.cut(name)
        await asyncio.sleep(random.uniform(0.1, 2.5 * SESSION_TIMEOUT))
        self._ensemble.heal(name)

    async def _ensemble_away(self, random: Random) -> None:
        for name in self._names:
            self._ensemble.cut(name)
        await asyncio.sleep(random.uniform(0.1, 1.5 * SESSION_TIMEOUT))
        for name in random.sample(self._names, len(self._names)):
            self._ensemble.heal(name)
            await asyncio.sleep(random.choice([0.0, random.uniform(0.0, 0.5)]))

    async def _suspend(self, random: Random) -> None:
        for name in random.sample(self._names, random.randint(1, len(self._names))):
            self._ensemble.reset(name)

    async def _expire(self, random: Random) -> None:
        for name in random.sample(self._names, random.choice([1, 1, 2])):
            self._ensemble.expire(name)

    async def _lag(self, random: Random) -> None:
        """Delay the metadata of one broker."""
        name = random.choice(self._names)
        self._ensemble.lag(name, random.choice([0.05, 0.3, 1.0]))
        await asyncio.sleep(random.uniform(0.5, 5.0))
        self._ensemble.lag(name, 0.0)

    async def _hold_back(self, random: Random) -> None:
        self.hold_back(random)

    def hold_back(self, random: Random) -> None:
        """Stop all metadata for some brokers, or for all but the controller; then deliver it at once.

        These brokers never see a state that lasted less than this time. For example, the same leader may have
        led in other epochs.
        """
        node = self._ensemble.tree.find(znodes.CONTROLLER)
        controller = None if node is None else host_of(znodes.decode_controller(node.data))
        others = [name for name in self._names if name != controller]
        if random.random() < 0.5:
            others = random.sample(others, random.randint(1, len(others)))
        seconds = random.uniform(0.1, 1.5)
        for name in others:
            self._ensemble.hold_back(name, seconds + random.uniform(0.0, 0.3))

    async def _lose_answer_of_ensemble(self, random: Random) -> None:
        for name in random.sample(self._names, random.randint(1, len(self._names))):
            self._ensemble.lose_answer(name)
