"""Coordinates the consumer groups of one shard, and handles their loading, unloading and deletion.

A shard has the groups of one partition of `__consumer_offsets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import KafkaError
from barnabas.broker.coordinator.contract import Result, ShardContext
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.codec import GroupRecord
from barnabas.broker.coordinator.groups.consumer.classic_members import ClassicMembers
from barnabas.broker.coordinator.groups.consumer.conversion import upgrade
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.member import LEAVE_STATIC_EPOCH, MemberState
from barnabas.broker.coordinator.groups.consumer.membership import ConsumerMembership
from barnabas.broker.coordinator.groups.consumer.regex_subscriptions import RegexSubscriptions
from barnabas.broker.coordinator.groups.consumer.target_assignment import ConsumerTargetAssigner
from barnabas.broker.coordinator.groups.modern.coordination import ModernGroups
from barnabas.broker.coordinator.groups.modern.delayed_assignment import DelayedAssignments
from barnabas.broker.coordinator.groups.modern.member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.broker.coordinator.groups.modern.timeouts import ExpiredTimeout, Timeouts
from barnabas.broker.coordinator.groups.modern.topics import Topics
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroups(ModernGroups[ConsumerGroup, GroupDraft]):
    """Coordinates the consumer groups of one shard. `GroupShard` documents the operations."""

    def __init__(
        self,
        context: ShardContext[Any],
        find: Callable[[str], object],
        view: BrokerView,
        unique: Callable[[], str],
        search: PatternSearch,
        assigning: Pool,
        downgraded: Callable[[ClassicGroup, str], None],
    ) -> None:
        """Create the coordination of one shard's consumer groups.

        Args:
            context: what the coordinator runtime gives to the shard, such as the clock and the timers.
            find: called with a group id; returns this group, of any type, or None if it does not exist.
            view: settings of the broker, and its image (copy) of the cluster's metadata.
            unique: returns a different text at each call. The text becomes the end of a new member id.
            search: finds topics by regular expressions.
            assigning: thread that computes assignments.
            downgraded: called when a group has become classic, with the group and the reason for a rebalance
                (empty for none).
        """
        super().__init__(context, find, ConsumerGroup, GroupDraft, "consumer group")
        self._view = view
        self._topics = Topics(view)
        self._assigner = ConsumerTargetAssigner(
            self._topics,
            lambda: view.config.group_consumer_assignors,
            lambda group_id: self._delayed.begin(group_id),
        )
        self._delayed = DelayedAssignments(self._group, self._assigner.inputs, self._change, assigning)
        self._timeouts = Timeouts(context.timers, self._fence)
        self._regexes = RegexSubscriptions(view, self._topics, self._assigner, search, self._store_regexes)
        self._membership = ConsumerMembership(
            view, self._topics, self._assigner, self._regexes, self._timeouts, downgraded
        )
        self.classic_members = ClassicMembers(self._membership, unique)

    def loaded(self, group: ConsumerGroup) -> None:
        """Start timeouts for the members of a group, which was loaded from `__consumer_offsets`.

        Each member must send a heartbeat within its session timeout. A member that has partitions to revoke
        must confirm the revocation within its rebalance timeout.
        """
        for member in group.members.values():
            timeout_ms = self._view.group_config(group.group_id).consumer_session_timeout_ms
            if member.classic is not None:
                timeout_ms = member.classic.session_timeout_ms
            self._timeouts.expect_heartbeat(group.group_id, member.member_id, timeout_ms)
            if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
                self._timeouts.expect_revocation(
                    group.group_id, member.member_id, member.rebalance_timeout_ms
                )

    def unload(self) -> None:
        """Cancel the background tasks, because this broker no longer coordinates these groups.

        These tasks search for topics that match the members' regular expressions, and compute target
        assignments of large groups.
        """
        self._regexes.stop()
        self._delayed.stop()
        super().unload()

    def forget(self, group: ConsumerGroup) -> None:
        """Remove all state of a deleted group."""
        self._assigner.forget(group.group_id)
        self._regexes.forget(group.group_id)

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        group = self._find(request.group_id)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._membership.leave(self._existing_group(request.group_id), request)
        if isinstance(group, ClassicGroup) and not group.is_empty and request.member_epoch == JOIN_EPOCH:
            return self._upgrade(group, request, caller)
        return self._membership.heartbeat(self._draft(request, group), request, caller)

    def _draft(self, request: ConsumerGroupHeartbeatRequest, group: object) -> GroupDraft:
        may_replace = request.member_epoch == JOIN_EPOCH and (
            group is None or isinstance(group, ClassicGroup)
        )
        if not may_replace:
            return GroupDraft(self._existing_group(request.group_id))
        # The consumer group replaces an empty classic one.
        before = [] if group is None else [GroupRecord(request.group_id, None)]
        return GroupDraft(ConsumerGroup(request.group_id), before)

    def _upgrade(
        self, group: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Convert a classic group to a consumer group, and let the requesting member join it.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, the group cannot be converted; the errors of
                `ConsumerMembership.heartbeat`.
        """
        draft = upgrade(group, self._topics, self._view.config)
        result = self._membership.heartbeat(draft, request, caller)
        finish = result.then
        assert finish is not None

        def then(error: KafkaError | None) -> Any:
            if error is None:
                for member in draft.group.classic_members():
                    assert member.classic is not None
                    self._timeouts.expect_heartbeat(
                        group.group_id, member.member_id, member.classic.session_timeout_ms
                    )
            return finish(error)

        return Result(records=result.records, then=then)

    def _fence(self, late: ExpiredTimeout) -> None:
        self._under_lock(late.group_id, lambda group: self._membership.fence(group, late))

    def _store_regexes(self, group_id: str, found: Mapping[str, frozenset[str]]) -> None:
        def then(error: KafkaError | None) -> None:
            if error is not None:
                self._regexes.failed(group_id)
                raise error
            self._regexes.stored(group_id)

        def operation(group: ConsumerGroup) -> Result[None]:
            return Result(records=self._regexes.store(group, found).records, then=then)

        self._under_lock(group_id, operation)
