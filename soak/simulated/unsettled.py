"""Creates a leader that does not know the outcome of its ISR proposal while its topic changes."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import ClassVar

from simulation.ensemble import SimulatedEnsemble

from barnabas.base.types import TopicPartition
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from soak.roles.common import Task
from soak.simulated.client import Client
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.stage import Stage, host_of

#: topics of more than one partition that are written all the time
_BUSY = ("events", "ledger")
#: seconds until a follower that cannot fetch leaves the ISR, and some more
_OUT = (2.7, 3.6)


class _Reorderer(Client):
    """Reassigns partitions to their present replicas in another order, so that no broker copies anything."""

    role: ClassVar[str] = "reorder"

    async def run(self) -> None:
        """Do nothing: it has no work of its own, and runs in the simulation's own context."""

    async def reorder(self, partition: TopicPartition, replicas: list[int]) -> None:
        wanted = ReassignablePartition(partition_index=partition.partition, replicas=replicas)
        topic = ReassignableTopic(name=partition.topic, partitions=[wanted])
        request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])
        with contextlib.suppress(ChannelError):
            await self.ask(request, timeout=0.3)


class UnsettledProposals:
    """Makes a follower join an ISR again while its leader gets metadata late and loses answers."""

    def __init__(self, stage: Stage, cluster: SimulatedCluster, ensemble: SimulatedEnsemble) -> None:
        self._stage = stage
        self._cluster = cluster
        self._ensemble = ensemble
        self._client: _Reorderer | None = None

    async def unsettle(self, random: Random) -> None:
        """Let the controller execute a proposal, lose the answer, and deliver earlier states to the leader
        meanwhile.
        """
        found = self._choose(random)
        if found is None:
            await asyncio.sleep(0.5)
            return
        partition, leader, follower = found
        network, host = self._stage.network, host_of(leader)
        network.cut(host, host_of(follower))
        await asyncio.sleep(random.uniform(*_OUT))
        self._ensemble.lag(host, random.uniform(0.5, 1.2))
        nudging = asyncio.create_task(self._change_topic(random, partition))
        try:
            await asyncio.sleep(random.uniform(0.3, 0.6))
            network.slow(host, host_of(follower), random.choice([2000, 5000, 20_000]))
            network.heal(host, host_of(follower))
            end = asyncio.get_running_loop().time() + 2.0
            while asyncio.get_running_loop().time() < end:
                self._stage.losing[host] = 2
                await asyncio.sleep(0.1)
        finally:
            nudging.cancel()
            await asyncio.wait([nudging])
            self._stage.losing.pop(host, None)
            network.slow(host, host_of(follower), None)
            network.heal(host, host_of(follower))
            self._ensemble.lag(host, 0.0)

    def _choose(self, random: Random) -> tuple[TopicPartition, int, int] | None:
        """Return a partition, its leader and a follower in sync, none of which is the controller; None if
        there is none.
        """
        controllers = [number for number, broker in self._cluster.running.items() if broker.controller.active]
        found = [
            (partition, state.leader, follower)
            for partition, state in sorted(self._cluster.decisions.states.items())
            if partition.topic in _BUSY and len(state.isr) > 2 and state.leader not in controllers
            for follower in state.isr
            if follower != state.leader and follower not in controllers
        ]
        return random.choice(found) if found else None

    async def _change_topic(self, random: Random, partition: TopicPartition) -> None:
        """Change other partitions of the topic. The leader gets these changes together with that of this
        partition.
        """
        if self._client is None:
            task = Task("reorder", "reorder", "simulated", "", "", self._stage.seed, {})
            self._client = _Reorderer(self._stage, task)
        states = self._cluster.decisions.states
        others = [other for other in sorted(states) if other.topic == partition.topic and other != partition]
        while others:
            other = random.choice(others)
            replicas = list(states[other].replicas)
            await self._client.reorder(other, replicas[1:] + replicas[:1])
            await asyncio.sleep(random.uniform(0.05, 0.2))
