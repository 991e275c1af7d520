"""A consumer group's state. It changes only by `replay`, record by record, in whatever order they come.

The group epoch grows with every change of who is in the group, what they subscribe to, or those topics; the
target assignment is computed for a group epoch (the assignment epoch), and each member follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId
from barnabas.broker.coordinator.groups.codec import CommittedOffset, committed_ms
from barnabas.broker.coordinator.groups.consumer import records
from barnabas.broker.coordinator.groups.consumer.member import NOTHING, ConsumerMember, Partitions
from barnabas.kafka.protocol.records import consumer_group as stored
from barnabas.kafka.protocol.schema import Message

T = TypeVar("T")


class ConsumerGroupState(Enum):
    """The states of a consumer group, by the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    #: the group has changed, and there is no new target yet
    ASSIGNING = "Assigning"
    #: some member is still on its way to the target
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matches, when it was looked up last (milliseconds)."""

    topics: frozenset[str]
    resolved_ms: int


class ConsumerGroup:
    """One group. Owned by its shard."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        #: static members by group.instance.id
        self._static: dict[str, str] = {}
        #: who owns a partition, or may still own it
        self._owners: dict[tuple[TopicId, int], str] = {}
        #: how many members subscribe by the same names, and by the same regular expression, and how many ask
        #: for an assignor: members are many, and their subscriptions are few
        self._names: dict[frozenset[str], int] = {}
        self._patterns: dict[str, int] = {}
        self._votes: dict[str, int] = {}

    def copy(self) -> ConsumerGroup:
        """A copy that can be changed independently."""
        other = ConsumerGroup(self.group_id)
        other.epoch, other.metadata_hash = self.epoch, self.metadata_hash
        other.assignment_epoch = self.assignment_epoch
        other.members, other.targets = dict(self.members), dict(self.targets)
        other.regexes = dict(self.regexes)
        other._static, other._owners = dict(self._static), dict(self._owners)
        other._names, other._patterns = dict(self._names), dict(self._patterns)
        other._votes = dict(self._votes)
        return other

    # --- questions ---

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if not all(member.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> ConsumerMember:
        """The member with this id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        try:
            return self.members[member_id]
        except KeyError:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            ) from None

    def holder(self, instance_id: str | None) -> ConsumerMember | None:
        """The static member that holds a group.instance.id."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The static member, if it is this one.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another holds the instance id.
        """
        holder = self.holder(instance_id)
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member"
                f" {holder.member_id}.",
            )
        return holder

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def is_owned(self, topic: TopicId, partition: int) -> bool:
        """Whether a member owns the partition, or may still own it."""
        return (topic, partition) in self._owners

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """The topics a member subscribes to, by name or by a regular expression that has been resolved."""
        resolved = self.regexes.get(member.regex)
        return member.topics if resolved is None else member.topics | resolved.topics

    def topics_in_use(self) -> Container[str]:
        """The topics that members subscribe to."""
        return self.subscribed_topics()

    def offsets_idle_since(self) -> Callable[[CommittedOffset], int]:
        """From when on offsets of topics nobody subscribes to are idle."""
        return committed_ms

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members subscribe to."""
        resolved = (self.regexes[regex].topics for regex in self._patterns if regex in self.regexes)
        return frozenset().union(*self._names, *resolved)

    def subscribers(self, regex: str) -> int:
        """How many members subscribe by a regular expression."""
        return self._patterns.get(regex, 0)

    def subscribed_regexes(self) -> frozenset[str]:
        """The regular expressions that members subscribe by."""
        return frozenset(self._patterns)

    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for; None when nobody does."""
        votes = self._votes
        return max(votes, key=lambda name: (votes[name], name), default=None)

    def classic_members(self) -> Iterator[ConsumerMember]:
        """The members of the classic protocol."""
        return (member for member in self.members.values() if member.classic is not None)

    def waits_in_vain(self, member: ConsumerMember) -> bool:
        """Whether a member that waits for partitions could get some now."""
        missing = (
            (topic, partition)
            for topic, partitions in self.target(member.member_id).items()
            for partition in partitions - member.assigned.get(topic, frozenset())
        )
        return not any(self.is_owned(topic, partition) for topic, partition in missing)

    # --- who may commit ---

    def check_commit(self, member_id: str, epoch: int, *, in_transaction: bool, speaks_epochs: bool) -> None:
        """Whether the sender may commit.

        Args:
            epoch: the member's, or -1 from outside the group.
            speaks_epochs: the request is of a version that knows members of the consumer protocol.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """
        if epoch < 0 and (self.is_empty or (in_transaction and not member_id)):
            return
        member = self.member(member_id)
        if not in_transaction and not speaks_epochs and member.classic is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit below version 9 does not know members of the consumer protocol",
            )
        _check_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether the sender may read offsets; a sender without a member id may.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """
        if member_id is not None or epoch >= 0:
            _check_epoch(self.member(member_id or ""), epoch)

    # --- what is stored ---

    def replay(self, key: stored.Key, value: Any) -> None:
        """Apply one record; a value of None deletes what the key names."""
        _REPLAY[type(key)](self, key, value)

    def tombstones(self) -> list[records.ConsumerGroupRecord]:
        """The records that delete the group; they replay in this order."""
        group_id = self.group_id
        keys: list[stored.Key] = [
            *(records.current_key(group_id, member_id) for member_id in self.members),
            *(records.target_key(group_id, member_id) for member_id in self.targets),
            stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(records.member_key(group_id, member_id) for member_id in self.members),
            stored.ConsumerGroupPartitionMetadataKey(group_id=group_id),  # an older Kafka may have left it
            *(records.regex_key(group_id, regex) for regex in self.regexes),
            stored.ConsumerGroupMetadataKey(group_id=group_id),
        ]
        return [records.ConsumerGroupRecord(key, None) for key in keys]

    def _replay_group(self, _key: Any, value: stored.ConsumerGroupMetadataValue | None) -> None:
        self.epoch = 0 if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _replay_assignment_epoch(
        self, _key: Any, value: stored.ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch

    def _replay_member(
        self,
        key: stored.ConsumerGroupMemberMetadataKey,
        value: stored.ConsumerGroupMemberMetadataValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        new = None if value is None else records.subscribed(old or ConsumerMember(key.member_id), value)
        self._put(old, new)

    def _replay_current(
        self,
        key: stored.ConsumerGroupCurrentMemberAssignmentKey,
        value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        if value is not None:
            self._put(old, records.placed(old or ConsumerMember(key.member_id), value))
        elif old is not None:
            self._put(old, records.placed(old, stored.ConsumerGroupCurrentMemberAssignmentValue()))

    def _replay_target(
        self,
        key: stored.ConsumerGroupTargetAssignmentMemberKey,
        value: stored.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = records.from_topic_partitions(value.topic_partitions)

    def _replay_regex(
        self,
        key: stored.ConsumerGroupRegularExpressionKey,
        value: stored.ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.timestamp)

    def _count(self, member: ConsumerMember, change: int) -> None:
        _add(self._names, member.topics, change)
        if member.regex:
            _add(self._patterns, member.regex, change)
        if member.assignor:
            _add(self._votes, member.assignor, change)

    def _put(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None:
            self._count(old, -1)
            for place in _places(old):
                if self._owners.get(place) == old.member_id:
                    del self._owners[place]
            if old.instance_id is not None and self._static.get(old.instance_id) == old.member_id:
                del self._static[old.instance_id]
            if new is None:
                del self.members[old.member_id]
        if new is not None:
            self._count(new, 1)
            self.members[new.member_id] = new
            self._owners.update(dict.fromkeys(_places(new), new.member_id))
            if new.instance_id is not None:
                self._static[new.instance_id] = new.member_id


def _add(counts: dict[T, int], key: T, change: int) -> None:
    """Change a count; what is counted no more is left out."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(
            code,
            f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
        )


def _places(member: ConsumerMember) -> Iterator[tuple[TopicId, int]]:
    for partitions_by_topic in (member.assigned, member.revoking):
        for topic, partitions in partitions_by_topic.items():
            for partition in partitions:
                yield topic, partition


def _pass_over(_group: ConsumerGroup, _key: Any, _value: Any) -> None:
    """What Apache Kafka below 4.1 wrote in place of the metadata hash."""


_REPLAY: dict[type[Message], Callable[[ConsumerGroup, Any, Any], None]] = {
    stored.ConsumerGroupMetadataKey: ConsumerGroup._replay_group,
    stored.ConsumerGroupPartitionMetadataKey: _pass_over,
    stored.ConsumerGroupMemberMetadataKey: ConsumerGroup._replay_member,
    stored.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._replay_assignment_epoch,
    stored.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._replay_target,
    stored.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._replay_current,
    stored.ConsumerGroupRegularExpressionKey: ConsumerGroup._replay_regex,
}
