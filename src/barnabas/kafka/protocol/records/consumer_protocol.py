"""The subscription in JoinGroup and the assignment in SyncGroup, for classic consumers.

A broker treats both as opaque bytes, except to find a group's topics (OffsetDelete) or to show them in a
tool. Both begin with the version as an int16, which the classes of this module do not declare. A version
above the highest declared version is read as the highest one. Later versions only add fields at the end, and
the decoder ignores these fields.
"""

from barnabas.kafka.protocol.schema import Bytes, Int32, Message, String, Struct, since

ANY = 2**31  # bytes of fields that a later version may have added


class TopicPartition(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class ConsumerProtocolSubscription(Message, versions=(0, 3), slack=ANY):
    topics: list[String] = []
    user_data: Bytes | None = None
    # For cooperative rebalancing (KIP-429).
    owned_partitions: list[TopicPartition] = since(1, default=[])
    # The generation of owned_partitions, which are ignored if it is outdated (KIP-792).
    generation_id: Int32 = since(2, default=-1)
    # For rack-aware assignment (KIP-881).
    rack_id: String | None = since(3, default=None)


class ConsumerProtocolAssignment(Message, versions=(0, 3), slack=ANY):
    assigned_partitions: list[TopicPartition] = []
    user_data: Bytes | None = None
