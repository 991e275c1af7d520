"""A pending change of a consumer group: its records, and a copy of the group to which they are applied.

A decision of an operation often depends on the previous one. So the draft applies each record at once to the
copy. The group itself changes when the runtime replays the committed records.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.coordinator.contract import StoredRecord
from barnabas.broker.coordinator.groups.consumer import records
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.kafka.protocol.records import consumer_group as stored
from barnabas.kafka.protocol.schema import Message


class GroupDraft:
    """A pending change of a group. Each method adds records, and applies them to a copy of the group."""

    def __init__(self, group: ConsumerGroup, before: Iterable[StoredRecord] = ()) -> None:
        """Create a draft. `before` has records that must come first and are not applied to the copy."""
        self._committed = group
        #: the group after the records so far; changed only through the draft
        self.group = group
        self.records: list[StoredRecord] = list(before)

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def put_subscription(self, member: ConsumerMember) -> None:
        self._write(records.member_key(self.group_id, member.member_id), records.subscription_value(member))

    def put_current(self, member: ConsumerMember) -> None:
        self._write(records.current_key(self.group_id, member.member_id), records.current_value(member))

    def put_target(self, member_id: str, target: Partitions) -> None:
        value = stored.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=records.to_topic_partitions(target)
        )
        self._write(records.target_key(self.group_id, member_id), value)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        key = stored.ConsumerGroupMetadataKey(group_id=self.group_id)
        self._write(key, stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))

    def put_assignment_epoch(self, epoch: int) -> None:
        key = stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id)
        self._write(key, stored.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))

    def put_regex(self, regex: str, topics: Iterable[str], now_ms: int) -> None:
        value = stored.ConsumerGroupRegularExpressionValue(topics=sorted(topics), timestamp=now_ms)
        self._write(records.regex_key(self.group_id, regex), value)

    def remove_regex(self, regex: str) -> None:
        self._write(records.regex_key(self.group_id, regex), None)

    def remove_member(self, member_id: str) -> None:
        # Apache Kafka requires this order in the replay.
        self._write(records.current_key(self.group_id, member_id), None)
        self._write(records.target_key(self.group_id, member_id), None)
        self._write(records.member_key(self.group_id, member_id), None)

    def remove_group(self) -> None:
        for record in self.group.tombstones():
            self._write(record.key, record.value)

    def _write(self, key: stored.Key, value: Message | None) -> None:
        if self.group is self._committed:
            self.group = self._committed.draft()
        self.group.replay(key, value)
        self.records.append(records.ConsumerGroupRecord(key, value))
