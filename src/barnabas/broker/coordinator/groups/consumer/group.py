"""A consumer group's state: see `barnabas.broker.coordinator.groups.modern.group`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from enum import Enum
from typing import ClassVar, NamedTuple, Self

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId
from barnabas.broker.coordinator.groups.codec import CommittedOffset, committed_ms
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember
from barnabas.broker.coordinator.groups.consumer.records import TYPES
from barnabas.broker.coordinator.groups.modern.group import ModernGroup, Replays, common_replays, count, layer
from barnabas.broker.coordinator.groups.modern.records import Key
from barnabas.kafka.protocol.records import consumer_group as stored


class ConsumerGroupState(Enum):
    """The states of a consumer group, by the names that ListGroups and ConsumerGroupDescribe show."""

    EMPTY = "Empty"
    #: the group has changed, and there is no new target yet
    ASSIGNING = "Assigning"
    #: a member has not reached the target yet
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(NamedTuple):
    """The names of topics that match a regular expression, and when they were found (ms since 1970)."""

    topics: frozenset[str]
    resolved_ms: int


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """The state of one consumer group. Its shard owns it."""

    types = TYPES

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.regexes: dict[str, ResolvedRegex] = {}
        #: static members by group.instance.id
        self._static: MutableMapping[str, str] = {}
        #: the member that owns a partition, or may still own it
        self._owners: MutableMapping[tuple[TopicId, int], str] = {}
        #: the number of members by regular expression, and by assignor
        self._patterns: dict[str, int] = {}
        self._votes: dict[str, int] = {}

    def draft(self) -> Self:
        other = super().draft()
        other.regexes = dict(self.regexes)
        other._static, other._owners = layer(self._static), layer(self._owners)
        other._patterns, other._votes = dict(self._patterns), dict(self._votes)
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

    def holder(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the static member with this group.instance.id; None if there is none."""
        return None if instance_id is None else self.members.get(self._static.get(instance_id, ""))

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the static member with this instance id and this member id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, no member has the instance id; FENCED_INSTANCE_ID, another member
                has it.
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

    def is_owned(self, topic: TopicId, partition: int) -> bool:
        """Whether a member owns the partition, or is still revoking it."""
        return (topic, partition) in self._owners

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name or by a resolved regular expression."""
        resolved = self.regexes.get(member.regex)
        return member.topics if resolved is None else member.topics | resolved.topics

    def offsets_idle_since(self) -> Callable[[CommittedOffset], int]:
        """Return a function that gives the time (ms since 1970) from which the retention of an offset counts.

        For consumer groups, it is the time of the commit.
        """
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
        """Return the assignor that most members request; None if no member requests one.

        At equal numbers, the name that is last in the alphabet wins.
        """
        votes = self._votes
        return max(votes, key=lambda name: (votes[name], name), default=None)

    def classic_members(self) -> Iterator[ConsumerMember]:
        """Yield the members that use the classic protocol."""
        return (member for member in self.members.values() if member.classic is not None)

    def can_advance(self, member: ConsumerMember) -> bool:
        """Whether `member` can get all partitions that it waits for: no member owns one of them."""
        return not any(
            self.is_owned(topic, partition)
            for topic, partitions in self.target(member.member_id).items()
            for partition in partitions - member.assigned.get(topic, frozenset())
        )

    # --- commits and fetches of offsets ---

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        in_transaction: bool,
        speaks_epochs: bool,
    ) -> None:
        """Check that the sender of a request may commit offsets.

        A sender with a negative epoch may commit while the group is empty. In a transaction, a sender with a
        negative epoch, no member id and no instance id may always commit.

        Args:
            member_id: id in the request; empty for a sender that is not in the group.
            instance_id: instance id in the request. The member need not have it.
            epoch: epoch of the member; negative for a sender that is not in the group.
            in_transaction: whether the request is TxnOffsetCommit.
            speaks_epochs: whether members of the consumer protocol can use the request's version.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the sender is not a member; UNSUPPORTED_VERSION, a member of the
                consumer protocol uses an old version outside of a transaction; STALE_MEMBER_EPOCH or (for a
                member of the classic protocol, or in a transaction) ILLEGAL_GENERATION, `epoch` is not the
                member's epoch.
        """
        is_outside = not member_id and instance_id is None
        if epoch < 0 and (self.is_empty or (in_transaction and is_outside)):
            return
        member = self.member(member_id)
        if not in_transaction and not speaks_epochs and member.classic is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit below version 9 does not know members of the consumer protocol",
            )
        _check_epoch(member, epoch, knows_stale=not in_transaction)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that the sender of a request may read the group's committed offsets.

        A sender that is not a member passes None as `member_id` and a negative `epoch`, and may always read
        the offsets.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, no member has the id `member_id`; STALE_MEMBER_EPOCH, `epoch` is
                not the member's epoch; ILLEGAL_GENERATION instead, if the member uses the classic protocol.
        """
        if member_id is not None or epoch >= 0:
            _check_epoch(self.member(member_id or ""), epoch)

    # --- records ---

    def _other_keys(self) -> Iterator[Key]:
        # an older Kafka may have left it
        yield stored.ConsumerGroupPartitionMetadataKey(group_id=self.group_id)
        for regex in self.regexes:
            yield stored.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)

    def _replay_regex(
        self,
        key: stored.ConsumerGroupRegularExpressionKey,
        value: stored.ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(frozenset(value.topics), value.timestamp)

    replays: ClassVar[Replays] = {
        **common_replays(TYPES),
        # Apache Kafka below 4.1 wrote this in place of the metadata hash.
        stored.ConsumerGroupPartitionMetadataKey: lambda _group, _key, _value: None,
        stored.ConsumerGroupRegularExpressionKey: _replay_regex,
    }

    def _add_to_indexes(self, member: ConsumerMember) -> None:
        super()._add_to_indexes(member)
        self._count(member, 1)
        self._owners.update(dict.fromkeys(_partitions(member), member.member_id))
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def _remove_from_indexes(self, member: ConsumerMember) -> None:
        super()._remove_from_indexes(member)
        self._count(member, -1)
        for partition in _partitions(member):
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]

    def _count(self, member: ConsumerMember, change: int) -> None:
        if member.regex:
            count(self._patterns, member.regex, change)
        if member.assignor:
            count(self._votes, member.assignor, change)


def _check_epoch(member: ConsumerMember, epoch: int, *, knows_stale: bool = True) -> None:
    """Raise KafkaError if `epoch` is not the member's epoch.

    If `knows_stale` is true, the error for a member of the consumer protocol is STALE_MEMBER_EPOCH. In all
    other cases it is ILLEGAL_GENERATION.
    """
    if epoch != member.epoch:
        is_stale = knows_stale and member.classic is None
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH if is_stale else ErrorCode.ILLEGAL_GENERATION,
            f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
        )


def _partitions(member: ConsumerMember) -> Iterator[tuple[TopicId, int]]:
    for partitions_by_topic in (member.assigned, member.revoking):
        for topic, partitions in partitions_by_topic.items():
            for partition in partitions:
                yield topic, partition
