"""The base of both coordinators: an internal topic's partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId, LeaderEpoch
from barnabas.broker.answers import Answer
from barnabas.broker.coordinator.contract import Operation, S, ShardContext
from barnabas.broker.coordinator.loading import InternalLog
from barnabas.broker.coordinator.partitioning import partition_for
from barnabas.broker.coordinator.runtime import CoordinatorRuntime
from barnabas.broker.metadata import ImageDelta

T = TypeVar("T")


class Coordinator(Generic[S]):
    """The keys (groups, transactional ids) whose partitions of an internal topic this broker leads.

    Owned by one event loop.

    Args:
        topic: the internal topic.
        log: its partitions.
        clock: the time.
        make_shard: makes what keeps the keys of one partition.
        partitions: how many partitions the topic has, or will have.
        write_timeout_ms: how long an append may take until its client is told to try again.
    """

    def __init__(
        self,
        topic: str,
        log: InternalLog,
        clock: Clock,
        make_shard: Callable[[ShardContext[S]], S],
        *,
        partitions: Callable[[], int],
        write_timeout_ms: int,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._runtime: CoordinatorRuntime[S] = CoordinatorRuntime(
            topic, log, clock, make_shard, write_timeout_ms=write_timeout_ms
        )

    # --- leadership ---

    def follow(self, node_id: BrokerId, delta: ImageDelta) -> None:
        """Load and unload partitions of the internal topic as their leaders change."""
        if self._topic not in delta.topics:
            return
        before, after = delta.before.topics.get(self._topic), delta.after.topics.get(self._topic)
        states = after.partitions if after is not None else ()
        led = {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}
        is_same = before is not None and after is not None and before.id == after.id
        for partition in self.coordinated():
            if partition not in led or not is_same:
                self.resign(partition)
        for partition, epoch in led.items():
            self.elect(partition, epoch)

    def elect(self, partition: int, epoch: LeaderEpoch) -> None:
        """This broker leads a partition of the internal topic: load it in the background, then serve it."""
        self._runtime.elect(partition, epoch)

    def resign(self, partition: int) -> None:
        """This broker no longer leads a partition: drop its state, answer requests with NOT_COORDINATOR."""
        self._runtime.resign(partition)

    def resign_all(self) -> None:
        """This broker must assume that it leads no partitions any more."""
        for partition in self.coordinated():
            self.resign(partition)

    def coordinated(self) -> Collection[int]:
        """The partitions of the internal topic that this broker coordinates."""
        return self._runtime.partitions()

    async def stop(self) -> None:
        """Resign from everything."""
        await self._runtime.stop()

    # --- keys ---

    def partition_for(self, key: str) -> int:
        """The partition of the internal topic that stores a key."""
        return partition_for(key, self._partitions())

    def _check_loaded(self) -> None:
        """Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS while some keys may be missing."""
        if self._runtime.is_loading():
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _write(self, key: str, operation: Operation[S, T], *, shared: bool = False) -> Answer[T]:
        return self._runtime.write(self.partition_for(key), key, operation, shared=shared)

    def _read(self, key: str, operation: Callable[[S], T]) -> T:
        return self._runtime.read(self.partition_for(key), operation)
