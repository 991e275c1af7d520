"""The brokers of a run, and the simulated ZooKeeper ensemble with their metadata, if there are several."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from simulation.ensemble import EnsembleConditions, SimulatedEnsemble

from barnabas.base.types import GROUP_METADATA_TOPIC, NO_BROKER, TopicPartition
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.broker import Broker
from barnabas.broker.sharing.share_partition import SharePartition
from soak.simulated.broker import SimulatedBroker
from soak.simulated.decisions import Decisions
from soak.simulated.plan import SESSION_TIMEOUT, settings
from soak.simulated.stage import LETTERS, MADE_LETTERS, REPLICAS, Lead, Stage

_STARTS = 50


def partitions_of(broker: Broker) -> list[Partition]:
    """Return the partitions that a broker has opened."""
    # Not its own iterator, which would let other callbacks run meanwhile, and takes longer.
    by_topic = broker.replicas._topics.items()
    return [each for topic, found in by_topic if isinstance(topic, str) for each in found.values()]


def held_by(broker: Broker) -> dict[TopicPartition, Partition]:
    """Return the partitions that a broker has opened, by their names."""
    return {partition.topic_partition: partition for partition in partitions_of(broker)}


class SimulatedCluster:
    """One broker with its own metadata store, or several brokers on a `SimulatedEnsemble`.

    Args:
        durable: whether brokers fsync records before they acknowledge them. All machines may then lose their
            power.
    """

    def __init__(self, stage: Stage, *, durable: bool) -> None:
        self._stage = stage
        self.durable = durable
        #: what a cluster of several has decided
        self.decisions = Decisions(stage)
        #: brokers whose machines have lost what they had not fsynced
        self._damaged: dict[int, None] = {}
        self.ensemble: SimulatedEnsemble | None = None
        count = len(stage.broker_ids)
        if count > 1:
            self.ensemble = SimulatedEnsemble(
                stage.random("ensemble"),
                EnsembleConditions(session_timeout=SESSION_TIMEOUT),
                observe=lambda name, what: stage.trace.note(f"ensemble {name} {what}"),
                on_commit=self.decisions.committed,
            )
        self.brokers = {
            broker_id: SimulatedBroker(
                stage, broker_id, settings(broker_id, count, fsync=durable), self.ensemble
            )
            for broker_id in stage.broker_ids
        }
        for broker_id, broker in self.brokers.items():
            broker.on_power_cut = partial(self._power_cut, broker_id)
            broker.may_lose_power = partial(self.may_lose_power, broker)
        if count > 1:
            stage.decided = self._decided
            stage.known_by = self._known_by
            stage.leader_in = self.decisions.leader_in
        stage.lease = self._lease

    def __len__(self) -> int:
        return len(self.brokers)

    @property
    def running(self) -> dict[int, Broker]:
        """The brokers that run now, by id."""
        return {number: each.broker for number, each in self.brokers.items() if each.broker is not None}

    def may_lose_power(self, broker: SimulatedBroker) -> bool:
        """Return whether a power cut of this machine loses no acknowledged record.

        Without fsyncs this is true while fewer than min.insync.replicas machines have lost records that they
        have not fetched again (KIP-966).
        """
        if self.durable:
            return True
        if self.ensemble is None or self._stage.replicas < REPLICAS:
            return False
        self._damaged = {number: None for number in self._damaged if not self._is_whole(number)}
        return not any(number != broker.id for number in self._damaged)

    def replicas_to_lose(self, broker: SimulatedBroker) -> list[TopicPartition]:
        """Return the replicas that a broker may lose, because another running broker has all committed
        records.

        No other machine may lose anything until the broker has copied these replicas again.
        """
        if self.ensemble is None or self._stage.replicas < REPLICAS:
            return []
        self._damaged = {number: None for number in self._damaged if not self._is_whole(number)}
        if self._damaged:
            return []
        running = self.running
        return [
            name
            for name, state in sorted(self.decisions.states.items())
            if broker.id in state.replicas
            and any(
                number != broker.id and number in running and self.decisions.is_complete(number, name)
                for number in state.isr
            )
        ]

    def may_lose_disk(self, broker: SimulatedBroker) -> bool:
        """Return whether a broker may lose all of its replicas, because others have all committed records."""
        held = [name for name, state in self.decisions.states.items() if broker.id in state.replicas]
        return bool(held) and len(self.replicas_to_lose(broker)) == len(held)

    def lost(self, broker: SimulatedBroker) -> None:
        """Note that a broker has lost a replica."""
        self._damaged[broker.id] = None
        self.decisions.suspect(broker.id)

    async def accept_losses(self) -> None:
        """Elect another leader, as an operator does, if the controller waits for a lost replica.

        This loses no record, because the other machines have not lost anything meanwhile.
        """
        for _ in range(_STARTS):
            waiting = [name for name, state in self.decisions.states.items() if self._waits_for_lost(state)]
            if not waiting:
                return
            for each in self.brokers.values():
                if each.broker is not None and each.broker.controller.active:
                    await each.elect_uncleanly(waiting)
            await asyncio.sleep(0.5)

    def _waits_for_lost(self, state: PartitionState) -> bool:
        return (
            state.leader == NO_BROKER
            and not state.isr
            and not state.elr
            and any(
                broker_id in running.image.brokers and running.image.brokers[broker_id].incomplete_replicas
                for running in self.running.values()
                for broker_id in state.last_known_elr
            )
        )

    def _decided(self, topic: str, partition: int) -> Lead | None:
        state = self.decisions.states.get(TopicPartition(topic, partition))
        if state is None or topic not in self.decisions.topic_ids:
            return None
        return Lead(self.decisions.topic_ids[topic], state.leader, state.leader_epoch)

    def _known_by(self, broker_id: int, topic: str, partition: int) -> Lead | None:
        broker = self.running.get(broker_id)
        known = None if broker is None else broker.image.topics.get(topic)
        if known is None or partition >= len(known.partitions):
            return None
        state = known.partitions[partition]
        return Lead(known.id, state.leader, state.leader_epoch)

    def _lease(self, broker_id: int, topic: str, partition: int) -> str | None:
        lead = self._known_by(broker_id, topic, partition)
        if lead is None or not self._stage.leads(broker_id, topic, partition):
            return None
        return f"{self.brokers[broker_id].process_name}, leader epoch {lead.leader_epoch}"

    def letters(self) -> dict[tuple[int, TopicPartition], int]:
        """Return the log end of each partition of a dead-letter queue, by its leader and its name."""
        return {
            (number, partition.topic_partition): partition.log.log_end_offset
            for number, broker in self.running.items()
            for topic in (LETTERS, MADE_LETTERS)
            for partition in broker.replicas.partitions_of(topic).values()
            if partition.is_leader
        }

    def leaders_with_letters(self) -> set[int]:
        """Return the ids of the brokers that lead share partitions whose records wait for dead letters."""
        return {
            number
            for number, broker in self.running.items()
            for partition in broker.replicas
            for watcher in partition.watchers
            if isinstance(watcher, SharePartition) and watcher.in_flight and watcher.in_flight.has_letters
        }

    def leader_of_group(self, group: str) -> int | None:
        """Return the coordinator of a group by the decisions of the cluster; None if there is none."""
        for broker in self.running.values():
            lead = self._decided(GROUP_METADATA_TOPIC, broker.groups.partition_for(group))
            return None if lead is None or lead.leader < 0 else lead.leader
        return None

    def _power_cut(self, broker_id: int) -> None:
        if not self.durable:
            self._damaged[broker_id] = None
            self.decisions.suspect(broker_id)

    def _is_whole(self, broker_id: int) -> bool:
        """Return whether a broker has all committed records of its replicas again."""
        running = self.running
        if broker_id not in running:
            return False
        held = {number: held_by(broker) for number, broker in running.items()}
        for name, state in self.decisions.states.items():
            if broker_id in state.replicas:
                led = held.get(state.leader, {}).get(name)
                own = held[broker_id].get(name)
                if led is None or own is None or broker_id not in state.isr:
                    return False
                if own.log.log_end_offset < led.log.high_watermark:
                    return False
        return True

    def registered_epoch(self, broker_id: int) -> int | None:
        """Return the broker epoch of a broker's registration; None if it is not registered."""
        node = None if self.ensemble is None else self.ensemble.tree.find(znodes.broker(broker_id))
        return None if node is None else node.created

    async def up(self, brokers: Sequence[SimulatedBroker] | None = None) -> bool:
        """Start these brokers, or all of them, until they run. Return whether they do."""
        started = await asyncio.gather(*map(self._up, brokers or self.brokers.values()))
        return all(started)

    async def _up(self, broker: SimulatedBroker) -> bool:
        for _ in range(_STARTS):
            if await broker.start():
                return True
            await asyncio.sleep(0.5)
        self._stage.complain("start-failed", f"{broker.name} does not start")
        return False

    async def stop(self) -> None:
        """Stop all brokers, one after the other."""
        for broker in self.brokers.values():
            await broker.stop()
