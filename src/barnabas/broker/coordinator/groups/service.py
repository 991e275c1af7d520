"""The group coordinator, with the operations that the server's handlers call.

It finds the shard of a group and runs the operation there. It also deletes expired offsets, and offsets of
deleted topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Protocol, TypeVar

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.metrics import Meter
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import GROUP_METADATA_TOPIC, BrokerId, TopicId
from barnabas.broker.awaitables import MaybeAwaitable, resolve
from barnabas.broker.coordinator.contract import Result, ShardContext
from barnabas.broker.coordinator.coordinator import Coordinator, reading, writing
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.classic.members import HeldMetadata
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.requests import check_heartbeat
from barnabas.broker.coordinator.groups.offsets import GroupOffsets, OffsetStore
from barnabas.broker.coordinator.groups.pending import PendingOffsets
from barnabas.broker.coordinator.groups.shard import Group, GroupShard, check_group_id
from barnabas.broker.coordinator.groups.share.administration import ShareAdministration
from barnabas.broker.coordinator.groups.share.coordination import ShareGroups
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.requests import check_heartbeat as check_share_heartbeat
from barnabas.broker.coordinator.loading import InternalLog
from barnabas.broker.coordinator.partitioning import is_storable
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.coordinator.share_state.persister import SharePersister
from barnabas.broker.metadata import ImageDelta
from barnabas.broker.metadata.features import GROUP_VERSION
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

logger = logger_of(__name__)

T = TypeVar("T")

#: the groups that one turn of the event loop checks for expired offsets, or for deleted topics
_GROUPS_A_TURN = 100
#: the length reserved for the unique part of a member id, in characters
_UNIQUE = 40


class _OfGroup(Protocol):
    """A request about one group."""

    group_id: str


def _checked(group_id: str) -> str:
    """Return the group id. Raises KafkaError INVALID_GROUP_ID if the id is empty or too long."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    check_group_id(group_id)
    return group_id


def _unchecked(group_id: str) -> str:
    return group_id


def _group_of(request: _OfGroup) -> str:
    return _checked(request.group_id)


class GroupCoordinator(Coordinator[GroupShard]):
    """Coordinates the groups whose `__consumer_offsets` partitions this broker leads.

    One event loop owns it.
    """

    def __init__(
        self,
        view: BrokerView,
        log: InternalLog,
        *,
        unique: Callable[[], str],
        search: PatternSearch,
        assigning: Pool,
        persister: SharePersister,
    ) -> None:
        """Create the coordinator.

        Args:
            view: settings of the broker, and its image (copy) of the cluster's metadata.
            log: the partitions of `__consumer_offsets`.
            unique: returns a different text at each call. In the consumer protocol, the text becomes a new
                member's id; in the classic protocol, the end of the id.
            search: finds topics by regular expressions.
            assigning: thread that computes assignments.
            persister: reads and writes the states of share partitions.
        """
        self._view = view
        self._unique = unique
        self._housekeeping: asyncio.Task[None] | None = None

        #: the metadata of all members of classic groups
        self.metadata = HeldMetadata()
        #: the rebalances of share groups
        self.share_rebalances = Meter(view.clock.monotonic)
        self.share_groups = ShareAdministration(_ShareShards(self), persister)

        def make_shard(context: ShardContext[GroupShard]) -> GroupShard:
            return GroupShard(
                context,
                view,
                unique,
                search,
                assigning,
                persister,
                self.metadata,
                self.share_rebalances,
            )

        super().__init__(
            GROUP_METADATA_TOPIC,
            log,
            view,
            make_shard,
            planned_partitions=view.config.offsets_topic_num_partitions,
            write_timeout_ms=view.config.offsets_commit_timeout_ms,
        )

    def start(self) -> None:
        """Begin to check for expired offsets periodically."""
        self._housekeeping = start_task(self._expire_regularly(), "expiry of offsets", is_vital=True)

    async def stop(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR and drop all state."""
        await stop_tasks(self._housekeeping)
        await super().stop()

    def follow(self, node_id: BrokerId, delta: ImageDelta) -> None:
        """Load and unload shards as leaders change. Begin to remove deleted topics from groups and offsets.

        `node_id` is the id of this broker.
        """
        super().follow(node_id, delta)
        gone = {name for name in delta.topics if _is_deleted(name, delta)}
        if gone:
            self.forget_topics(gone)
            self.forget_share_topics({delta.before.topics[name].id for name in gone})

    def forget_share_topics(self, topics: set[TopicId]) -> None:
        """Begin to remove deleted topics from the share groups that have states for them."""
        self._in_turns(self._forgetting_share_topics(topics))

    def _forgetting_share_topics(self, topics: set[TopicId]) -> Iterator[None]:
        for partition, shard in self.active_shards():
            for group in list(shard.groups.values()):
                if isinstance(group, ShareGroup) and not topics.isdisjoint(group.partitions.names()):
                    self.write_unattended(
                        partition,
                        group.group_id,
                        lambda shard, group_id=group.group_id: shard.shares.forget_topics(group_id, topics),  # type: ignore[misc]
                    )
                yield

    def forget_topics(self, topics: set[str]) -> None:
        """Begin to delete the offsets of deleted topics. `topics` are their names."""
        self._in_turns(self._forgetting_topics(topics))

    def _forgetting_topics(self, topics: set[str]) -> Iterator[None]:
        for partition, shard in self.active_shards():
            for group_id in list(shard.groups):
                if shard.commits.has_offsets_of(group_id, topics):
                    self.write_unattended(
                        partition,
                        group_id,
                        lambda shard, group_id=group_id: shard.commits.forget_topics(group_id, topics),  # type: ignore[misc]
                    )
                yield

    def _in_turns(self, groups: Iterator[None]) -> None:
        """Iterate over `groups`, which works on a group at each step, with 100 groups in a turn of the loop.

        The first turn is this one.
        """
        for number, _ in enumerate(groups, 1):
            if number == _GROUPS_A_TURN:
                asyncio.get_running_loop().call_soon(self._in_turns, groups)
                return

    async def expire(self) -> None:
        """Start the deletion of expired offsets in all groups. After each 100 groups, other tasks can run.

        The method returns when it has started all deletions, and does not wait for their end.
        """
        for partition, shard in self.active_shards():
            for number, group_id in enumerate(list(shard.groups), 1):
                self.write_unattended(
                    partition, group_id, partial(GroupShard.expire_group, group_id=group_id)
                )
                if number % _GROUPS_A_TURN == 0:
                    await asyncio.sleep(0)

    def has_group(self, group_id: str) -> bool | None:
        """Whether the group exists; None if this broker does not coordinate it, or has not loaded it yet."""
        try:
            return self._read(group_id, lambda shard: group_id in shard.groups)
        except KafkaError:
            return None

    # --- membership ---

    _make_way = writing(GroupShard.delete_empty_consumer_group, _checked)
    _join = writing(GroupShard.join, _group_of)

    def join(self, request: JoinGroupRequest, caller: Caller) -> MaybeAwaitable[JoinGroupResponse]:
        """Handle JoinGroup: check the request, and run `GroupShard.join`.

        If the group is an empty consumer group and the request has no member id, a classic group replaces it
        first.

        Raises:
            KafkaError: INVALID_GROUP_ID, the id is empty or too long; INVALID_SESSION_TIMEOUT, the session
                timeout is outside of the broker's limits; INVALID_REQUEST, a string is too long for a record;
                UNKNOWN_MEMBER_ID, the consumer group is empty and the request has a member id; the errors of
                `GroupShard.join` and `CoordinatorRuntime.write`.
        """
        _checked(request.group_id)
        config = self._view.config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session.timeout.ms={request.session_timeout_ms} must lie between"
                f" {shortest} (group.min.session.timeout.ms) and {longest} (group.max.session.timeout.ms)",
            )
        prefix = f"{request.group_instance_id or caller.client_id}-{' ' * _UNIQUE}"
        stored = (prefix, request.protocol_type, *(protocol.name for protocol in request.protocols))
        if not all(map(is_storable, stored)):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "an id or a protocol name is longer than 32,767 bytes"
            )
        group = self._read(request.group_id, lambda shard: shard.groups.get(request.group_id))
        if isinstance(group, ConsumerGroup) and group.is_empty:
            if request.member_id:  # the id of a former member: its JoinGroup must not delete the group
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            return self._join_instead(request, caller)
        return self._join(request, caller)

    async def _join_instead(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        """Replace an empty consumer group by a classic group, and join the classic group."""
        await resolve(self._make_way(request.group_id))
        return await resolve(self._join(request, caller))

    _consumer_heartbeat = writing(GroupShard.consumer_heartbeat, attrgetter("group_id"))

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> MaybeAwaitable[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat: check the request, and run `GroupShard.consumer_heartbeat`.

        If the request has no member id, set a new one in the request.

        Raises:
            KafkaError: UNSUPPORTED_VERSION, the consumer protocol is disabled; INVALID_REQUEST, a field is
                not valid; UNSUPPORTED_ASSIGNOR, the broker does not have the requested assignor;
                INVALID_GROUP_ID, the group id is too long; the errors of `GroupShard.consumer_heartbeat`.
        """
        self.check_consumer_protocol()
        check_heartbeat(request, caller.api_version, self._view.config.group_consumer_assignors)
        check_group_id(request.group_id)
        if not request.member_id:
            request.member_id = self._unique()
        return self._consumer_heartbeat(request, caller)

    _share_heartbeat = writing(GroupShard.share_heartbeat, attrgetter("group_id"))

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> MaybeAwaitable[ShareGroupHeartbeatResponse]:
        """Handle ShareGroupHeartbeat: check the request, and run `GroupShard.share_heartbeat`.

        Raises:
            KafkaError: INVALID_REQUEST, a field is not valid; INVALID_GROUP_ID, the group id is too long; the
                errors of `GroupShard.share_heartbeat`.
        """
        check_share_heartbeat(request)
        check_group_id(request.group_id)
        return self._share_heartbeat(request, caller)

    def check_consumer_protocol(self) -> None:
        """Raise KafkaError UNSUPPORTED_VERSION if the consumer protocol is disabled (KIP-848).

        The setting ``group.coordinator.rebalance.protocols`` or the feature ``group.version`` disables it.
        """
        if (
            "consumer" not in self._view.config.group_coordinator_rebalance_protocols
            or self._view.image.features.level(GROUP_VERSION) < 1
        ):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "groups of the consumer protocol are not enabled")

    sync = writing(GroupShard.sync, _group_of)
    heartbeat = reading(GroupShard.heartbeat, _group_of)
    leave = writing(GroupShard.leave, _checked)

    # --- offsets ---

    #: old clients may send an empty group id
    commit = writing(GroupShard.commit, attrgetter("group_id"), shared=True)
    commit_in_transaction = writing(GroupShard.commit_in_transaction, _group_of, shared=True)
    check_fetch = reading(GroupShard.check_fetch, _unchecked)
    delete_offsets = writing(GroupShard.delete_offsets, _checked)

    def pending_offsets(self, group_id: str) -> PendingOffsets:
        """Return the offsets in open transactions of all groups in the shard of `group_id`.

        Raises:
            KafkaError: NOT_COORDINATOR, this broker does not coordinate the group;
                COORDINATOR_LOAD_IN_PROGRESS, the shard is still loading.
        """
        return self._read(group_id, lambda shard: shard.commits.pending)

    def offsets(self, group_id: str) -> OffsetStore:
        """Return the committed offsets of all groups in the shard of `group_id`.

        Raises:
            KafkaError: NOT_COORDINATOR, this broker does not coordinate the group;
                COORDINATOR_LOAD_IN_PROGRESS, the shard is still loading.
        """
        return self._read(group_id, lambda shard: shard.commits.offsets)

    # --- groups as a whole ---

    def groups(self) -> list[Group]:
        """Return all groups that this broker coordinates.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, some groups may not be loaded yet.
        """
        self._check_loaded()
        return self.loaded_groups()

    def loaded_groups(self) -> list[Group]:
        """Return all groups of loaded shards."""
        return [group for _, shard in self.active_shards() for group in shard.groups.values()]

    def loaded_offsets(self) -> list[tuple[str, GroupOffsets]]:
        """Return the id and the committed offsets of each loaded group that has offsets.

        The offsets are not copies: later commits change them.
        """
        return [
            (group_id, offsets)
            for _, shard in self.active_shards()
            for group_id in shard.groups
            if (offsets := shard.commits.offsets.of_group(group_id))
        ]

    def group(self, group_id: str) -> Group:
        """Return the group with this id, of any type.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, there is no such group; NOT_COORDINATOR, this broker does not
                coordinate the group; COORDINATOR_LOAD_IN_PROGRESS, the shard is still loading.
        """
        group = self._read(group_id, lambda shard: shard.groups.get(group_id))
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    _delete_group = writing(GroupShard.delete_group, _unchecked)

    async def delete_group(self, group_id: str) -> None:
        """Delete an empty group with its offsets, or a share group with the states of its partitions.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, there is no such group; NON_EMPTY_GROUP, the group has members;
                for a share group, the error of a state that could not be deleted; the errors of
                `CoordinatorRuntime.write`.
        """
        if not await resolve(self._delete_group(group_id)):
            await self.share_groups.delete_group(group_id)

    # --- inside ---

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._view.config.offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire()
            except Exception:
                logger.exception("expired offsets could not be deleted")


class _ShareShards:
    """Runs the operations of `ShareAdministration` on the coordinator's shards."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def read(self, group_id: str) -> ShareGroups:
        return self._coordinator._read(group_id, attrgetter("shares"))  # type: ignore[no-any-return]

    def write(self, group_id: str, operation: Callable[[ShareGroups], Result[T]]) -> MaybeAwaitable[T]:
        partition = self._coordinator.partition_for(group_id)
        return self._coordinator.write(partition, group_id, lambda shard: operation(shard.shares))


def _is_deleted(topic: str, delta: ImageDelta) -> bool:
    """Whether `delta` deletes the topic that had the name `topic` before it.

    A topic can be missing from the image after `delta` without a deletion. So `delta` must list the topic's
    id as deleted.
    """
    before, after = delta.before.topics.get(topic), delta.after.topics.get(topic)
    if before is None or (after is not None and after.id == before.id):
        return False
    return delta.is_deleted(before.id)
