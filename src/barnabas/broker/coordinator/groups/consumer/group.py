"""A consumer group's state. Only `replay` changes it, record by record and in any order.

Every change of the members, their subscriptions or the subscribed topics raises the group epoch. The
coordinator computes the target assignment for a group epoch (the assignment epoch), and each member moves
towards it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId
from barnabas.broker.coordinator.groups.codec import CommittedOffset, committed_ms
from barnabas.broker.coordinator.groups.consumer import records
from barnabas.broker.coordinator.groups.consumer.layered import Layered
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions
from barnabas.kafka.protocol.records import consumer_group as stored
from barnabas.kafka.protocol.schema import Message

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

#: a mapping with more keys is layered, and not copied
_FEW = 200


class ConsumerGroupState(Enum):
    """The states of a consumer group, by the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    #: the group has changed, and there is no new target yet
    ASSIGNING = "Assigning"
    #: a member has not reached the target yet
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The topics that match a regular expression, and the time of the last search (milliseconds)."""

    topics: frozenset[str]
    resolved_ms: int


class ConsumerGroup:
    """The state of one consumer group. Its shard owns it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: MutableMapping[str, ConsumerMember] = {}
        self.targets: MutableMapping[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        #: static members by group.instance.id
        self._static: MutableMapping[str, str] = {}
        #: the member that owns a partition, or may still own it
        self._owners: MutableMapping[tuple[TopicId, int], str] = {}
        #: the number of members by set of topic names, by regular expression, and by assignor
        self._names: dict[frozenset[str], int] = {}
        self._patterns: dict[str, int] = {}
        self._votes: dict[str, int] = {}

    def draft(self) -> ConsumerGroup:
        """Return a copy that can be changed. The copy becomes invalid when this group changes."""
        other = ConsumerGroup(self.group_id)
        other.epoch, other.metadata_hash = self.epoch, self.metadata_hash
        other.assignment_epoch = self.assignment_epoch
        other.members, other.targets = _layer(self.members), _layer(self.targets)
        other.regexes = dict(self.regexes)
        other._static, other._owners = _layer(self._static), _layer(self._owners)
        other._names, other._patterns = dict(self._names), dict(self._patterns)
        other._votes = dict(self._votes)
        return other

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
        """Return the member with this id.

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
        """Return the static member with this group.instance.id; None if there is none."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the static member with this instance id and this member id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id.
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
        """Whether a member owns the partition, or is still revoking it."""
        return (topic, partition) in self._owners

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name or by a resolved regular expression."""
        resolved = self.regexes.get(member.regex)
        return member.topics if resolved is None else member.topics | resolved.topics

    def offsets_idle_since(self) -> Callable[[CommittedOffset], int]:
        """Return a function that gives the time from which the retention of an offset counts: its commit."""
        return committed_ms

    def topics_in_use(self) -> frozenset[str]:
        """Return the topics that members subscribe to, by name or by a resolved regular expression."""
        resolved = (self.regexes[regex].topics for regex in self._patterns if regex in self.regexes)
        return frozenset().union(*self._names, *resolved)

    def subscribers(self, regex: str) -> int:
        """Return the number of members that subscribe with this regular expression."""
        return self._patterns.get(regex, 0)

    def subscribed_regexes(self) -> frozenset[str]:
        """Return the regular expressions with which members subscribe."""
        return frozenset(self._patterns)

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members request; None if no member requests one."""
        votes = self._votes
        return max(votes, key=lambda name: (votes[name], name), default=None)

    def classic_members(self) -> Iterator[ConsumerMember]:
        """Yield the members that use the classic protocol."""
        return (member for member in self.members.values() if member.classic is not None)

    def can_advance(self, member: ConsumerMember) -> bool:
        """Whether no member owns a partition that `member` waits for."""
        return not any(
            self.is_owned(topic, partition)
            for topic, partitions in self.target(member.member_id).items()
            for partition in partitions - member.assigned.get(topic, frozenset())
        )

    # --- commits and fetches of offsets ---

    def check_commit(self, member_id: str, epoch: int, *, in_transaction: bool, speaks_epochs: bool) -> None:
        """Check that the sender of a request may commit offsets.

        Args:
            member_id: id in the request; empty for a sender that is not in the group.
            epoch: epoch of the member; negative for a sender that is not in the group.
            in_transaction: whether the request is TxnOffsetCommit.
            speaks_epochs: whether members of the consumer protocol can use the request's version.

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
        """Check that the sender of a request may read offsets. Senders without a member id and epoch may.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """
        if member_id is not None or epoch >= 0:
            _check_epoch(self.member(member_id or ""), epoch)

    # --- records ---

    def replay(self, key: stored.Key, value: Any) -> None:
        """Apply one record to the group. A value of None deletes the key."""
        _REPLAY[type(key)](self, key, value)

    def tombstones(self) -> list[records.ConsumerGroupRecord]:
        """Return the records that delete the group, in the order in which they must be replayed."""
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
            self._put(old, records.advanced(old or ConsumerMember(key.member_id), value))
        elif old is not None:
            self._put(old, records.advanced(old, stored.ConsumerGroupCurrentMemberAssignmentValue()))

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
            for partition in _partitions(old):
                if self._owners.get(partition) == old.member_id:
                    del self._owners[partition]
            if old.instance_id is not None and self._static.get(old.instance_id) == old.member_id:
                del self._static[old.instance_id]
            if new is None:
                del self.members[old.member_id]
        if new is not None:
            self._count(new, 1)
            self.members[new.member_id] = new
            self._owners.update(dict.fromkeys(_partitions(new), new.member_id))
            if new.instance_id is not None:
                self._static[new.instance_id] = new.member_id


def _layer(mapping: MutableMapping[K, V]) -> MutableMapping[K, V]:
    return dict(mapping) if len(mapping) <= _FEW else Layered(mapping)


def _add(counts: dict[T, int], key: T, change: int) -> None:
    """Change a count, and remove it if it is zero."""
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


def _partitions(member: ConsumerMember) -> Iterator[tuple[TopicId, int]]:
    for partitions_by_topic in (member.assigned, member.revoking):
        for topic, partitions in partitions_by_topic.items():
            for partition in partitions:
                yield topic, partition


_REPLAY: dict[type[Message], Callable[[ConsumerGroup, Any, Any], None]] = {
    stored.ConsumerGroupMetadataKey: ConsumerGroup._replay_group,
    # Apache Kafka below 4.1 wrote this in place of the metadata hash.
    stored.ConsumerGroupPartitionMetadataKey: lambda _group, _key, _value: None,
    stored.ConsumerGroupMemberMetadataKey: ConsumerGroup._replay_member,
    stored.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._replay_assignment_epoch,
    stored.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._replay_target,
    stored.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._replay_current,
    stored.ConsumerGroupRegularExpressionKey: ConsumerGroup._replay_regex,
}
