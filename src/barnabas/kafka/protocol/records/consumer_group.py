"""Records of `__consumer_offsets` that store a group of the consumer protocol (KIP-848).

Key and value each begin with an int16, which the classes of this module do not declare. The key's int16 is
the kind of record. The value's int16 is its version. A null value deletes the entry of the key.
"""

from collections.abc import Mapping
from typing import TypeAlias

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    tagged,
)


class ConsumerGroupMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""


class ConsumerGroupMetadataValue(Message, versions=(0, 0), flexible=0):
    epoch: Int32 = 0
    # A hash of the subscribed topics; it changes if one is created, deleted or gets partitions (KIP-1101).
    metadata_hash: Int64 = tagged(0, since=0, default=0)


class ConsumerGroupPartitionMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""


class PartitionMetadata(Struct):
    partition: Int32 = 0
    racks: list[String] = []


class TopicMetadata(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: list[PartitionMetadata] = []


class ConsumerGroupPartitionMetadataValue(Message, versions=(0, 0), flexible=0):
    """The topics of a group: Apache Kafka below 4.1 stored them, later versions only hash them (KIP-1101)."""

    topics: list[TopicMetadata] = []


class ConsumerGroupMemberMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class ClassicProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = []


class ConsumerGroupMemberMetadataValue(Message, versions=(0, 0), flexible=0):
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    # Null for members of the consumer protocol; it is written out, since Kafka's default is another.
    classic_member_metadata: ClassicMemberMetadata | None = tagged(
        0, since=0, default=ClassicMemberMetadata()
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions=(0, 0)):
    group_id: String = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible=0):
    assignment_epoch: Int32 = 0


class ConsumerGroupTargetAssignmentMemberKey(Message, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class ConsumerGroupRegularExpressionKey(Message, versions=(0, 0)):
    group_id: String = ""
    regular_expression: String = ""


class ConsumerGroupRegularExpressionValue(Message, versions=(0, 0), flexible=0):
    topics: list[String] = []
    version: Int64 = 0
    timestamp: Int64 = 0


#: any key
Key: TypeAlias = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

#: the kind of the record that declares a group
GROUP_KIND = 3

#: key and value by the number that begins the key
KINDS: Mapping[int, tuple[type[Key], type[Message]]] = {
    GROUP_KIND: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
