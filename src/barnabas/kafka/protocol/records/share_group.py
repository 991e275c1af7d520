"""Records of `__consumer_offsets` that store a share group (KIP-932).

Key and value each begin with an int16, which the classes of this module do not declare. The key's int16 is
the kind of record. The value's int16 is its version. A null value deletes the entry of the key.
"""

from collections.abc import Mapping
from typing import TypeAlias

from barnabas.kafka.protocol.records.consumer_group import TopicPartitions
from barnabas.kafka.protocol.schema import ZERO_UUID, Int8, Int32, Int64, Message, String, Struct, Uuid


class ShareGroupMemberMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class ShareGroupMemberMetadataValue(Message, versions=(0, 0), flexible=0):
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []


class ShareGroupMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""


class ShareGroupMetadataValue(Message, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    # A hash of the subscribed topics; it changes if one is created, deleted or gets partitions (KIP-1101).
    metadata_hash: Int64 = 0


class ShareGroupTargetAssignmentMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""


class ShareGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = 0


class ShareGroupTargetAssignmentMemberKey(Message, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class ShareGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupCurrentMemberAssignmentKey(Message, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class ShareGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = []


class ShareGroupStatePartitionMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: list[Int32] = []


class TopicInfo(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""


class ShareGroupStatePartitionMetadataValue(Message, versions=(0, 0), flexible=0):
    # The share coordinator has been asked to create the state of these partitions.
    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


#: any key
Key: TypeAlias = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)

#: the kind of the record that declares a group
GROUP_KIND = 11

#: key and value by the number that begins the key
KINDS: Mapping[int, tuple[type[Key], type[Message]]] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    GROUP_KIND: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
