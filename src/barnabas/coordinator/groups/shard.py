"""The groups of one partition of `__consumer_offsets`, and what may be done with them.

Each method is an operation of the coordinator runtime: it looks at the state and returns what to append and
what to answer. `replay` is where committed records become state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from barnabas.config import BrokerConfig
from barnabas.config.setting import LONG_MAX
from barnabas.coordinator.groups import codec
from barnabas.coordinator.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinator.groups.classic.membership import Caller, Membership
from barnabas.coordinator.groups.classic.rebalance import Rebalance
from barnabas.coordinator.groups.classic.sessions import Sessions
from barnabas.coordinator.groups.codec import (
    NO_EXPIRY,
    CommittedOffset,
    OffsetKey,
    group_record,
    offset_record,
)
from barnabas.coordinator.groups.offsets import OffsetStore
from barnabas.coordinator.groups.pending import PendingOffsets
from barnabas.coordinator.runtime import Result, ShardContext
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.records import Record
from barnabas.types import ProducerId, ProducerIdentity, TopicId

logger = logging.getLogger(__name__)

#: from this version a commit to a group that is not there is told so (KIP-848)
_GROUP_ID_NOT_FOUND_FROM = 9
_MINUTE_MS = 60_000


class GroupShard:
    """One shard of the group coordinator."""

    def __init__(
        self,
        context: ShardContext[GroupShard],
        config: Callable[[], BrokerConfig],
        unique: Callable[[], str],
    ) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        #: what open transactions have committed
        self.pending = PendingOffsets()
        self._context = context
        self._clock = context.clock
        self._config = config
        self._is_loaded = False
        self._strange_kinds: set[int] = set()
        self._sessions = Sessions(
            context.timers, self._step, lambda group, member: self._membership.expire(group, member)
        )
        self._rebalance = Rebalance(config, context.clock, context.timers, self._step, self._sessions)
        self._membership = Membership(config, self._sessions, self._rebalance, unique)

    # --- the runtime's side ---

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one committed record of `__consumer_offsets`.

        Raises:
            ProtocolError: the record is of a known kind and cannot be read.
        """
        kind = codec.kind_of(key)
        if kind in (codec.OFFSET_KIND, codec.LEGACY_OFFSET_KIND):
            offset_key = codec.decode_offset_key(key)
            if value is None:
                self.offsets.remove(offset_key)
                self.pending.drop(offset_key)
            else:
                self.offsets.put(offset_key, codec.decode_offset(value))
                self.pending.overtake(offset_key)
                self._ensure_group(offset_key.group_id)
        elif kind == codec.GROUP_KIND:
            self._replay_group(codec.decode_group_key(key), value)
        elif kind not in self._strange_kinds:
            self._strange_kinds.add(kind)
            logger.warning("records of kind %d in __consumer_offsets are passed over: not understood", kind)

    def replay_pending(self, producer_id: ProducerId, key: bytes, value: bytes) -> None:
        """An offset of a transaction that is still open: nobody sees it before the transaction commits.

        Raises:
            ProtocolError: the record cannot be read.
        """
        if codec.kind_of(key) not in (codec.OFFSET_KIND, codec.LEGACY_OFFSET_KIND):
            logger.warning("__consumer_offsets holds a transaction's record that is no offset")
            return
        offset_key = codec.decode_offset_key(key)
        self.pending.put(producer_id, offset_key, codec.decode_offset(value))
        self._ensure_group(offset_key.group_id)

    def end_transaction(self, producer_id: ProducerId, commit: bool) -> None:
        """The offsets of a producer's transaction count now, or never will."""
        for offset_key, committed in self.pending.end(producer_id):
            if commit:
                self.offsets.put(offset_key, committed)
                self._ensure_group(offset_key.group_id)

    def loaded(self) -> None:
        """Members of before get a session's time to show up."""
        self._is_loaded = True
        limit = self._config().group_max_size
        for group in self.groups.values():
            if len(group.members) > limit:
                self._step(group.group_id, partial(self._rebalance.prepare, group, "over group.max.size"))
            for member in group.members:
                self._sessions.keep_alive(group, member)

    def unload(self, error: KafkaError) -> None:
        """Send everybody who waits to look for the new coordinator."""
        for group in self.groups.values():
            for member in group.members:
                group.members.answer_join(
                    member, JoinGroupResponse(error_code=error.code, member_id=member.member_id)
                )
                member.answer_sync(SyncGroupResponse(error_code=error.code))

    def _step(self, group_id: str, step: Callable[[], list[Record]]) -> None:
        """Run something of our own in its turn among a group's requests."""
        self._context.write(group_id, lambda _: Result(records=step()))

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            group = self.groups.pop(group_id, None)
            if group is not None:
                self._rebalance.drop(group)
                group.move_to(GroupState.DEAD, self._clock.now_ms())
            return
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new_group(group_id)
        group.apply(codec.decode_group(value))
        if self._is_loaded:
            self._rebalance.announce(group)

    def _ensure_group(self, group_id: str) -> None:
        """Whoever commits without being a member makes a group."""
        if group_id not in self.groups:
            self.groups[group_id] = self._new_group(group_id)

    def _new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._clock.now_ms())

    # --- membership ---

    def join(self, request: JoinGroupRequest, caller: Caller) -> Result[JoinGroupResponse]:
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._new_group(request.group_id)
        result = self._membership.join(group, request, caller)
        self.groups[request.group_id] = group
        return result

    def sync(self, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        group = self._member_group(request.group_id)
        member = group.members.check(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if (request.protocol_type or group.protocol_type) != group.protocol_type or (
            request.protocol_name or group.protocol
        ) != group.protocol:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._rebalance.sync(group, member, request)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self._member_group(request.group_id)
        return self._membership.heartbeat(
            group, request.member_id, request.group_instance_id, request.generation_id
        )

    def leave(self, group_id: str, members: list[MemberIdentity]) -> Result[LeaveGroupResponse]:
        return self._membership.leave(self._member_group(group_id), members)

    def _member_group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # --- offsets ---

    def commit(self, request: OffsetCommitRequest, api_version: int) -> Result[OffsetCommitResponse]:
        """Store offsets; every topic of the request has its name, and its id where that is known.

        Raises:
            KafkaError: the sender may not commit: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND.
        """
        self._check_commit(request, api_version)
        now = self._clock.now_ms()
        retention = request.retention_time_ms
        expires = NO_EXPIRY if retention < 0 else min(now + retention, LONG_MAX)
        records: list[Record] = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            outcomes = [
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=self._store(
                        request.group_id, topic.name, partition, now, expires, topic.topic_id, records
                    ),
                )
                for partition in topic.partitions
            ]
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=outcomes)
            )
        return Result(response, records)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, TopicId]
    ) -> Result[TxnOffsetCommitResponse]:
        """Store offsets that count when the producer's transaction commits.

        Raises:
            KafkaError: the sender may not commit: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
        """
        self._check_transactional_commit(request)
        now = self._clock.now_ms()
        records: list[Record] = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            topic_id = topic_ids[topic.name]
            outcomes = [
                TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=self._store(
                        request.group_id, topic.name, partition, now, NO_EXPIRY, topic_id, records
                    ),
                )
                for partition in topic.partitions
            ]
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=outcomes))
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        return Result(response, records, producer)

    def _store(
        self,
        group_id: str,
        topic: str,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        now_ms: int,
        expires_ms: int,
        topic_id: TopicId,
        records: list[Record],
    ) -> ErrorCode:
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._config().offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        committed = CommittedOffset(
            partition.committed_offset,
            partition.committed_leader_epoch,
            metadata,
            now_ms,
            expires_ms,
            topic_id,
        )
        records.append(offset_record(OffsetKey(group_id, topic, partition.partition_index), committed))
        return ErrorCode.NONE

    def _check_transactional_commit(self, request: TxnOffsetCommitRequest) -> None:
        """Whether the sender may commit; one that does not say who it is may (KIP-447 came later)."""
        group = self.groups.get(request.group_id)
        generation = request.generation_id
        if group is None:
            if generation >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            return
        if generation < 0 and (
            group.has(GroupState.EMPTY) or (not request.member_id and request.group_instance_id is None)
        ):
            return
        member = group.members.check(request.member_id, request.group_instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._sessions.keep_alive(group, member)

    def _check_commit(self, request: OffsetCommitRequest, api_version: int) -> None:
        """Whether the sender may commit for the group; a member's session begins anew."""
        group = self.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:  # a consumer that assigns by itself: its first commit makes the group
                return
            if api_version >= _GROUP_ID_NOT_FOUND_FROM:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if generation < 0 and group.has(GroupState.EMPTY):
            return
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            # From outside, while members are at work.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.members.check(request.member_id, request.group_instance_id)
        if generation != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.has(GroupState.COMPLETING_REBALANCE):
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._sessions.keep_alive(group, member)

    def delete_offsets(self, group_id: str, keys: list[OffsetKey]) -> Result[dict[OffsetKey, ErrorCode]]:
        """Delete offsets nobody uses; a topic that members subscribe to keeps its own.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP for members whose topics are not known.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.has(GroupState.EMPTY) and not group.is_consumer_group:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        in_use = group.topics_in_use()
        outcome = {
            key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if key.topic in in_use else ErrorCode.NONE
            for key in keys
        }
        records = [
            offset_record(key, None)
            for key, error in outcome.items()
            if error is ErrorCode.NONE and (self.offsets.get(key) is not None or key in self.pending)
        ]
        return Result(outcome, records)

    # --- groups as a whole ---

    def delete_group(self, group_id: str) -> Result[None]:
        """Delete an empty group with its offsets.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.has(GroupState.EMPTY):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        keys = {*self.offsets.keys(group_id), *self.pending.of_group(group_id)}
        return Result(records=[*self._tombstones(sorted(keys)), group_record(group_id, None)])

    def expire_group(self, group_id: str) -> Result[None]:
        """Delete a group's expired offsets, and the group when neither offsets nor members are left."""
        group = self.groups.get(group_id)
        if group is None:
            return Result()
        retention_ms = self._config().offsets_retention_minutes * _MINUTE_MS
        expired = [
            key
            for key in self.offsets.expired(group, self._clock.now_ms(), retention_ms)
            if key not in self.pending
        ]
        records = self._tombstones(expired)
        left = sum(map(len, self.offsets.of_group(group_id).values())) - len(expired)
        is_used = left or group.pending or self.pending.of_group(group_id)
        if not is_used and group.has(GroupState.EMPTY):
            records.append(group_record(group_id, None))
        return Result(records=records)

    def has_offsets_of(self, group_id: str, topics: set[str]) -> bool:
        """Whether the group has offsets of these topics, pending ones included."""
        return bool(self._keys_of(group_id, topics))

    def forget_topics(self, group_id: str, topics: set[str]) -> Result[None]:
        """Delete a group's offsets of topics that have been deleted."""
        return Result(records=self._tombstones(self._keys_of(group_id, topics)))

    def _keys_of(self, group_id: str, topics: set[str]) -> list[OffsetKey]:
        pending = {key for key in self.pending.of_group(group_id) if key.topic in topics}
        return [*self.offsets.of_topics(group_id, topics), *sorted(pending - {*self.offsets.keys(group_id)})]

    def _tombstones(self, keys: Iterable[OffsetKey]) -> list[Record]:
        return [offset_record(key, None) for key in keys]
