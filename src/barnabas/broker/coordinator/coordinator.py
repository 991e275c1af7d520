"""The base class of coordinators: it routes operations to the shards of an internal topic on this broker.

A coordinator offers the operations of its shards to the server. `writing` and `reading` make a coordinator's
method from a shard's method. The new method finds the shard of the key and runs the operation there. The new
method has the signature and the docstring of the shard's method::

    class GroupCoordinator(Coordinator[GroupShard]):
        sync = writing(GroupShard.sync, group_of)

Every routed operation raises KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if this broker does
not serve the key. An operation that appends also raises the errors of `CoordinatorRuntime.write`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from operator import methodcaller
from typing import Any, Concatenate, ParamSpec, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator.contract import Result, S, ShardContext
from barnabas.broker.coordinator.loading import InternalLog
from barnabas.broker.coordinator.partitioning import partition_for
from barnabas.broker.coordinator.runtime import CoordinatorRuntime
from barnabas.broker.metadata import ImageDelta
from barnabas.broker.view import BrokerView

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")


class Coordinator(CoordinatorRuntime[S]):
    """Coordinates the keys (group ids, transactional ids or share partitions) of one internal topic.

    The coordinator serves only the keys whose partitions this broker leads. One event loop owns this object.

    Args:
        topic: the internal topic.
        log: the partitions of the topic.
        view: settings of the broker, and its image (copy) of the cluster's metadata.
        make_shard: called with the context of one partition (its number, clock and timers). Returns the
            partition's shard, the object that has the state of the partition's keys.
        planned_partitions: number of partitions that the topic will get, used until the topic exists.
        write_timeout_ms: time limit of an append; after it the client gets a retriable error.
        more: the other arguments of `CoordinatorRuntime`.
    """

    def __init__(
        self,
        topic: str,
        log: InternalLog,
        view: BrokerView,
        make_shard: Callable[[ShardContext[S]], S],
        *,
        planned_partitions: int,
        write_timeout_ms: int,
        **more: Any,
    ) -> None:
        super().__init__(topic, log, view.clock, make_shard, write_timeout_ms=write_timeout_ms, **more)
        self.topic = topic
        self._view = view
        self._planned_partitions = planned_partitions

    def follow(self, node_id: BrokerId, delta: ImageDelta) -> None:
        """Begin to load the topic's partitions that this broker leads after `delta`, and unload all others.

        The call does not wait for the loads. If the topic was deleted and created again, first unload all
        partitions of the former topic. If `delta` does not change the topic, do nothing. `node_id` is the id
        of this broker.
        """
        if self.topic not in delta.topics:
            return
        before, after = delta.before.topics.get(self.topic), delta.after.topics.get(self.topic)
        states = after.partitions if after is not None else ()
        epochs = {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}
        is_same = before is not None and after is not None and before.id == after.id
        for partition in self.partitions():
            if partition not in epochs or not is_same:
                self.resign(partition)
        for partition, epoch in epochs.items():
            self.elect(partition, epoch)

    def resign_all(self) -> None:
        """Resign from all partitions, because this broker may no longer lead them."""
        for partition in self.partitions():
            self.resign(partition)

    def partition_for(self, key: str) -> int:
        """Return the index of the internal topic's partition that stores a key."""
        topic = self._view.image.topics.get(self.topic)
        return partition_for(key, self._planned_partitions if topic is None else len(topic.partitions))

    def _check_loaded(self) -> None:
        """Raise KafkaError COORDINATOR_LOAD_IN_PROGRESS while some shards are not loaded."""
        if self.is_loading():
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _read(self, key: str, operation: Callable[[S], T]) -> T:
        return self.read(self.partition_for(key), operation)


def writing(
    operation: Callable[Concatenate[S, K, P], Result[T]], key_of: Callable[[K], str], *, shared: bool = False
) -> Callable[Concatenate[Coordinator[S], K, P], MaybeAwaitable[T]]:
    """Return a method for a coordinator class, which runs a shard's operation by `CoordinatorRuntime.write`.

    Args:
        operation: the method of the shard class.
        key_of: called with the method's first argument; returns the key in it, for example a group id. The
            key selects the shard.
        shared: whether operations of one key can run at the same time.
    """
    name = operation.__name__

    def write(coordinator: Coordinator[S], about: K, /, *more: Any, **named: Any) -> MaybeAwaitable[T]:
        key = key_of(about)
        return coordinator.write(
            coordinator.partition_for(key), key, methodcaller(name, about, *more, **named), shared=shared
        )

    return update_wrapper(write, operation)


def reading(
    operation: Callable[Concatenate[S, K, P], T], key_of: Callable[[K], str]
) -> Callable[Concatenate[Coordinator[S], K, P], T]:
    """Return a method for a coordinator class, which runs a shard's operation by `CoordinatorRuntime.read`.

    Args:
        operation: the method of the shard class, which only reads.
        key_of: called with the method's first argument; returns the key in it, for example a group id. The
            key selects the shard.
    """
    name = operation.__name__

    def read(coordinator: Coordinator[S], about: K, /, *more: Any, **named: Any) -> T:
        partition = coordinator.partition_for(key_of(about))
        answer: T = coordinator.read(partition, methodcaller(name, about, *more, **named))
        return answer

    return update_wrapper(read, operation)
