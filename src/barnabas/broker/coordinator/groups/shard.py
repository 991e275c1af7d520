"""The groups of one partition of `__consumer_offsets`, and the operations on them.

The methods of `GroupShard` for requests are operations of the coordinator runtime. An operation reads the
shard, and returns a `Result`: the records to append and the response. `replay` applies committed records. The
packages `classic`, `consumer` and `share` have the code for each group type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.metrics import Meter
from barnabas.base.text import logger_of
from barnabas.base.types import ProducerId, TopicId
from barnabas.broker.coordinator.contract import Result, ShardContext, StoredRecord
from barnabas.broker.coordinator.groups import codec
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.members import HeldMetadata
from barnabas.broker.coordinator.groups.classic.membership import ClassicMembership
from barnabas.broker.coordinator.groups.classic.rebalance import Rebalance
from barnabas.broker.coordinator.groups.classic.session_timeouts import SessionTimeouts
from barnabas.broker.coordinator.groups.classic.states import Event
from barnabas.broker.coordinator.groups.codec import GroupRecord, OffsetKey, OffsetRecord
from barnabas.broker.coordinator.groups.commits import Commits
from barnabas.broker.coordinator.groups.consumer.coordination import ConsumerGroups
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.modern.records import KINDS, ModernGroupRecord, decode_record
from barnabas.broker.coordinator.groups.share.coordination import ShareGroups
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.partitioning import is_storable
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.coordinator.record_prefix import prefix_of
from barnabas.broker.coordinator.share_state.persister import SharePersister
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from barnabas.kafka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.kafka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.kafka.protocol.records.consumer_group import ConsumerGroupMetadataKey
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataValue
from barnabas.kafka.protocol.records.share_group import ShareGroupMetadataKey

logger = logger_of(__name__)

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup
#: a record of `__consumer_offsets`
GroupsRecord: TypeAlias = OffsetRecord | GroupRecord | ModernGroupRecord

#: from this version clients know GROUP_ID_NOT_FOUND, and members have epochs (KIP-848)
_MEMBER_EPOCHS_FROM = 9


def check_group_id(group_id: str) -> None:
    """Raise KafkaError INVALID_GROUP_ID if the id is too long for a record."""
    if not is_storable(group_id):
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is longer than 32,767 bytes")


class GroupShard:
    """One shard of the group coordinator: the groups and offsets of one `__consumer_offsets` partition."""

    def __init__(
        self,
        context: ShardContext[GroupShard],
        view: BrokerView,
        unique: Callable[[], str],
        search: PatternSearch,
        assigning: Pool,
        persister: SharePersister,
        metadata: HeldMetadata,
        share_rebalances: Meter,
    ) -> None:
        """Create a shard.

        Args:
            context: what the coordinator runtime gives to the shard, such as the clock and the timers.
            view: settings of the broker, and its image (copy) of the cluster's metadata.
            unique: returns a different text at each call. The text becomes the end of a new member id.
            search: finds topics by regular expressions.
            assigning: thread that computes assignments.
            persister: reads and writes the states of share partitions.
            metadata: counts and limits the metadata of members in all classic groups of the broker.
            share_rebalances: counts the rebalances of all share groups of the broker.
        """
        self.groups: dict[str, Group] = {}
        self.commits = Commits(view)
        self._context = context
        self._clock = context.clock
        self._view = view
        self._strange_kinds: set[int] = set()
        self._sessions = SessionTimeouts(
            context.timers, self._step, lambda group, member: self._membership.expire(group, member)
        )
        self._rebalance = Rebalance(view, context.timers, context.max_bytes, self._step, self._sessions)
        self._metadata = metadata
        self._membership = ClassicMembership(
            view, self._sessions, self._rebalance, unique, metadata, context.max_bytes
        )
        self._consumers = ConsumerGroups(
            context, self.groups.get, view, unique, search, assigning, self._downgraded
        )
        self.shares = ShareGroups(context, self.groups.get, view, persister, assigning, share_rebalances)

    # --- the runtime's side ---

    def decode(self, key: bytes, value: bytes | None) -> GroupsRecord | None:
        """Decode a record of `__consumer_offsets`. Return None for an unknown kind.

        Raises:
            ProtocolError: the kind is known, but the record cannot be decoded.
        """
        kind = prefix_of(key)
        if kind in (codec.OFFSET_KIND, codec.LEGACY_OFFSET_KIND):
            return codec.decode_offset_record(key, value)
        if kind == codec.GROUP_KIND:
            return codec.decode_group_record(key, value)
        if kind in KINDS:
            return decode_record(kind, key, value)
        if kind not in self._strange_kinds:
            self._strange_kinds.add(kind)
            logger.warning("skipped records of unknown type %d in __consumer_offsets", kind)
        return None

    def replay(self, record: GroupsRecord) -> None:
        """Apply one committed record of `__consumer_offsets`."""
        if isinstance(record, OffsetRecord):
            self.commits.replay(record)
            key, committed = record
            if committed is not None and key.group_id not in self.groups:
                self._ensure_group(key.group_id)
        elif isinstance(record, GroupRecord):
            self._replay_classic(record.group_id, record.value)
        else:
            self._replay_modern(record)

    def replay_pending(self, producer_id: ProducerId, record: GroupsRecord) -> None:
        """Keep an offset of an open transaction, which becomes valid when the transaction commits."""
        if not isinstance(record, OffsetRecord):
            logger.warning("__consumer_offsets has a record of a transaction that is not an offset")
            return
        self.commits.replay_pending(producer_id, record)
        self._ensure_group(record.key.group_id)

    def end_transaction(self, producer_id: ProducerId, commit: bool) -> None:
        """End a producer's transaction.

        Its offsets become valid if `commit` is true. If `commit` is false, the shard drops the offsets.
        """
        for offset_key in self.commits.end_transaction(producer_id, commit):
            self._ensure_group(offset_key.group_id)

    def loaded(self) -> None:
        """Start the session timeouts of loaded members.

        Also begin a rebalance of each classic group that has more than `group.max.size` members, and begin
        to delete the offsets of topics that were deleted.
        """
        if deleted := self._view.image.deleted_topics:
            for group_id in list(self.groups):
                if topics := self.commits.topics_of(group_id, deleted.keys()):
                    self._context.write(group_id, partial(self._forget_topics, group_id, topics))
        limit = self._view.config.group_max_size
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                self._consumers.loaded(group)
                continue
            if isinstance(group, ShareGroup):
                self.shares.loaded(group)
                continue
            if len(group.members) > limit:
                self._step(group.group_id, partial(self._rebalance.advance, group, "over group.max.size"))
            for member in group.members:
                self._sessions.keep_alive(group, member)

    def unload(self, error: KafkaError) -> None:
        """Answer waiting requests with `error`, and stop all work of the groups."""
        self._consumers.unload()
        self.shares.unload()
        for group in self.groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members:
                group.members.answer_join(
                    member, JoinGroupResponse(error_code=error.code, member_id=member.member_id)
                )
                member.answer_sync(SyncGroupResponse(error_code=error.code))
            group.members.drop()

    def _step(self, group_id: str, step: Callable[[], Sequence[StoredRecord]]) -> None:
        """Run `step` under the group's lock, and append the records that it returns.

        The method itself returns at once. It does not wait for the lock or the append. The coordinator
        runtime logs a failure.
        """
        self._context.write(group_id, lambda _: Result(records=step()))

    def _forget_topics(self, group_id: str, topics: set[str], _: object) -> Result[None]:
        return self.commits.forget_topics(group_id, topics)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                self._rebalance.drop(group)
                group.enter(group.react(Event.DELETED), self._clock.now_ms())
                group.members.drop()
                self._remove(group_id)
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = self._new_group(group_id)
        group.apply(value)

    def _replay_modern(self, record: ModernGroupRecord) -> None:
        key, value = record
        group = self.groups.get(key.group_id)
        group_class = ConsumerGroup if type(key) in ConsumerGroup.replays else ShareGroup
        if not isinstance(group, group_class):
            if value is None:
                return
            # A classic group here has only offsets: one with members was deleted first.
            group = self.groups[key.group_id] = group_class(key.group_id)
        group.replay(key, value)
        if value is not None:
            return
        if isinstance(group, ConsumerGroup) and isinstance(key, ConsumerGroupMetadataKey):
            self._consumers.forget(group)
            self._remove(group.group_id)
        elif isinstance(group, ShareGroup) and isinstance(key, ShareGroupMetadataKey):
            self.shares.forget(group)
            self._remove(group.group_id)

    def _remove(self, group_id: str) -> None:
        """Remove a deleted group. If the group has offsets, an empty classic group with its id keeps them."""
        del self.groups[group_id]
        if self.commits.has_offsets(group_id):
            self._ensure_group(group_id)

    def _ensure_group(self, group_id: str) -> None:
        """Create an empty classic group for committed offsets, unless a group with this id exists."""
        if group_id not in self.groups:
            self.groups[group_id] = self._new_group(group_id)

    def _new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._clock.now_ms(), self._metadata)

    # --- membership ---

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat: a member of the consumer protocol joins, stays or leaves.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, the group does not exist and the member does not join, or the
                group has another type and cannot be converted; GROUP_MAX_SIZE_REACHED, the group is full;
                UNKNOWN_MEMBER_ID, no member has the request's member id or instance id; FENCED_MEMBER_EPOCH,
                the member must not use the request's epoch; FENCED_INSTANCE_ID, another member has the
                instance id; UNRELEASED_INSTANCE_ID, a member joins with an instance id whose member has not
                left; INVALID_REGULAR_EXPRESSION, the subscribed expression cannot be compiled.
        """
        return self._consumers.heartbeat(request, caller)

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> Result[ShareGroupHeartbeatResponse]:
        """Handle ShareGroupHeartbeat: a member of a share group joins, stays or leaves.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, the group has another type, or does not exist and the member does
                not join; GROUP_MAX_SIZE_REACHED, the group is full; UNKNOWN_MEMBER_ID, no member has the
                request's member id; FENCED_MEMBER_EPOCH, the request's epoch is neither the member's current
                nor its previous one.
        """
        return self.shares.heartbeat(request, caller)

    def join(self, request: JoinGroupRequest, caller: Caller) -> Result[JoinGroupResponse]:
        """Handle JoinGroup. In a classic group the response can wait until the join phase completes.

        Two errors are in the response, and not raised. MEMBER_ID_REQUIRED: a dynamic member joins for the
        first time, and gets an id. GROUP_MAX_SIZE_REACHED: a classic group is full.

        Raises:
            KafkaError: INCONSISTENT_GROUP_PROTOCOL, the group has another type, or no protocol in common with
                the member; UNKNOWN_MEMBER_ID, no member has the id in the request; FENCED_INSTANCE_ID,
                another member has the instance id; INVALID_REQUEST, a static member uses the id of a dynamic
                one; UNKNOWN_SERVER_ERROR, the member's metadata is too large for a record;
                COORDINATOR_NOT_AVAILABLE, the metadata of all members together is too large;
                GROUP_MAX_SIZE_REACHED, a group of the consumer protocol is full.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumers.classic_members.join(group, request, caller)
        if isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group is None:
            if request.member_id:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._new_group(request.group_id)
        result = self._membership.join(group, request, caller)
        self.groups[request.group_id] = group
        return result

    def delete_empty_consumer_group(self, group_id: str) -> Result[None]:
        """Delete an empty consumer group, so that a classic group can replace it.

        Do nothing if the group does not exist, has members, or has another type.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty:
            return Result(records=group.tombstones())
        return Result()

    def sync(self, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """Handle SyncGroup. A member gets its assignment; the leader of a classic group sends all of them.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the group or the member does not exist; FENCED_INSTANCE_ID, another
                member has the instance id; ILLEGAL_GENERATION, the request has another generation;
                INCONSISTENT_GROUP_PROTOCOL, the request names another protocol; REBALANCE_IN_PROGRESS, the
                member must join again; for the leader, also UNKNOWN_SERVER_ERROR (its assignment is too
                large) and the errors of the append.
        """
        group = self._joinable(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumers.classic_members.sync(group, request)
        member = group.members.check(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if (request.protocol_type or group.protocol_type) != group.protocol_type or (
            request.protocol_name or group.protocol
        ) != group.protocol:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._rebalance.sync(group, member, request)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Handle Heartbeat: restart the member's session timeout, without waiting for pending appends.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the group or the member does not exist; FENCED_INSTANCE_ID, another
                member has the instance id; ILLEGAL_GENERATION, the request has another generation;
                REBALANCE_IN_PROGRESS, the member must join again.
        """
        group = self._joinable(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumers.classic_members.heartbeat(group, request)
        return self._membership.heartbeat(group, request)

    def leave(self, group_id: str, members: list[MemberIdentity]) -> Result[LeaveGroupResponse]:
        """Handle LeaveGroup. Return an outcome for each member.

        If the group does not exist, the outcome is UNKNOWN_MEMBER_ID for each of them.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumers.classic_members.leave(group, members)
        if isinstance(group, ClassicGroup):
            return self._membership.leave(group, members)
        outcomes = [
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for member in members
        ]
        return Result(LeaveGroupResponse(members=outcomes))

    def _downgraded(self, classic: ClassicGroup, reason: str) -> None:
        """Complete the conversion of a consumer group to the classic group `classic`.

        If `reason` is not empty, begin a rebalance for this reason.
        """
        group = self.groups[classic.group_id]
        assert isinstance(group, ClassicGroup)
        for member in classic.members:
            # Records have only the chosen protocol; the next rebalance may choose another.
            group.members.change_protocols(
                group.members.check(member.member_id, member.instance_id), member.protocols
            )
        for stored in group.members:
            self._sessions.keep_alive(group, stored)
        if reason:
            self._step(group.group_id, partial(self._rebalance.advance, group, reason))

    # --- offsets ---

    def commit(self, request: OffsetCommitRequest, api_version: int) -> Result[OffsetCommitResponse]:
        """Handle OffsetCommit: store offsets. Every topic of the request must have its name and its id.

        `api_version` is the version of the request: from v9 on, members of the consumer protocol can commit.

        Raises:
            KafkaError: the sender may not commit: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION; or
                INVALID_GROUP_ID, the id of a new group is too long.
        """
        group = self.groups.get(request.group_id)
        member_id, instance_id = request.member_id, request.group_instance_id
        generation = request.generation_id_or_member_epoch
        knows_epochs = api_version >= _MEMBER_EPOCHS_FROM
        if isinstance(group, ClassicGroup):
            self._membership.check_commit(group, member_id, instance_id, generation, in_transaction=False)
        elif group is not None:
            group.check_commit(
                member_id, instance_id, generation, in_transaction=False, speaks_epochs=knows_epochs
            )
        elif generation >= 0:  # else a consumer that assigns by itself: its first commit creates the group
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION)
        else:
            check_group_id(request.group_id)
        return self.commits.commit(request)

    def commit_in_transaction(
        self,
        request: TxnOffsetCommitRequest,
        topic_ids: Mapping[str, TopicId],
        check_transaction: Callable[[], None],
    ) -> Result[TxnOffsetCommitResponse]:
        """Handle TxnOffsetCommit: store offsets that become valid when the producer's transaction commits.

        `topic_ids` must have every topic of the request, by name. `check_transaction` raises KafkaError if
        the producer's transaction has ended. It is called here, because this operation may have waited for
        others of the group.

        Raises:
            KafkaError: the error of `check_transaction`; the sender may not commit: UNKNOWN_MEMBER_ID,
                FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or GROUP_ID_NOT_FOUND for a share group; or
                INVALID_GROUP_ID, the id of a new group is too long.
        """
        group = self.groups.get(request.group_id)
        member_id, instance_id = request.member_id, request.group_instance_id
        generation = request.generation_id
        check_transaction()
        if isinstance(group, ClassicGroup):
            self._membership.check_commit(group, member_id, instance_id, generation, in_transaction=True)
        elif group is not None:
            group.check_commit(member_id, instance_id, generation, in_transaction=True, speaks_epochs=True)
        elif generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        else:
            check_group_id(request.group_id)
        return self.commits.commit_in_transaction(request, topic_ids)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Check that the sender of a request may read a group's offsets.

        Only a member of a consumer group is checked: it must send its epoch. A sender that is not a member
        passes None as `member_id` and a negative `epoch`, and may read the offsets. If the group is not a
        consumer group, or does not exist, do nothing.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, no member has the id `member_id`; STALE_MEMBER_EPOCH, `epoch` is
                not the member's epoch; ILLEGAL_GENERATION instead, if the member uses the classic protocol.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(member_id, epoch)

    def delete_offsets(self, group_id: str, keys: list[OffsetKey]) -> Result[dict[OffsetKey, ErrorCode]]:
        """Handle OffsetDelete: delete offsets, and return an error code for each key.

        The code is NONE for success, and for a key without an offset. The code GROUP_SUBSCRIBED_TO_TOPIC
        means that the offset was not deleted, because a member subscribes to its topic.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, there is no such group, or it is a share group. NON_EMPTY_GROUP, a
                classic group has members of another protocol type than "consumer", so that their topics are
                unknown.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ShareGroup):
            raise group.no_offsets_error()
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_consumer_group:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        return self.commits.delete(group, keys)

    # --- groups as a whole ---

    def delete_group(self, group_id: str) -> Result[bool]:
        """Delete an empty group with its offsets. Return False for a share group, and do not change it.

        The states of a share group's partitions must be deleted before the group (`ShareAdministration`).

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, there is no such group; NON_EMPTY_GROUP, the group has members.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ShareGroup):
            return Result(False)
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        return Result(True, [*self.commits.delete_all(group_id), *self._tombstones(group)])

    def expire_group(self, group_id: str) -> Result[None]:
        """Delete a group's expired offsets.

        If the group then has no offsets and no members, also delete the group.

        A pending member of a classic group counts as a member. Share groups stay until an administrator
        deletes them.
        """
        group = self.groups.get(group_id)
        if group is None or isinstance(group, ShareGroup):
            return Result()
        expired, has_offsets = self.commits.expire(group)
        records: list[StoredRecord] = [*expired]
        is_awaited = isinstance(group, ClassicGroup) and group.pending
        if group.is_empty and not has_offsets and not is_awaited:
            records += self._tombstones(group)
        return Result(records=records)

    def _joinable(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """Return the group, if its type can have members of the classic protocol.

        Raises KafkaError UNKNOWN_MEMBER_ID if the group does not exist or is a share group.
        """
        group = self.groups.get(group_id)
        if group is None or isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _tombstones(self, group: ClassicGroup | ConsumerGroup) -> Sequence[StoredRecord]:
        if isinstance(group, ConsumerGroup):
            return group.tombstones()
        return [GroupRecord(group.group_id, None)]
