"""A pending change of a share group: its records, and a copy of the group to which they are applied."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.coordinator.groups.consumer.records import to_topic_partitions
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.coordinator.groups.share import records
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.initialization import InitializationStates
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.kafka.protocol.records import share_group as stored
from barnabas.kafka.protocol.schema import Message


class ShareGroupDraft:
    """A pending change of a share group. Its methods add records, and apply them to a copy of the group."""

    def __init__(self, group: ShareGroup) -> None:
        self._committed = group
        #: the group after the records so far; changed only through the draft
        self.group = group
        self.records: list[records.ShareGroupRecord] = []

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def put_subscription(self, member: ShareMember) -> None:
        self._write(records.member_key(self.group_id, member.member_id), records.subscription_value(member))

    def put_current(self, member: ShareMember) -> None:
        self._write(records.current_key(self.group_id, member.member_id), records.current_value(member))

    def put_targets(self, targets: Mapping[str, Partitions]) -> None:
        """Store `targets`, except those of members that have left."""
        for member_id, target in targets.items():
            if member_id in self.group.members:
                value = stored.ShareGroupTargetAssignmentMemberValue(
                    topic_partitions=to_topic_partitions(target)
                )
                self._write(records.target_key(self.group_id, member_id), value)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        key = stored.ShareGroupMetadataKey(group_id=self.group_id)
        self._write(key, stored.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))

    def put_assignment_epoch(self, epoch: int) -> None:
        key = stored.ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id)
        self._write(key, stored.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))

    def put_partitions(self, partitions: InitializationStates) -> None:
        key = stored.ShareGroupStatePartitionMetadataKey(group_id=self.group_id)
        self._write(key, None if partitions.is_empty else records.partitions_value(partitions))

    def remove_member(self, member_id: str) -> None:
        # Apache Kafka requires this order in the replay.
        self._write(records.current_key(self.group_id, member_id), None)
        self._write(records.target_key(self.group_id, member_id), None)
        self._write(records.member_key(self.group_id, member_id), None)

    def _write(self, key: stored.Key, value: Message | None) -> None:
        if self.group is self._committed:
            self.group = self._committed.copy()
        self.group.replay(key, value)
        self.records.append(records.ShareGroupRecord(key, value))
