"""The state of a share group (KIP-932): its members, their target assignments, and its partitions.

The group coordinator stores this state as records in `__consumer_offsets`. `replay` applies each record.
`barnabas.broker.coordinator.groups.modern.group` has the part that consumer groups have, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar, Self

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.modern.group import ModernGroup, Replays, common_replays
from barnabas.broker.coordinator.groups.modern.records import Key
from barnabas.broker.coordinator.groups.share.initialization import InitializationStates
from barnabas.broker.coordinator.groups.share.member import ShareMember
from barnabas.broker.coordinator.groups.share.records import TYPES, partitions_of
from barnabas.kafka.protocol.records import share_group as stored


class ShareGroupState(Enum):
    """The states of a share group, by the names that ListGroups and ShareGroupDescribe show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(ModernGroup[ShareMember]):
    """The state of one share group. Only the shard of its `__consumer_offsets` partition uses this object.

    Attributes:
        partitions: the group's partitions: initializing, initialized or deleting (`InitializationStates`).
    """

    types = TYPES

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions = InitializationStates()

    def draft(self) -> Self:
        other = super().draft()
        other.partitions = self.partitions
        return other

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def check_empty(self) -> None:
        """Raise KafkaError NON_EMPTY_GROUP if the group has members."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has members.")

    def check_commit(self, *_: object, **__: object) -> None:
        """Reject a commit of offsets: share groups have none. Raises KafkaError GROUP_ID_NOT_FOUND."""
        raise self.no_offsets_error()

    def no_offsets_error(self) -> KafkaError:
        """Return the error for a request that needs a group with committed offsets."""
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is a share group.")

    # --- records ---

    def _other_keys(self) -> Iterator[Key]:
        yield stored.ShareGroupStatePartitionMetadataKey(group_id=self.group_id)

    def _replay_partitions(
        self, _key: Any, value: stored.ShareGroupStatePartitionMetadataValue | None
    ) -> None:
        self.partitions = InitializationStates() if value is None else partitions_of(value)

    replays: ClassVar[Replays] = {
        **common_replays(TYPES),
        stored.ShareGroupStatePartitionMetadataKey: _replay_partitions,
    }
