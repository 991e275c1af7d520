"""Elects leaders on request: preferred leaders (KIP-183), and leaders that may lack records (KIP-460)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from enum import IntEnum

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import NO_BROKER, BrokerId, TopicPartition
from barnabas.broker.controller.eligibility import eligibility_of, incomplete_replicas
from barnabas.broker.controller.partition_changes import (
    candidates,
    elect_preferred,
    elect_uncleanly,
    last_in_sync_first,
)
from barnabas.broker.controller.replica_logs import Ask, ReplicaLog, choose_leader, replica_logs
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import ClusterImage, PartitionState
from barnabas.broker.metadata.store import Operation

log = logger_of(__name__)


class ElectionType(IntEnum):
    """Kinds of elections, by their numbers in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionControl:
    """The part of the controller that elects leaders on request.

    Args:
        writes: writes to the metadata store while this broker is the controller.
        caught_up: waits until the controller has processed all changes of brokers.
        ask: sends a request to a broker. Called with the broker's id, which can be this broker's, and the
            request; returns the response, or raises BarnabasError.
    """

    def __init__(self, writes: ControllerWrites, caught_up: Callable[[], Awaitable[None]], ask: Ask) -> None:
        self._writes = writes
        self._caught_up = caught_up
        self._ask = ask

    async def elect(
        self, kind: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders. Return each partition's error; None for a partition with a new leader.

        Args:
            kind: PREFERRED elects the preferred leader. UNCLEAN elects, if there is no leader, the live
                replica with the longest log (`choose_leader`), which may lack committed records.
            partitions: None for all; then the result leaves out partitions that need no election.

        The errors are those of `state_of`, ELECTION_NOT_NEEDED, and PREFERRED_LEADER_NOT_AVAILABLE or
        ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica can be elected.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR.
        """
        await self._caught_up()
        self._writes.require_controller()
        asked = await self._writes.settled()
        logs: dict[TopicPartition, dict[BrokerId, ReplicaLog]] = {}
        if kind is ElectionType.UNCLEAN:
            logs = await replica_logs(self._ask, asked, _leaderless(asked, partitions))
        async with self._writes.answering() as image:
            self._writes.require_controller()
            incomplete = incomplete_replicas(image)
            results: dict[TopicPartition, KafkaError | None] = {}
            changes: list[Operation] = []
            for partition in _all(image) if partitions is None else partitions:
                try:
                    state = state_of(image, partition)
                    if kind is ElectionType.PREFERRED:
                        elected = _preferred(state, image)
                    else:
                        still = {
                            broker: each
                            for broker, each in logs.get(partition, {}).items()
                            if state == asked.partition(partition) and _is_the_same(image, asked, broker)
                        }
                        elected = _unclean(state, still, incomplete.get(partition, frozenset()))
                        log.warning(
                            "%s: elected broker %d, as requested: records from offset %d on may be lost",
                            partition,
                            elected.leader,
                            still[elected.leader].end.end,
                        )
                except KafkaError as error:
                    if partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                        results[partition] = error
                    continue
                changes.append(self._writes.state_change(partition, state, elected))
                results[partition] = None
            await self._writes.write_batches(changes)
            if changes:
                log.info("elected %s leaders for %d partitions", kind.name.lower(), len(changes))
            return results


def _leaderless(
    image: ClusterImage, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return the partitions that have no leader, each with the replicas that could lead it.

    The function looks only at `partitions`; None means all partitions of the cluster.
    """
    electable = eligibility_of(image).in_sync
    states = ((each, image.partition(each)) for each in (_all(image) if partitions is None else partitions))
    return {
        partition: candidates(state, electable, is_unclean_allowed=True)
        for partition, state in states
        if state is not None and state.leader == NO_BROKER
    }


def _is_the_same(image: ClusterImage, before: ClusterImage, broker: BrokerId) -> bool:
    """Whether a broker is registered in both images, in the same broker epoch.

    If so, its answer to a request from the time of `before` is still valid.
    """
    now, then = image.brokers.get(broker), before.brokers.get(broker)
    return now is not None and then is not None and now.epoch == then.epoch


def _all(image: ClusterImage) -> Iterator[TopicPartition]:
    for name, topic in sorted(image.topics.items()):
        for number in range(len(topic.partitions)):
            yield TopicPartition(name, number)


def state_of(image: ClusterImage, partition: TopicPartition) -> PartitionState:
    """Return the state of a partition, which the controller may replace.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, it does not exist; KAFKA_STORAGE_ERROR, its node is
            damaged, or that of its topic.
    """
    state = image.partition(partition)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
    if state.is_damaged:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the data of {znodes.partition_state(*partition)} or {znodes.topic(partition.topic)} is damaged",
        )
    return state


def _preferred(state: PartitionState, image: ClusterImage) -> PartitionState:
    """Return the state with the preferred leader.

    Raises:
        KafkaError: ELECTION_NOT_NEEDED, this leader leads already; PREFERRED_LEADER_NOT_AVAILABLE, it cannot
            be elected.
    """
    if state.leader == state.replicas[0]:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    elected = elect_preferred(state, eligibility_of(image).electable)
    if elected is None:
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return elected


def _unclean(
    state: PartitionState, logs: Mapping[BrokerId, ReplicaLog], incomplete: frozenset[BrokerId]
) -> PartitionState:
    """Return the state after an unclean election of the candidate with the longest log (`choose_leader`).

    Of equally long logs, that of a complete replica leads. Of these, that of a replica that was last in sync.

    Args:
        state: present state of the partition.
        logs: the candidates' logs.
        incomplete: replicas with missing records.

    Raises:
        KafkaError: ELECTION_NOT_NEEDED, the partition has a leader; ELIGIBLE_LEADERS_NOT_AVAILABLE, there is
            no candidate.
    """
    if state.leader != NO_BROKER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    if not logs:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    complete_first = sorted(last_in_sync_first(state, logs), key=lambda broker: broker in incomplete)
    return elect_uncleanly(state, choose_leader(state, {broker: logs[broker] for broker in complete_first}))
