"""A broker of a cluster starts though its connection to the ensemble breaks, at any point of the start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from soak.roles.common import Task
from soak.simulated.bugs import replaced
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.plan import TOPICS
from soak.simulated.stage import Stage, Trace, host_of
from soak.simulated.survey import Survey

from barnabas.metadata.store import SessionState
from barnabas.simulation.ensemble import SimulatedStore
from barnabas.simulation.virtual_time import run_virtual


class Breaking:
    """Breaks one broker's connection behind the request with this number, counted from `begin` on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.left = -1

    @contextmanager
    def planted(self) -> Iterator[None]:
        ask = SimulatedStore._ask

        async def asking(store: SimulatedStore, pending: Any) -> Any:
            if store.name == self._name and store.state is SessionState.CONNECTED:
                if self.left == 0:
                    store.break_soon()
                self.left -= 1
            return await ask(store, pending)

        with replaced((SimulatedStore, "_ask", asking)):
            yield


@pytest.mark.parametrize("victim", [1, 2])
def test_start_goes_on_after_its_connection_to_the_ensemble_has_broken(victim: int) -> None:
    """Seeds 215, 402 and 407: of a start that breaks off nothing is left but work for the next one."""

    async def scenario() -> None:
        stage = Stage(victim, Trace(), 3)
        cluster = SimulatedCluster(stage, durable=True)
        assert await cluster.up()
        survey = Survey(stage, Task("survey", "survey", "simulated", "", "", 1, {}))
        await survey.create("events", 3, 3, TOPICS["events"])
        breaking = Breaking(host_of(victim))
        broker = cluster.brokers[victim]
        with breaking.planted():
            number = 0
            while breaking.left < 0:
                if number % 2:
                    await broker.stop()
                else:
                    broker.kill(power=False)
                breaking.left = number
                started = await broker.start()
                assert stage.violations == []
                assert started, f"request {number}"
                await asyncio.sleep(1)
                number += 1
        assert number > 10
        for each in cluster.brokers.values():
            await each.stop()

    run_virtual(scenario())
