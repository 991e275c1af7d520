"""ListOffsets (key 2): return the offset at a timestamp, or at one of the special negative timestamps.

Special timestamps:

- -1: latest.
- -2: earliest.
- -3, since v7: offset of the largest timestamp (KIP-734).
- -4, since v8: earliest on local disk (KIP-405).
- -5, since v9: latest in tiered storage (KIP-1005).
- -6, since v11: earliest not yet tiered (KIP-1023).

v2 adds isolation levels (KIP-98), v4 leader epochs (KIP-320). v10 adds the timeout for a broker that waits
for remote storage (KIP-1075).
"""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Int64, Request, Response, String, Struct, since


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Int32 = since(4, default=-1)
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Request, key=2, versions=(1, 11), flexible=6):
    # -1 is a consumer, -2 a debugging one, else the broker id of a follower.
    replica_id: Int32 = 0
    isolation_level: Int8 = since(2, default=0)
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Int32 = since(10, default=0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Response, to=ListOffsetsRequest):
    throttle_time_ms: Int32 = since(2, default=0)
    topics: list[ListOffsetsTopicResponse] = []
