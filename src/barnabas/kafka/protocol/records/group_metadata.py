"""Records of `__consumer_offsets` that hold a classic group; a null value deletes it.

Key and value each begin with their version as an int16, which the classes of this module do not declare. The
key's version also identifies the type of record in this topic: 2 for a group.
"""

from barnabas.kafka.protocol.schema import Bytes, Int32, Int64, Message, String, Struct, since


class GroupMetadataKey(Message, versions=(0, 0)):
    group: String = ""


class MemberMetadata(Struct):
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None)
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Int32 = since(1, default=-1)
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    protocol_type: String = ""
    generation: Int32 = 0
    # Null, as the leader, when the group is empty.
    protocol: String | None = ""
    leader: String | None = ""
    # Milliseconds; offsets of an empty group expire from here (KIP-211).
    current_state_timestamp: Int64 = since(2, default=-1)
    members: list[MemberMetadata] = []
