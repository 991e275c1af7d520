"""The state that consumer groups and share groups have in common. Only `replay` changes it.

Records can be replayed in any order. Every change of the members, their subscriptions or the subscribed
topics raises the group epoch. The coordinator computes a target assignment for a group epoch, which is then
the assignment epoch. Each member moves step by step to its partitions in the target assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.modern.layered import Layered
from barnabas.broker.coordinator.groups.modern.member import NOTHING, Partitions
from barnabas.broker.coordinator.groups.modern.records import (
    Key,
    ModernGroupRecord,
    RecordTypes,
    from_topic_partitions,
)
from barnabas.kafka.protocol.schema import Message


class Member(Protocol):
    """A member of a consumer group or a share group."""

    @property
    def member_id(self) -> str: ...

    @property
    def topics(self) -> frozenset[str]: ...


K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Member)

#: the methods that apply a record, by the class of its key
Replays: TypeAlias = Mapping[type[Message], Callable[[Any, Any, Any], None]]

#: a mapping with more keys is layered, and not copied
_FEW = 200


class ModernGroup(Generic[M]):
    """The state of one consumer group or share group. Only its shard uses this object.

    A subclass adds the state that only its type of group has.

    Attributes:
        group_id: the group id.
        epoch: the group epoch.
        metadata_hash: a hash of the subscribed topics, to detect their changes.
        assignment_epoch: the group epoch for which the target assignment was computed.
        members: the members by id.
        targets: the partitions of each member in the target assignment, by member id.
    """

    types: ClassVar[RecordTypes[Any]]
    replays: ClassVar[Replays]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: MutableMapping[str, M] = {}
        self.targets: MutableMapping[str, Partitions] = {}
        #: by set of subscribed topic names: the number of members with it
        self._names: dict[frozenset[str], int] = {}

    def draft(self) -> Self:
        """Return a copy that can be changed. The copy becomes invalid when this group changes."""
        other = type(self)(self.group_id)
        other.epoch, other.metadata_hash = self.epoch, self.metadata_hash
        other.assignment_epoch = self.assignment_epoch
        other.members, other.targets = layer(self.members), layer(self.targets)
        other._names = dict(self._names)
        return other

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> M:
        """Return the member with this id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the group has no such member.
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

    def replay(self, key: Key, value: Any) -> None:
        """Apply one record to the group. A value of None deletes the key."""
        self.replays[type(key)](self, key, value)

    def tombstones(self) -> list[ModernGroupRecord]:
        """Return the records that delete the group, in the order in which they must be replayed."""
        types, group_id = self.types, self.group_id
        keys: list[Key] = [
            *(types.current[0](group_id=group_id, member_id=member_id) for member_id in self.members),
            *(types.target[0](group_id=group_id, member_id=member_id) for member_id in self.targets),
            types.assignment[0](group_id=group_id),
            *(types.subscription[0](group_id=group_id, member_id=member_id) for member_id in self.members),
            *self._other_keys(),
            types.group[0](group_id=group_id),
        ]
        return [ModernGroupRecord(key, None) for key in keys]

    def _other_keys(self) -> Iterator[Key]:
        """Yield the keys of the records that only this type of group has."""
        raise NotImplementedError

    def _replay_group(self, _key: Any, value: Any) -> None:
        self.epoch = 0 if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _replay_assignment(self, _key: Any, value: Any) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch

    def _replay_target(self, key: Any, value: Any) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = from_topic_partitions(value.topic_partitions)

    def _replay_subscription(self, key: Any, value: Any) -> None:
        types, old = self.types, self.members.get(key.member_id)
        new = None if value is None else types.subscribed(old or types.new_member(key.member_id), value)
        self._put(old, new)

    def _replay_current(self, key: Any, value: Any) -> None:
        types, old = self.types, self.members.get(key.member_id)
        if value is not None:
            self._put(old, types.advanced(old or types.new_member(key.member_id), value))
        elif old is not None:
            self._put(old, types.advanced(old, types.current[1]()))

    def _put(self, old: M | None, new: M | None) -> None:
        if old is not None:
            self._remove_from_indexes(old)
            if new is None:
                del self.members[old.member_id]
        if new is not None:
            self._add_to_indexes(new)
            self.members[new.member_id] = new

    def _add_to_indexes(self, member: M) -> None:
        count(self._names, member.topics, 1)

    def _remove_from_indexes(self, member: M) -> None:
        count(self._names, member.topics, -1)


def common_replays(types: RecordTypes[Any]) -> Replays:
    """Return the methods that apply records to a group, by the class of the record's key.

    The result covers the kinds of records in `types`.
    """
    return {
        types.group[0]: ModernGroup._replay_group,
        types.assignment[0]: ModernGroup._replay_assignment,
        types.target[0]: ModernGroup._replay_target,
        types.subscription[0]: ModernGroup._replay_subscription,
        types.current[0]: ModernGroup._replay_current,
    }


def layer(mapping: MutableMapping[K, V]) -> MutableMapping[K, V]:
    """Return a copy of `mapping`, or a `Layered` view if it is large."""
    return dict(mapping) if len(mapping) <= _FEW else Layered(mapping)


def count(counts: dict[K, int], key: K, change: int) -> None:
    """Add `change` to the count of `key`, and remove the count if it is then zero."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
