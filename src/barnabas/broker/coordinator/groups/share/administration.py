"""Alters and deletes the offsets of a share group, and deletes the group.

Each operation needs a group without members. An operation first stores its beginning in the group's records:
a higher group epoch, or the topics whose states it deletes. Then the operation sends requests to the share
coordinator. At last it stores in the group's records that it is complete. If the operation fails in between,
the client can repeat its request, which completes the operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset, TopicId
from barnabas.broker.awaitables import MaybeAwaitable, resolve
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.share.coordination import Deletion, ShareGroups
from barnabas.broker.coordinator.groups.share.states import Failures, ShareStates
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey, SharePersister, ShareState

T = TypeVar("T")

#: how long a request waits for earlier ones about its group, in seconds; its client gives up at some time
_MAX_WAIT = 30.0
#: the most states that are read at the same time
_AT_ONCE = 100


class Shards(Protocol):
    """Gives access to the share groups of a shard of the group coordinator.

    Both methods find the shard that coordinates the group. `read` returns the `ShareGroups` of this shard.
    `write` calls `operation` with the `ShareGroups` under the group's lock, stores the records of its result,
    and returns its response.

    Both methods raise KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if this broker does not
    serve the shard. `write` also raises the other errors of `CoordinatorRuntime.write`.
    """

    def read(self, group_id: str) -> ShareGroups: ...

    def write(self, group_id: str, operation: Callable[[ShareGroups], Result[T]]) -> MaybeAwaitable[T]: ...


class ShareAdministration:
    """Administers the share groups that this broker coordinates.

    Every method except `summaries` raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, the
    errors of `CoordinatorRuntime.write`, and GROUP_ID_NOT_FOUND. GROUP_ID_NOT_FOUND means that the group has
    another type or does not exist. Only `alter_offsets` creates a missing group instead. If another request
    about the group is in progress for too long, the error is COORDINATOR_NOT_AVAILABLE.

    Args:
        shards: finds the shard of a group.
        persister: reads and writes the states of share partitions.
    """

    def __init__(self, shards: Shards, persister: SharePersister) -> None:
        self._shards = shards
        self._persister = persister

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[SharePartitionKey, Offset], names: Mapping[TopicId, str]
    ) -> Failures:
        """Set start offsets. If the group does not exist, create it. Return the errors by partition.

        Args:
            group_id: the group.
            offsets: the new start offsets.
            names: names of the topics by id.

        Raises:
            KafkaError: NON_EMPTY_GROUP, the group has members.
        """
        states = self._shards.read(group_id).states
        async with states.exclusive(group_id, _MAX_WAIT):
            epoch = await self._write(states, group_id, lambda shares: shares.begin_alteration(group_id))
            failures = await states.initialize(offsets, epoch)
            altered = {key: names[key.topic_id] for key in offsets if key not in failures}
            gone = await self._write(
                states, group_id, lambda shares: shares.end_alteration(group_id, altered)
            )
        return failures | dict.fromkeys(gone, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    async def delete_offsets(self, group_id: str, names: Collection[str]) -> dict[TopicId, KafkaError | None]:
        """Delete the states of the topics in `names`. Return an error or None for each topic that had states.

        Raises:
            KafkaError: NON_EMPTY_GROUP, the group has members.
        """
        states = self._shards.read(group_id).states
        async with states.exclusive(group_id, _MAX_WAIT):
            deletion, failures = await self._delete_states(states, group_id, names)
            outcomes: dict[TopicId, KafkaError | None] = dict.fromkeys(deletion.topics)
            outcomes |= {key.topic_id: error for key, error in failures.items()}
            gone = [topic for topic, error in outcomes.items() if error is None]
            await self._write(states, group_id, lambda shares: shares.end_deletion(group_id, gone))
        return outcomes

    async def delete_group(self, group_id: str) -> None:
        """Delete a share group, and before that the states of all its partitions.

        Raises:
            KafkaError: NON_EMPTY_GROUP, the group has members; or the error of a state that could not be
                deleted.
        """
        states = self._shards.read(group_id).states
        async with states.exclusive(group_id, _MAX_WAIT):
            _, failures = await self._delete_states(states, group_id, None)
            for error in failures.values():
                raise error
            await self._write(states, group_id, lambda shares: shares.delete(group_id))

    async def summaries(
        self, keys: Collection[SharePartitionKey]
    ) -> dict[SharePartitionKey, ShareState | KafkaError]:
        """Return for each share partition its state without batches, or the error of the request."""
        found: dict[SharePartitionKey, ShareState | KafkaError] = {}

        async def read(key: SharePartitionKey) -> None:
            try:
                found[key] = await self._persister.summary(key)
            except KafkaError as error:
                found[key] = error

        wanted = list(keys)
        for start in range(0, len(wanted), _AT_ONCE):
            await asyncio.gather(*map(read, wanted[start : start + _AT_ONCE]))
        return found

    async def _delete_states(
        self, states: ShareStates, group_id: str, names: Collection[str] | None
    ) -> tuple[Deletion, Failures]:
        deletion = await self._write(states, group_id, lambda shares: shares.begin_deletion(group_id, names))
        return deletion, await states.delete(deletion.keys)

    async def _write(
        self, states: ShareStates, group_id: str, operation: Callable[[ShareGroups], Result[T]]
    ) -> T:
        """Run `operation` on the shard to which `states` belongs, and return its response.

        Raises:
            KafkaError: NOT_COORDINATOR, the shard was unloaded. The broker may have loaded the group again in
                a later leader epoch. `states.exclusive` does not hold back the requests of that later shard.
        """

        def run(shares: ShareGroups) -> Result[T]:
            if shares.states is not states:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            return operation(shares)

        return await resolve(self._shards.write(group_id, run))
