"""The group coordinator: what the server's handlers talk to.

Finds the shard of a group, runs the operation there, and keeps house: expired offsets, deleted topics.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from barnabas.clock import Clock
from barnabas.config import BrokerConfig
from barnabas.coordinator.groups.classic.group import ClassicGroup
from barnabas.coordinator.groups.classic.membership import Caller
from barnabas.coordinator.groups.codec import OffsetKey
from barnabas.coordinator.groups.offsets import OffsetStore
from barnabas.coordinator.groups.pending import PendingOffsets
from barnabas.coordinator.groups.shard import GroupShard
from barnabas.coordinator.loading import InternalLog
from barnabas.coordinator.partitioning import partition_for
from barnabas.coordinator.runtime import CoordinatorRuntime, Result, ShardContext
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.records.control import EndTransaction
from barnabas.types import GROUP_METADATA_TOPIC, LeaderEpoch, ProducerIdentity, TopicId

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: how many groups are looked over for expired offsets before others get their turn
_GROUPS_A_TURN = 100


class GroupCoordinator:
    """The groups whose `__consumer_offsets` partitions this broker leads. Owned by one event loop."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        log: InternalLog,
        *,
        partitions: Callable[[], int],
        unique: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """`config` gives the broker's settings of the moment, `partitions` how many `__consumer_offsets` has
        (or will have), `unique` what makes a member id unique."""
        self._config = config
        self._partitions = partitions
        self._housekeeping: asyncio.Task[None] | None = None

        def make_shard(context: ShardContext[GroupShard]) -> GroupShard:
            return GroupShard(context, config, unique)

        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            GROUP_METADATA_TOPIC,
            log,
            clock,
            make_shard,
            write_timeout_ms=config().offsets_commit_timeout_ms,
        )

    # --- life ---

    def start(self) -> None:
        """Begin to look for expired offsets now and then."""
        self._housekeeping = asyncio.get_running_loop().create_task(self._keep_house())

    async def stop(self) -> None:
        """Answer whoever waits with NOT_COORDINATOR and forget everything."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
            await asyncio.wait([self._housekeeping])
        await self._runtime.stop()

    def elect(self, partition: int, epoch: LeaderEpoch) -> None:
        """This broker leads a partition of `__consumer_offsets`: load its groups in the background."""
        self._runtime.elect(partition, epoch)

    def resign(self, partition: int) -> None:
        """This broker no longer leads a partition of `__consumer_offsets`."""
        self._runtime.resign(partition)

    def coordinated(self) -> Collection[int]:
        """The partitions of `__consumer_offsets` this broker coordinates."""
        return self._runtime.partitions()

    def forget_topics(self, topics: set[str]) -> None:
        """Delete the offsets of topics that have been deleted."""
        for partition, shard in self._runtime.active_shards():
            for group_id in list(shard.groups):
                if shard.has_offsets_of(group_id, topics):
                    self._runtime.write_unattended(
                        partition,
                        group_id,
                        partial(GroupShard.forget_topics, group_id=group_id, topics=topics),
                    )

    async def expire(self) -> None:
        """Delete what has expired, in turns with what else there is to do."""
        for partition, shard in self._runtime.active_shards():
            for number, group_id in enumerate(list(shard.groups), 1):
                self._runtime.write_unattended(
                    partition, group_id, partial(GroupShard.expire_group, group_id=group_id)
                )
                if number % _GROUPS_A_TURN == 0:
                    await asyncio.sleep(0)

    # --- membership ---

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps a group."""
        return partition_for(group_id, self._partitions())

    def join(
        self, request: JoinGroupRequest, caller: Caller
    ) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
        """JoinGroup.

        Raises:
            KafkaError: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL,
                UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, and as all others NOT_COORDINATOR,
                COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        _check_group_id(request.group_id)
        config = self._config()
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session.timeout.ms={request.session_timeout_ms} must lie between"
                f" {shortest} (group.min.session.timeout.ms) and {longest} (group.max.session.timeout.ms)",
            )
        return self._write(request.group_id, lambda shard: shard.join(request, caller))

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
        """SyncGroup.

        Raises:
            KafkaError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
        """
        _check_group_id(request.group_id)
        return self._write(request.group_id, lambda shard: shard.sync(request))

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat; it waits for nothing, whatever is being appended.

        Raises:
            KafkaError: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                REBALANCE_IN_PROGRESS.
        """
        _check_group_id(request.group_id)
        return self._read(request.group_id, lambda shard: shard.heartbeat(request))

    def leave(
        self, group_id: str, members: list[MemberIdentity]
    ) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
        """LeaveGroup.

        Raises:
            KafkaError: INVALID_GROUP_ID, or UNKNOWN_MEMBER_ID when there is no such group.
        """
        _check_group_id(group_id)
        return self._write(group_id, lambda shard: shard.leave(group_id, members))

    # --- offsets ---

    def commit(
        self, request: OffsetCommitRequest, api_version: int
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        """OffsetCommit; see `GroupShard.commit`. An empty group id is allowed, for old clients' sake."""
        partition = self.partition_for(request.group_id)
        return self._runtime.write(
            partition, request.group_id, lambda shard: shard.commit(request, api_version), together=True
        )

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, TopicId]
    ) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        """TxnOffsetCommit; see `GroupShard.commit_in_transaction`.

        Raises:
            KafkaError: INVALID_GROUP_ID, INVALID_PRODUCER_EPOCH, and as `GroupShard.commit_in_transaction`.
        """
        _check_group_id(request.group_id)
        partition = self.partition_for(request.group_id)
        return self._runtime.write(
            partition,
            request.group_id,
            lambda shard: shard.commit_in_transaction(request, topic_ids),
            together=True,
        )

    def end_transaction(
        self, partition: int, producer: ProducerIdentity, marker: EndTransaction
    ) -> Awaitable[None] | None:
        """A producer's transaction ends in a partition of `__consumer_offsets`.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
                INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        return self._runtime.end_transaction(partition, producer, marker)

    def pending_offsets(self, group_id: str) -> PendingOffsets:
        """What open transactions have committed, among others for this group.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._read(group_id, lambda shard: shard.pending)

    def offsets(self, group_id: str) -> OffsetStore:
        """The store that has a group's committed offsets.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._read(group_id, lambda shard: shard.offsets)

    def delete_offsets(
        self, group_id: str, keys: list[OffsetKey]
    ) -> dict[OffsetKey, ErrorCode] | Awaitable[dict[OffsetKey, ErrorCode]]:
        """OffsetDelete.

        Raises:
            KafkaError: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        _check_group_id(group_id)
        return self._write(group_id, lambda shard: shard.delete_offsets(group_id, keys))

    # --- groups as a whole ---

    def groups(self) -> list[ClassicGroup]:
        """Every group coordinated here.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while some may be missing.
        """
        if self._runtime.is_loading():
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [group for _, shard in self._runtime.active_shards() for group in shard.groups.values()]

    def group(self, group_id: str) -> ClassicGroup:
        """One group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        group = self._read(group_id, lambda shard: shard.groups.get(group_id))
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def delete_group(self, group_id: str) -> Awaitable[None] | None:
        """Delete an empty group with its offsets.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        return self._write(group_id, lambda shard: shard.delete_group(group_id))

    # --- inside ---

    def _write(self, group_id: str, operation: Callable[[GroupShard], Result[T]]) -> T | Awaitable[T]:
        return self._runtime.write(self.partition_for(group_id), group_id, operation)

    def _read(self, group_id: str, operation: Callable[[GroupShard], T]) -> T:
        return self._runtime.read(self.partition_for(group_id), operation)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(self._config().offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire()
            except Exception:
                logger.exception("expired offsets could not be deleted")


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
