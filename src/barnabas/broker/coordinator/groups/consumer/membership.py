"""Handles ConsumerGroupHeartbeat: members join, stay and leave, and get their assignments (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.coordinator.contract import Result
from barnabas.broker.coordinator.groups.caller import Caller
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.consumer.conversion import downgrade, may_downgrade
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.member import (
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
    without,
)
from barnabas.broker.coordinator.groups.consumer.regex_subscriptions import RegexSubscriptions
from barnabas.broker.coordinator.groups.consumer.target_assignment import ConsumerTargetAssigner
from barnabas.broker.coordinator.groups.modern.delayed_assignment import interval_without_partitions
from barnabas.broker.coordinator.groups.modern.member import JOIN_EPOCH, LEAVE_EPOCH, NOTHING, Partitions
from barnabas.broker.coordinator.groups.modern.timeouts import ExpiredTimeout, Timeouts
from barnabas.broker.coordinator.groups.modern.topics import Topics
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

logger = logger_of(__name__, is_limited=True)

T = TypeVar("T")


class ConsumerMembership:
    """Adds and removes members of one shard's consumer groups. `GroupShard` documents the operations.

    Args:
        view: settings of the broker and of groups.
        topics: the topics of the cluster.
        assigner: raises group epochs, and computes target assignments.
        regexes: resolves regular expressions.
        timeouts: the timeouts of members.
        downgraded: called when a group has become classic, with the group and the reason for a rebalance
            (empty for none).
    """

    def __init__(
        self,
        view: BrokerView,
        topics: Topics,
        assigner: ConsumerTargetAssigner,
        regexes: RegexSubscriptions,
        timeouts: Timeouts,
        downgraded: Callable[[ClassicGroup, str], None],
    ) -> None:
        self.view = view
        self.topics = topics
        self.assigner = assigner
        self.regexes = regexes
        self.timeouts = timeouts
        self._downgraded = downgraded

    # --- stay ---

    def heartbeat(
        self, draft: GroupDraft, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Handle the heartbeat of a member that joins or stays.

        `draft` is a draft of the group. It collects the changes, and the records that store them.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED, the group is full; INVALID_REGULAR_EXPRESSION, the expression
                in the subscription cannot be compiled; or the heartbeat is rejected (see `_find`).
        """
        self.check_room(draft.group, request.member_id)
        owned = owned_partitions(request)
        holder = draft.group.holder(request.instance_id)
        before = self._find(draft, request, owned)
        member = _updated(before, request, caller)
        changed_names = self.subscribe(draft, before, member)
        regex = self.regexes.change(draft, before.regex, member.regex)
        if (
            draft.group.epoch == 0
            or changed_names
            or regex.is_resolved
            or self.assigner.is_outdated(draft.group)
        ):
            self.assigner.raise_epoch(draft)
        self.assigner.assign(draft)
        after = self.assigner.reconcile(
            draft, member.member_id, owned, subscription_changed=changed_names or regex.is_changed
        )
        response = self._response(request, draft.group, before, after)
        self.regexes.refresh(draft.group, caller.may_see)

        def then(error: KafkaError | None) -> ConsumerGroupHeartbeatResponse:
            if error is not None:
                raise error
            if holder is not None and holder.member_id != after.member_id:
                self.timeouts.forget(draft.group_id, holder.member_id)
            self._watch(draft.group_id, before, after)
            return response

        return Result(records=draft.records, then=then)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Raise KafkaError GROUP_MAX_SIZE_REACHED if a new member would exceed `group.consumer.max.size`."""
        limit = self.view.config.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def subscribe(self, draft: GroupDraft, before: ConsumerMember, member: ConsumerMember) -> bool:
        """Write the member's metadata into the draft, if it has changed or the member is new.

        `before` is the member before the request, `member` the member after it. Return whether the names of
        the subscribed topics have changed.
        """
        if member != before or member.member_id not in draft.group.members:
            draft.put_subscription(member)
        return member.topics != before.topics

    def replace(self, draft: GroupDraft, holder: ConsumerMember, member_id: str) -> ConsumerMember:
        """Replace the static member `holder` by its restarted successor, and return the successor.

        The successor has the id `member_id`, and the state and target of `holder`.
        """
        logger.info("group %s: member %s replaces %s", draft.group_id, member_id, holder.member_id)
        target = draft.group.target(holder.member_id)
        successor = holder._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        draft.remove_member(holder.member_id)
        draft.put_subscription(successor)
        draft.put_target(member_id, target)
        draft.put_current(successor)
        return successor

    def _find(
        self, draft: GroupDraft, request: ConsumerGroupHeartbeatRequest, owned: Partitions | None
    ) -> ConsumerMember:
        """Return the member as it was before the request, or a new one that joins.

        If a static member joins again with a new member id, replace it. `owned` are the partitions that the
        member reports as owned; None if it reports nothing.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the request does not join, and no member has its member id or
                instance id; FENCED_MEMBER_EPOCH, the member must not use the request's epoch
                (`_check_epoch`); FENCED_INSTANCE_ID, another member has the instance id;
                UNRELEASED_INSTANCE_ID, a new member requests an instance id whose member has not left.
        """
        group, member_id, instance_id = draft.group, request.member_id, request.instance_id
        joins = request.member_epoch == JOIN_EPOCH
        if instance_id is not None:
            holder = group.holder(instance_id)
            if not joins:
                member = group.static_member(instance_id, member_id)
            elif holder is None:
                member = group.members.get(member_id, ConsumerMember(member_id))
            elif holder.classic is None and holder.epoch != LEAVE_STATIC_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the group because"
                    f" the instance id is owned by {holder.member_id} member.",
                )
            else:
                return self.replace(draft, holder, member_id)
        elif joins:
            member = group.members.get(member_id, ConsumerMember(member_id))
        else:
            member = group.member(member_id)
        _check_epoch(member, request.member_epoch, owned)
        return member

    def _response(
        self,
        request: ConsumerGroupHeartbeatRequest,
        group: ConsumerGroup,
        before: ConsumerMember,
        after: ConsumerMember,
    ) -> ConsumerGroupHeartbeatResponse:
        interval_ms = self.view.group_config(request.group_id).consumer_heartbeat_interval_ms
        if group.epoch > group.assignment_epoch and not after.assigned:
            interval_ms = interval_without_partitions(interval_ms, len(group.members))
        response = ConsumerGroupHeartbeatResponse(
            member_id=after.member_id, member_epoch=after.epoch, heartbeat_interval_ms=interval_ms
        )
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if request.member_epoch == JOIN_EPOCH or is_full or after.assigned != before.assigned:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic, partitions=sorted(partitions))
                    for topic, partitions in after.assigned.items()
                ]
            )
        return response

    def _watch(self, group_id: str, before: ConsumerMember, after: ConsumerMember) -> None:
        session_timeout_ms = self.view.group_config(group_id).consumer_session_timeout_ms
        self.timeouts.expect_heartbeat(group_id, after.member_id, session_timeout_ms)
        if after.state is not MemberState.UNREVOKED_PARTITIONS:
            self.timeouts.revoked(group_id, after.member_id)
        elif (after.epoch, after.revoking) != (before.epoch, before.revoking):
            self.timeouts.expect_revocation(group_id, after.member_id, after.rebalance_timeout_ms)

    # --- leave ---

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Handle the heartbeat of a member that leaves.

        A static member that leaves only for a restart (epoch `LEAVE_STATIC_EPOCH`) stays in the group, and
        keeps its assigned partitions. Any other member is removed.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, there is no such member; FENCED_INSTANCE_ID, another member has the
                instance id.
        """
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            return self.remove(group, [group.member(request.member_id)], "it left", response)
        member = group.static_member(request.instance_id, request.member_id)
        if request.member_epoch == LEAVE_EPOCH:
            return self.remove(group, [member], "it left", response)
        draft = GroupDraft(group)
        draft.put_current(member._replace(epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING))
        return Result(response, draft.records)

    def remove(
        self, group: ConsumerGroup, gone: Iterable[ConsumerMember], reason: str, response: T
    ) -> Result[T]:
        """Remove members, and return `response` when their removal is stored.

        `reason` is for the log. If only members of the classic protocol remain, the group can become classic:
        see `may_downgrade`. If the removal cannot be stored, the caller gets the error.
        """
        leavers = {member.member_id for member in gone}
        if not leavers:
            return Result(response)
        staying = _classic_without(group, leavers)
        draft = GroupDraft(group)
        classic: ClassicGroup | None = None
        if may_downgrade(staying, self.view.config):
            classic = self.downgrade(draft, staying)
        else:
            self._remove_members(draft, leavers)

        def then(error: KafkaError | None) -> T:
            if error is not None:
                raise error
            for member_id in leavers:
                logger.info("group %s: member %s was removed: %s", group.group_id, member_id, reason)
                self.timeouts.forget(group.group_id, member_id)
            if classic is not None:
                self.downgraded(classic, "the last member of the consumer protocol has left")
            return response

        return Result(records=draft.records, then=then)

    def downgrade(self, draft: GroupDraft, staying: list[ConsumerMember]) -> ClassicGroup:
        """Convert the draft's group to a classic group with the members `staying`. Return the classic group.

        The draft gets the records for the conversion.
        """
        classic, record = downgrade(draft.group, staying, self.topics, self.view.clock.now_ms())
        draft.remove_group()
        draft.records.append(record)
        return classic

    def downgraded(self, classic: ClassicGroup, reason: str) -> None:
        """Cancel the timeouts of the consumer group that has become `classic`, and set those of `classic`.

        If `reason` is not empty, begin a rebalance for this reason. A timeout that stayed, for example until
        a member must join again, would also hold after the next upgrade of the group.
        """
        for member in classic.members:
            self.timeouts.forget(classic.group_id, member.member_id)
        self._downgraded(classic, reason)

    def fence(self, group: ConsumerGroup, late: ExpiredTimeout) -> Result[None]:
        """Remove the member that `late` names, because its timeout has expired.

        Do nothing if the member has left, or if its request has arrived meanwhile
        (`ExpiredTimeout.is_still_expired`). If the removal cannot be stored, set the timeout again.
        """
        member = group.members.get(late.member_id)
        if member is None or not late.is_still_expired():
            return Result()
        removal = self.remove(group, [member], late.reason, None)
        finish = removal.then
        assert finish is not None

        def then(error: KafkaError | None) -> Any:
            if error is not None:
                late.restart()
            return finish(error)

        return Result(records=removal.records, then=then)

    def _remove_members(self, draft: GroupDraft, leavers: Iterable[str]) -> None:
        regexes = {draft.group.members[member_id].regex for member_id in leavers} - {""}
        for member_id in leavers:
            draft.remove_member(member_id)
        for regex in regexes:
            if not draft.group.subscribers(regex):
                draft.remove_regex(regex)
        self.assigner.raise_epoch(draft)


def _classic_without(group: ConsumerGroup, leavers: Collection[str]) -> list[ConsumerMember]:
    """Return the members except `leavers`; an empty list if one of the others uses the consumer protocol."""
    staying: list[ConsumerMember] = []
    for member in group.members.values():
        if member.member_id not in leavers:
            if member.classic is None:  # in a large group, usually the first member
                return []
            staying.append(member)
    return staying


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """Return the partitions that a member reports as owned; None if the member reports nothing."""
    if request.topic_partitions is None:
        return None
    return {
        topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions if topic.partitions
    }


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """Return the member updated with the fields of its heartbeat."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raise KafkaError FENCED_MEMBER_EPOCH if a member must not use this epoch.

    `owned` are the partitions that the member reports as owned; None if it reports nothing.

    A member may use 0 (to join), its current epoch, or its previous one. With the previous epoch, the member
    must report the partitions that it owns, and the coordinator must have assigned all of them to it.

    The log may contain a member state that this version does not know (`MemberState.UNKNOWN`). With any
    epoch, such a member must report that it owns no partitions.
    """
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise _fenced("The consumer group member is in a unknown state.")
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        relation = "greater"
    elif epoch == member.previous_epoch and owned is not None and not without(owned, member.assigned):
        return  # the last answer was lost
    else:
        relation = "smaller"
    raise _fenced(
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group"
        f" coordinator ({member.epoch})."
    )


def _fenced(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH, f"{reason} The member must abandon all its partitions and rejoin."
    )
