"""A pending change of a share group."""

from __future__ import annotations

from barnabas.broker.coordinator.groups.modern.draft import ModernGroupDraft
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.initialization import InitializationStates
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.broker.coordinator.groups.share.records import partitions_value
from barnabas.kafka.protocol.records import share_group as stored


class ShareGroupDraft(ModernGroupDraft[ShareGroup, ShareMember]):
    """A pending change of a share group, and the records that store it."""

    def put_partitions(self, partitions: InitializationStates) -> None:
        key = stored.ShareGroupStatePartitionMetadataKey(group_id=self.group_id)
        self._write(key, None if partitions.is_empty else partitions_value(partitions))
