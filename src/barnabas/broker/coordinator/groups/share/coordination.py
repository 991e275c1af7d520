"""Coordinates the share groups of one shard, and handles their loading, unloading and deletion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from barnabas.base.environment.blocking import Pool
from barnabas.base.metrics import Meter
from barnabas.base.types import TopicId
from barnabas.broker.coordinator.contract import Result, ShardContext
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.modern.coordination import ModernGroups
from barnabas.broker.coordinator.groups.modern.delayed_assignment import DelayedAssignments
from barnabas.broker.coordinator.groups.modern.member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.broker.coordinator.groups.modern.timeouts import ExpiredTimeout, Timeouts
from barnabas.broker.coordinator.groups.modern.topics import Topics
from barnabas.broker.coordinator.groups.share.draft import ShareGroupDraft
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.initialization import topics_of
from barnabas.broker.coordinator.groups.share.membership import ShareMembership
from barnabas.broker.coordinator.groups.share.states import ShareStates
from barnabas.broker.coordinator.groups.share.target_assignment import ShareTargetAssigner
from barnabas.broker.coordinator.share_state.persister import (
    CoordinatorPosition,
    SharePartitionKey,
    SharePersister,
)
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


class Deletion(NamedTuple):
    """The topics (names by id) and the share partitions whose states are to be deleted."""

    topics: Mapping[TopicId, str]
    keys: list[SharePartitionKey]


class ShareGroups(ModernGroups[ShareGroup, ShareGroupDraft]):
    """Coordinates the share groups of one shard.

    Args:
        context: what the coordinator runtime gives to the shard, such as the clock and the timers.
        find: called with a group id; returns this group, of any type, or None if it does not exist.
        view: settings of the broker, and its image (copy) of the cluster's metadata.
        persister: sends requests about the states of partitions to the share coordinator.
        assigning: a thread that computes assignments.
        rebalances: counts the rebalances.
    """

    def __init__(
        self,
        context: ShardContext[Any],
        find: Callable[[str], object],
        view: BrokerView,
        persister: SharePersister,
        assigning: Pool,
        rebalances: Meter,
    ) -> None:
        super().__init__(context, find, ShareGroup, ShareGroupDraft, "share group")
        self._view = view
        self._rebalances = rebalances
        self._assigner = ShareTargetAssigner(Topics(view), lambda group_id: self._delayed.begin(group_id))
        self._delayed = DelayedAssignments(self._group, self._assigner.inputs, self._change, assigning)
        self._timeouts = Timeouts(context.timers, self._fence)
        self.states = ShareStates(
            view, persister, self._group, self._change, self._began, self._raise_epoch, self._position
        )
        self._membership = ShareMembership(
            view, self._assigner, self._timeouts, self.states.begin, rebalances
        )

    def loaded(self, group: ShareGroup) -> None:
        """Start the session timeouts of a loaded group's members. Continue unfinished initializations.

        Also begin to remove the topics that were deleted.
        """
        timeout_ms = self._view.group_config(group.group_id).share_session_timeout_ms
        for member_id in group.members:
            self._timeouts.expect_heartbeat(group.group_id, member_id, timeout_ms)
        deleted = group.partitions.names().keys() & self._view.image.deleted_topics
        if deleted:
            self._context.write(group.group_id, lambda _: self.forget_topics(group.group_id, deleted))
        if group.partitions.initializing:
            self.states.begin(group.group_id)

    def unload(self) -> None:
        """Cancel all computations and initializations, because this broker no longer has the shard."""
        self._delayed.stop()
        self.states.stop()
        super().unload()

    def forget(self, group: ShareGroup) -> None:
        """Remove all state of a deleted group."""
        self._assigner.forget(group.group_id)

    # --- membership ---

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> Result[ShareGroupHeartbeatResponse]:
        if request.member_epoch == JOIN_EPOCH and self._find(request.group_id) is None:
            group = ShareGroup(request.group_id)
        else:
            group = self._existing_group(request.group_id)
        if request.member_epoch == LEAVE_EPOCH:
            return self._membership.leave(group, request)
        return self._membership.heartbeat(ShareGroupDraft(group), request, caller)

    # --- states ---

    def begin_alteration(self, group_id: str) -> Result[int]:
        """Raise the group epoch, and return the new epoch.

        The caller then initializes states with new start offsets, with this epoch as their state epoch. If
        the group does not exist, create it.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, the group has another type; NON_EMPTY_GROUP, the group has
                members.
        """
        group = ShareGroup(group_id) if self._find(group_id) is None else self._existing_group(group_id)
        group.check_empty()
        draft = ShareGroupDraft(group)
        self._assigner.raise_epoch(draft)
        return Result(draft.group.epoch, draft.records)

    def end_alteration(
        self, group_id: str, altered: Mapping[SharePartitionKey, str]
    ) -> Result[list[SharePartitionKey]]:
        """Record that partitions are initialized, except those whose topics no longer exist: return these.

        If the group does not exist, do nothing. `altered` has each partition with the name of its topic.
        """
        group, names = self._group(group_id), self._view.image.topic_names
        gone = [key for key in altered if key.topic_id not in names]
        if group is None:
            return Result(gone)
        draft = ShareGroupDraft(group)
        there = {key: name for key, name in altered.items() if key.topic_id in names}
        topics = topics_of(there, {key.topic_id: name for key, name in there.items()})
        partitions = group.partitions.with_initialized(topics)
        if partitions != group.partitions:
            draft.put_partitions(partitions)
            self._began(draft)
        return Result(gone, draft.records)

    def begin_deletion(self, group_id: str, names: Collection[str] | None) -> Result[Deletion]:
        """Begin to delete the states of a group's topics: record that the topics are deleting.

        `names` are the names of the topics; None means all topics of the group. Return the topics and the
        share partitions whose states the caller must delete.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, there is no such share group; NON_EMPTY_GROUP, the group has
                members.
        """
        group = self._existing_group(group_id)
        group.check_empty()
        topics = {
            topic_id: name
            for topic_id, name in group.partitions.names().items()
            if names is None or name in names
        }
        deleted = [
            SharePartitionKey(group_id, topic_id, number)
            for topic_id in topics
            for number in sorted(self._numbers(group, topic_id))
        ]
        partitions = group.partitions.with_deleting(topics)
        draft = ShareGroupDraft(group)
        if partitions != group.partitions:
            draft.put_partitions(partitions)
        return Result(Deletion(topics, deleted), draft.records)

    def end_deletion(self, group_id: str, topics: Collection[TopicId]) -> Result[None]:
        """Record that the states of topics are deleted.

        Skip topics that are no longer deleting. If the group does not exist, do nothing.
        """
        group = self._group(group_id)
        if group is None:
            return Result()
        gone = [topic for topic in topics if topic in group.partitions.deleting]
        return Result(records=_forgetting(group, gone).records)

    def delete(self, group_id: str) -> Result[None]:
        """Delete an empty group.

        The caller must first delete the states of the group's share partitions (`begin_deletion`). This
        method does not check that.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, there is no such share group; NON_EMPTY_GROUP, the group has
                members.
        """
        group = self._existing_group(group_id)
        group.check_empty()
        return Result(records=group.tombstones())

    def forget_topics(self, group_id: str, topics: Collection[TopicId]) -> Result[None]:
        """Remove deleted topics from a group. The share coordinator itself deletes their states.

        If the group does not exist, do nothing.
        """
        group = self._group(group_id)
        if group is None:
            return Result()
        return Result(records=_forgetting(group, group.partitions.names().keys() & set(topics)).records)

    def _numbers(self, group: ShareGroup, topic_id: TopicId) -> frozenset[int]:
        """Return the partition numbers of a topic for which the group can have states.

        They are the partitions that the group's record has as initialized or initializing. If the record has
        none of the topic, return all partitions of the topic.
        """
        topic = self._view.image.topic_by_id(topic_id)
        known = group.partitions.known(topic_id)
        # A topic that is deleting already has no known partitions.
        return known or frozenset(range(0 if topic is None else len(topic.partitions)))

    # --- inside ---

    def _position(self) -> CoordinatorPosition:
        return CoordinatorPosition(self._context.epoch(), self._context.log_end())

    def _began(self, draft: ShareGroupDraft) -> None:
        """After partitions have become initialized, assign them to the members.

        Write a new group epoch and a new target assignment into the draft. If the group has no members, do
        nothing.
        """
        if draft.group.members:
            self._rebalances.add()
            self._raise_epoch(draft)

    def _raise_epoch(self, draft: ShareGroupDraft, above: int = 0) -> None:
        """Raise the group epoch, above `above` at least, and write a target assignment for the members."""
        self._assigner.raise_epoch(draft, above)
        if draft.group.members:
            self._assigner.assign(draft)

    def _fence(self, late: ExpiredTimeout) -> None:
        self._under_lock(late.group_id, lambda group: self._membership.fence(group, late))


def _forgetting(group: ShareGroup, topics: Collection[TopicId]) -> ShareGroupDraft:
    draft = ShareGroupDraft(group)
    if topics:
        draft.put_partitions(group.partitions.without(topics))
    return draft
