"""Starts, cancels and completes reassignments of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.broker.controller.elections import state_of
from barnabas.broker.controller.eligibility import eligibility_of
from barnabas.broker.controller.partition_changes import Eligibility, settle
from barnabas.broker.controller.placement import check_assignment
from barnabas.broker.controller.reassignment import begin, cancel, finish, is_moving, target_of
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicImage
from barnabas.broker.metadata.loader import MetadataLoader
from barnabas.broker.metadata.store import Operation, Set, StoreError

log = logger_of(__name__)

#: new replicas of partitions, the preferred leader first; None cancels the partition's reassignment
Targets: TypeAlias = Mapping[TopicPartition, Sequence[BrokerId] | None]

#: largest number of partitions of a topic that one transaction changes. The transaction also writes the
#: topic's node, which can be as large as the state nodes of all these partitions together
_CHANGED_AT_ONCE = 400

#: seconds
_RETRY = 1.0


class ReassignmentControl:
    """The part of the controller that moves partitions to other brokers.

    In the metadata store, a topic's node has the replicas of its partitions. Each partition has a node of its
    own for its other state, such as the leader. One transaction writes both nodes. Reassignments in progress
    are only in the metadata store, so that the next controller continues them.

    Args:
        writes: writes to the metadata store while this broker is the controller.
        loader: loads this broker's image (copy) of the metadata.
        configs: resolves the effective settings of topics.
        caught_up: waits until the controller has processed all changes of brokers.
        on_stuck: called after the metadata store has rejected a write. This controller has then resigned,
            and must run for election again.
    """

    def __init__(
        self,
        writes: ControllerWrites,
        loader: MetadataLoader,
        configs: ConfigResolver,
        caught_up: Callable[[], Awaitable[None]],
        on_stuck: Callable[[], None],
    ) -> None:
        self._writes = writes
        self._loader = loader
        self._configs = configs
        self._caught_up = caught_up
        self._on_stuck = on_stuck
        #: the partitions with a reassignment in progress in this broker's image
        self._moving: set[TopicPartition] = set()
        self._finishing: asyncio.Task[None] | None = None
        self._must_finish = False

    async def alter(
        self, targets: Targets, *, may_change_factor: bool = True
    ) -> dict[TopicPartition, KafkaError]:
        """Start or cancel the reassignments in `targets`, as `alter_by` does."""
        return await self.alter_by(lambda _: targets, may_change_factor=may_change_factor)

    async def alter_by(
        self, choose: Callable[[ClusterImage], Targets], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, KafkaError]:
        """Start or cancel reassignments. Return the error of each partition that is not changed.

        This method does not wait for the end of the reassignments.

        Args:
            choose: called once with an image that has all earlier decisions; returns the reassignments to
                start or cancel. No other decision is made before they are stored.
            may_change_factor: whether a partition may get more or fewer replicas (KIP-860).

        Returns:
            The errors: those of `state_of`; NO_REASSIGNMENT_IN_PROGRESS, there is none to cancel;
            INVALID_REPLICA_ASSIGNMENT, the new replicas are not allowed; INVALID_REPLICATION_FACTOR, their
            number may not change; or the error of a failed write.

        Raises:
            KafkaError: NOT_CONTROLLER, this broker is not the controller; KAFKA_STORAGE_ERROR, the metadata
                store cannot be reached.
        """
        await self._caught_up()
        async with self._writes.answering() as image:
            self._writes.require_controller()
            eligible = eligibility_of(image)
            errors: dict[TopicPartition, KafkaError] = {}
            changes: dict[TopicPartition, PartitionState] = {}
            for partition, target in choose(image).items():
                try:
                    state = state_of(image, partition)
                    begun = _begin(state, target, image, may_change_factor)
                except KafkaError as error:
                    errors[partition] = error
                    continue
                after = self._finished(image, eligible, partition, begun) or begun
                if after != state:
                    changes[partition] = after
            errors |= await self._write(image, changes)
            return errors

    def on_image(self, delta: ImageDelta) -> None:
        """Record the reassignments in progress. As the controller, start to complete those that can end."""
        changed = list(delta.changed_partitions())
        for partition in changed:
            state = delta.after.partition(partition)
            if state is not None and is_moving(state):
                self._moving.add(partition)
            else:
                self._moving.discard(partition)
        if self._moving and self._writes.is_controller:
            ready = self._moving if delta.brokers or not changed else self._moving.intersection(changed)
            image, eligible = delta.after, eligibility_of(delta.after)
            states = ((partition, image.partition(partition)) for partition in ready)
            if any(s is not None and self._finished(image, eligible, p, s) is not None for p, s in states):
                self._begin_finishing()

    def resume(self) -> None:
        """Continue the reassignments of the previous controller."""
        image = self._loader.image
        self._moving = {
            TopicPartition(topic.name, number)
            for topic in image.topics.values()
            for number, state in enumerate(topic.partitions)
            if is_moving(state)
        }
        if self._moving:
            self._begin_finishing()

    async def stop(self) -> None:
        """Stop the task that completes reassignments."""
        await stop_tasks(self._finishing)

    def _begin_finishing(self) -> None:
        self._must_finish = True
        if self._finishing is None or self._finishing.done():
            self._finishing = start_task(self._finish_ready(), "reassignments")

    async def _finish_ready(self) -> None:
        while self._must_finish and self._writes.is_controller:
            self._must_finish = False
            try:
                errors = await self._finish()
            except (KafkaError, StoreError) as error:
                errors = [error]
            if errors and self._writes.is_controller:
                log.warning("reassignments are finished later: %s", errors[0])
                await asyncio.sleep(_RETRY)
                self._must_finish = True

    async def _finish(self) -> Sequence[Exception]:
        await self._caught_up()
        async with self._writes.deciding() as image:
            eligible = eligibility_of(image)
            changes = {}
            for partition in sorted(self._moving):
                state = image.partition(partition)
                done = None if state is None else self._finished(image, eligible, partition, state)
                if done is not None:
                    changes[partition] = done
            errors = await self._write(image, changes)
            if len(changes) > len(errors):
                log.info("finished the reassignment of %d partitions", len(changes) - len(errors))
            return list(errors.values())

    def _finished(
        self, image: ClusterImage, eligible: Eligibility, partition: TopicPartition, state: PartitionState
    ) -> PartitionState | None:
        """Return the state after the reassignment; None if the partition has none, or if it cannot end yet.

        Replicas that are not in `eligible.in_sync` first leave the ISR (`settle`).
        """
        if not is_moving(state) or not state.is_known:
            return None
        min_isr = self._configs.topic_config(image, partition.topic).min_insync_replicas
        return finish(settle(state, min_isr, eligible), min_isr, eligible.electable)

    async def _write(
        self, image: ClusterImage, changes: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, KafkaError]:
        """Store the changes, and wait until the image shows them. Return the errors of those that failed."""
        by_topic: dict[str, dict[int, PartitionState]] = {}
        for (name, number), state in sorted(changes.items()):
            by_topic.setdefault(name, {})[number] = state
        errors: dict[TopicPartition, KafkaError] = {}
        for name, states in by_topic.items():
            for numbers, operations in self._transactions(image.topics[name], states):
                try:
                    await self._writes.write(operations)
                except (KafkaError, StoreError) as error:
                    refusal = error if isinstance(error, KafkaError) else self._begin_again(error)
                    errors.update((TopicPartition(name, number), refusal) for number in numbers)
                    break  # the next ones would write the topic's node as if this one had succeeded
        await self._loader.settled()
        return errors

    def _begin_again(self, error: StoreError) -> KafkaError:
        """Resign after a failed write, and return NOT_CONTROLLER, the error for the request.

        The next controller begins with the state of the metadata store.
        """
        log.error("cannot store a reassignment, so the controller resigns: %s", error)
        self._writes.resign()
        self._on_stuck()
        return KafkaError(ErrorCode.NOT_CONTROLLER, str(error))

    def _transactions(
        self, topic: TopicImage, changes: Mapping[int, PartitionState]
    ) -> Iterator[tuple[Sequence[int], list[Operation]]]:
        """Yield the transactions that store the new states of partitions of `topic`.

        The caller executes the transactions in this order. `changes` has the new states by partition number.
        A transaction changes at most `_CHANGED_AT_ONCE` partitions. Each transaction is a pair:

        1. the partitions that are not stored if this transaction fails: its own, and those of all later ones;
        2. the operations of the transaction.
        """
        states = list(topic.partitions)
        numbers = sorted(changes)
        for first in range(0, len(numbers), _CHANGED_AT_ONCE):
            chunk = numbers[first : first + _CHANGED_AT_ONCE]
            for number in chunk:
                states[number] = changes[number]
            whole = topic._replace(partitions=tuple(states))
            operations: list[Operation] = [
                Set(znodes.topic(topic.name), znodes.encode_topic(znodes.assignment_of(whole)))
            ]
            for number in chunk:
                partition, before = TopicPartition(topic.name, number), topic.partitions[number]
                operations.append(self._writes.state_change(partition, before, states[number]))
            yield numbers[first:], operations


def _begin(
    state: PartitionState, target: Sequence[BrokerId] | None, image: ClusterImage, may_change_factor: bool
) -> PartitionState:
    if target is None:
        if not is_moving(state):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return cancel(state)
    # A replica may stay on a broker that is away.
    replicas = check_assignment(target, image.brokers.keys() | set(state.replicas))
    now = len(target_of(state))
    if not may_change_factor and len(replicas) != now:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {now} replicas and would have {len(replicas)}, which the request forbids",
        )
    return begin(state, replicas)
