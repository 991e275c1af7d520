"""A share group's state. Only `replay` changes it, record by record and in any order.

Every change of the members, their subscriptions, the subscribed topics or the initialized partitions raises
the group epoch. The coordinator computes the target assignment for a group epoch (the assignment epoch). Each
member takes its target with its next heartbeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.consumer.records import from_topic_partitions
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions
from barnabas.broker.coordinator.groups.share import records
from barnabas.broker.coordinator.groups.share.initialization import InitializationStates
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.kafka.protocol.records import share_group as stored
from barnabas.kafka.protocol.schema import Message


class ShareGroupState(Enum):
    """The states of a share group, by the names that ListGroups and ShareGroupDescribe show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """The state of one share group. Its shard owns it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.partitions = InitializationStates()
        #: by set of subscribed topics: the number of members with it
        self._names: Counter[frozenset[str]] = Counter()

    def copy(self) -> ShareGroup:
        """Return a copy that can be changed independently."""
        other = ShareGroup(self.group_id)
        other.epoch, other.metadata_hash = self.epoch, self.metadata_hash
        other.assignment_epoch = self.assignment_epoch
        other.members, other.targets = dict(self.members), dict(self.targets)
        other.partitions = self.partitions
        other._names = Counter(self._names)
        return other

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_empty(self) -> None:
        """Raise KafkaError NON_EMPTY_GROUP if the group has members."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has members.")

    def member(self, member_id: str) -> ShareMember:
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

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def topics_in_use(self) -> frozenset[str]:
        """Return the names of the topics that members subscribe to."""
        return frozenset().union(*self._names)

    # --- records ---

    def replay(self, key: stored.Key, value: Any) -> None:
        """Apply one record to the group. A value of None deletes the key."""
        _REPLAY[type(key)](self, key, value)

    def tombstones(self) -> list[records.ShareGroupRecord]:
        """Return the records that delete the group, in the order in which they must be replayed."""
        group_id = self.group_id
        keys: list[stored.Key] = [
            *(records.current_key(group_id, member_id) for member_id in self.members),
            *(records.target_key(group_id, member_id) for member_id in self.targets),
            stored.ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(records.member_key(group_id, member_id) for member_id in self.members),
            stored.ShareGroupStatePartitionMetadataKey(group_id=group_id),
            stored.ShareGroupMetadataKey(group_id=group_id),
        ]
        return [records.ShareGroupRecord(key, None) for key in keys]

    def _replay_group(self, _key: Any, value: stored.ShareGroupMetadataValue | None) -> None:
        self.epoch = 0 if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _replay_assignment_epoch(
        self, _key: Any, value: stored.ShareGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch

    def _replay_member(
        self, key: stored.ShareGroupMemberMetadataKey, value: stored.ShareGroupMemberMetadataValue | None
    ) -> None:
        old = self.members.get(key.member_id)
        self._put(
            old, None if value is None else records.subscribed(old or ShareMember(key.member_id), value)
        )

    def _replay_current(
        self,
        key: stored.ShareGroupCurrentMemberAssignmentKey,
        value: stored.ShareGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        if value is not None:
            self._put(old, records.advanced(old or ShareMember(key.member_id), value))
        elif old is not None:
            self._put(old, records.advanced(old, stored.ShareGroupCurrentMemberAssignmentValue()))

    def _replay_target(
        self,
        key: stored.ShareGroupTargetAssignmentMemberKey,
        value: stored.ShareGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = from_topic_partitions(value.topic_partitions)

    def _replay_partitions(
        self, _key: Any, value: stored.ShareGroupStatePartitionMetadataValue | None
    ) -> None:
        self.partitions = InitializationStates() if value is None else records.partitions_of(value)

    def _put(self, old: ShareMember | None, new: ShareMember | None) -> None:
        if old is not None:
            self._names[old.topics] -= 1
            if not self._names[old.topics]:
                del self._names[old.topics]
            if new is None:
                del self.members[old.member_id]
        if new is not None:
            self._names[new.topics] += 1
            self.members[new.member_id] = new


_REPLAY: dict[type[Message], Callable[[ShareGroup, Any, Any], None]] = {
    stored.ShareGroupMetadataKey: ShareGroup._replay_group,
    stored.ShareGroupMemberMetadataKey: ShareGroup._replay_member,
    stored.ShareGroupTargetAssignmentMetadataKey: ShareGroup._replay_assignment_epoch,
    stored.ShareGroupTargetAssignmentMemberKey: ShareGroup._replay_target,
    stored.ShareGroupCurrentMemberAssignmentKey: ShareGroup._replay_current,
    stored.ShareGroupStatePartitionMetadataKey: ShareGroup._replay_partitions,
}
