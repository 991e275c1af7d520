"""Records of `__consumer_offsets` that hold one committed offset; a null value deletes it.

Key and value each begin with their version as an int16, which the classes of this module do not declare. Keys
of versions 0 and 1 have the same layout. Apache Kafka writes keys of version 1; old releases wrote version 0.
"""

from barnabas.kafka.protocol.schema import ZERO_UUID, Int32, Int64, Message, String, Uuid, since, tagged


class OffsetCommitKey(Message, versions=(0, 0)):
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    offset: Int64 = 0
    leader_epoch: Int32 = since(3, default=-1)
    metadata: String = ""
    commit_timestamp: Int64 = 0
    # From clients that chose their own retention; gone since v2.
    expire_timestamp: Int64 = since(1, until=1, default=-1)
    topic_id: Uuid = tagged(0, since=4, default=ZERO_UUID)
