"""A broker of a cluster starts although its connection to the ensemble breaks at some point of the start."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from simulation.ensemble import SimulatedStore
from simulation.virtual_time import run_virtual
from soak.roles.common import Task
from soak.simulated.bugs import replaced
from soak.simulated.client import GROUP
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.plan import SESSION_TIMEOUT, TOPICS
from soak.simulated.stage import Stage, Trace, host_of
from soak.simulated.survey import Survey
from tests.simulation.scene import Scene, play

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata.store import SessionState


class Breaking:
    """Breaks one broker's connection after a given number of requests, counted from `begin`."""

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
    """Simulation seeds 215, 402 and 407: an interrupted start leaves no work except for the next start."""

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


def full_for_logs(operation: str, path: str) -> OSError | None:
    """Return "the disk is full" when a file of a log is opened, and None for other operations."""
    is_log = operation == "open" and path.endswith((".log", ".index"))
    return OSError(errno.ENOSPC, "the disk is full") if is_log else None


def test_replicas_that_a_full_disk_kept_from_opening_are_whole_again_once_there_is_space() -> None:
    """Simulation seed 582: the controller waited for the longest replica, whose broker ran and did not open
    the log.
    """

    async def scenario(scene: Scene) -> None:
        events = [TopicPartition("events", number) for number in range(6)]
        for partition in events:
            assert await scene.produce(scene.leader_of(partition), partition) is ErrorCode.NONE
        for each in scene.cluster.brokers.values():
            each.kill(power=False)
        full = scene.cluster.brokers[2]
        full.disk.refuse = full_for_logs
        assert await scene.cluster.up()
        await scene.survey.pause_for(3 * SESSION_TIMEOUT)
        assert any(scene.leader_of(partition) == -1 for partition in events)
        full.disk.refuse = None
        await scene.survey.pause_for(30.0)
        for partition in events:
            leader = scene.leader_of(partition)
            assert sorted(scene.broker(leader).replicas.find(*partition).state.isr) == [1, 2, 3]
            assert await scene.produce(leader, partition) is ErrorCode.NONE

    play(scenario)


def test_lone_broker_serves_offsets_that_a_full_disk_kept_from_opening_once_there_is_space() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.coordinator(GROUP, scene.group)
        assert await scene.commit(1, 5) == ErrorCode.NONE
        lone = scene.cluster.brokers[1]
        lone.kill(power=False)
        lone.disk.refuse = full_for_logs
        assert await scene.cluster.up()
        await scene.survey.pause_for(20.0)
        assert isinstance(await scene.committed(1), ErrorCode)
        lone.disk.refuse = None
        await scene.survey.pause_for(20.0)
        assert await scene.committed(1) == 5

    play(scenario, brokers=1)
