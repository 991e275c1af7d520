"""Checks that a cluster becomes stable after the faults: all replicas in sync, and all brokers with the same
metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.base.types import NO_BROKER, Offset, TopicPartition
from barnabas.broker.server.broker import Broker
from barnabas.broker.storage.log import PartitionLog
from soak.simulated.cluster import SimulatedCluster, held_by
from soak.simulated.decisions import Decisions
from soak.simulated.stage import Stage

#: seconds until then
_PATIENCE = 30.0
_SHOWN = 4


async def await_whole(stage: Stage, cluster: SimulatedCluster) -> bool:
    """Wait until all partitions have a leader and all replicas are in sync. Report a violation if this takes
    too long.
    """
    return await _await(stage, "not-whole", lambda: _of_decisions(cluster, cluster.decisions))


def is_whole(cluster: SimulatedCluster) -> bool:
    """Return whether all partitions have a leader and all replicas are in sync."""
    return not _of_decisions(cluster, cluster.decisions)


async def await_rest(stage: Stage, cluster: SimulatedCluster) -> bool:
    """Wait until no work is left after the last write. Report a violation if this takes too long."""
    decisions = cluster.decisions
    return await _await(
        stage,
        "no-rest",
        lambda: [
            *_of_decisions(cluster, decisions),
            *_of_images(cluster, decisions),
            *_of_logs(cluster, decisions),
        ],
    )


async def await_moves(stage: Stage, cluster: SimulatedCluster) -> bool:
    """Wait until no log moves between folders. Report a violation if this takes too long."""
    return await _await(
        stage,
        "no-rest",
        lambda: [
            f"{name} of broker {number} still moves to {directory.path}"
            for number, broker in cluster.running.items()
            for directory in broker.logs.directories
            for name in directory.futures
        ],
    )


async def _await(stage: Stage, kind: str, wrong: Callable[[], list[str]]) -> bool:
    deadline = asyncio.get_running_loop().time() + _PATIENCE
    while found := wrong():
        if asyncio.get_running_loop().time() > deadline:
            for text in found[:_SHOWN]:
                stage.complain(kind, text)
            return False
        await asyncio.sleep(0.2)
    return True


def _of_decisions(cluster: SimulatedCluster, decisions: Decisions) -> list[str]:
    wrong = [f"broker {number} does not run" for number in cluster.brokers if number not in cluster.running]
    for name, state in decisions.states.items():
        if state.leader == NO_BROKER or set(state.isr) != set(state.replicas) or state.elr:
            wrong.append(f"{name} is not whole: {state}")
        elif state.adding or state.removing or state.recovering:
            wrong.append(f"{name} is on the move: {state}")
    return wrong


def _of_images(cluster: SimulatedCluster, decisions: Decisions) -> list[str]:
    wrong = []
    for number, broker in cluster.running.items():
        image = broker.image
        known = {
            TopicPartition(topic.name, index): state
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
        }
        if known != decisions.states:
            strange = [name for name, state in decisions.states.items() if known.get(name) != state]
            strange += [name for name in known if name not in decisions.states]
            wrong.append(f"broker {number} has another image of {sorted(strange)[:_SHOWN]}")
        if sorted(image.brokers) != sorted(cluster.running) or image.controller_id == NO_BROKER:
            wrong.append(f"broker {number} knows {sorted(image.brokers)}, controller {image.controller_id}")
        if image.deleted_topics:
            wrong.append(f"broker {number} knows of topics that are not deleted yet")
    active = [number for number, broker in cluster.running.items() if broker.controller.active]
    if len(active) != 1:
        wrong.append(f"the controllers are {active}")
    return wrong


def _of_logs(cluster: SimulatedCluster, decisions: Decisions) -> list[str]:
    wrong = []
    held = {number: held_by(broker) for number, broker in cluster.running.items()}
    for name, state in decisions.states.items():
        found = {number: held.get(number, {}).get(name) for number in state.replicas}
        missing = [number for number, partition in found.items() if partition is None]
        if missing:
            wrong.append(f"{name} is not open on brokers {missing}")
            continue
        logs = {number: partition.log for number, partition in found.items() if partition is not None}
        ends = {number: (log.log_end_offset, log.high_watermark) for number, log in logs.items()}
        if len({end for pair in ends.values() for end in pair}) != 1:
            wrong.append(f"{name} ends elsewhere (with high watermark): {ends}")
            continue
        start = max(log.log_start_offset for log in logs.values())
        known = {number: _producers(log, start) for number, log in logs.items()}
        first = next(iter(known.values()))
        if any(each != first for each in known.values()):
            wrong.append(f"{name} has other producers: {known}")
    for number, broker in cluster.running.items():
        stray = [name for name in _on_disk(broker) if number not in _replicas_of(decisions, name)]
        if stray:
            wrong.append(f"broker {number} still has {stray}")
    return wrong


def _on_disk(broker: Broker) -> list[TopicPartition]:
    return sorted(log.topic_partition for log in broker.logs)


def _replicas_of(decisions: Decisions, name: TopicPartition) -> tuple[int, ...]:
    state = decisions.states.get(name)
    return () if state is None else state.replicas


def _producers(log: PartitionLog, start: Offset) -> dict[int, tuple[int, int, int, int]]:
    """Return the producer states of a log, for the producers of its records."""
    return {
        producer.producer_id: (
            producer.epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.transaction_start,
        )
        for producer in log.producers
        if producer.last_offset >= start
    }
