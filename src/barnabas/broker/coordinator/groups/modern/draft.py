"""A pending change of a consumer group or a share group: its records, and a copy to which they are applied.

A decision of an operation often depends on the previous one. So the draft applies each record at once to the
copy. The group itself changes when the runtime replays the committed records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from barnabas.broker.coordinator.contract import StoredRecord
from barnabas.broker.coordinator.groups.modern.group import Member, ModernGroup
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.coordinator.groups.modern.records import Key, ModernGroupRecord, to_topic_partitions
from barnabas.kafka.protocol.schema import Message

G = TypeVar("G", bound=ModernGroup[Any])
M = TypeVar("M", bound=Member)


class ModernGroupDraft(Generic[G, M]):
    """A pending change of a group. Each method adds records, and applies them to a copy of the group."""

    def __init__(self, group: G, before: Iterable[StoredRecord] = ()) -> None:
        """Create a draft of `group`.

        `before` are records that must be stored before all others. They are not applied to the copy.
        """
        self._committed = group
        #: the group after the records so far; changed only through the draft
        self.group = group
        self.records: list[StoredRecord] = list(before)

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def put_subscription(self, member: M) -> None:
        types = self.group.types
        self._write_member(types.subscription[0], member.member_id, types.subscription_value(member))

    def put_current(self, member: M) -> None:
        types = self.group.types
        self._write_member(types.current[0], member.member_id, types.current_value(member))

    def put_target(self, member_id: str, target: Partitions) -> None:
        key, value = self.group.types.target
        self._write_member(key, member_id, value(topic_partitions=to_topic_partitions(target)))

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        key, value = self.group.types.group
        self._write(key(group_id=self.group_id), value(epoch=epoch, metadata_hash=metadata_hash))

    def put_assignment_epoch(self, epoch: int) -> None:
        key, value = self.group.types.assignment
        self._write(key(group_id=self.group_id), value(assignment_epoch=epoch))

    def remove_member(self, member_id: str) -> None:
        types = self.group.types
        for key, _ in (types.current, types.target, types.subscription):  # Kafka requires this order
            self._write_member(key, member_id, None)

    def remove_group(self) -> None:
        for record in self.group.tombstones():
            self._write(record.key, record.value)

    def _write_member(self, key: type[Any], member_id: str, value: Message | None) -> None:
        self._write(key(group_id=self.group_id, member_id=member_id), value)

    def _write(self, key: Key, value: Message | None) -> None:
        if self.group is self._committed:
            self.group = self._committed.draft()
        self.group.replay(key, value)
        self.records.append(ModernGroupRecord(key, value))
