"""DescribeSharePartitions (key 30000): read the records in flight of share partitions from their leaders.

This API is Barnabas' own. Kafka's keys are below 100, and clients ignore keys that they do not know. Apache
Kafka has no API that tells who has locked which records, and until when.

A response has a limited number of ranges of records. Partitions beyond the limit are left out, and the last
partition in the response can have a `next_offset`. The client then sends another request: for the partitions
that were left out, and for that last partition from `next_offset` on. v0, of Barnabas 0.2.0, had no limit.
"""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Int64, Request, Response, String, Struct


class PartitionRequest(Struct):
    partition_index: Int32 = 0
    # Only ranges that contain this offset or later ones are described: next_offset of the last page.
    first_offset: Int64 = 0


class TopicRequest(Struct):
    name: String = ""
    partitions: list[PartitionRequest] = []


class DescribeSharePartitionsRequest(Request, key=30000, versions=(1, 1), flexible=0):
    group_id: String = ""
    topics: list[TopicRequest] = []
    # The largest number of ranges in the response, for all partitions together.
    response_range_limit: Int32 = 2000


class StateBatch(Struct):
    # Both offsets are inclusive.
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    # 0 available, 1 acquired, 2 acknowledged, 3 archiving (KIP-1191), 4 archived.
    delivery_state: Int8 = 0
    # The deliveries so far, with the present one of acquired records.
    delivery_count: Int16 = 0
    # The member that has acquired the records; empty in other states.
    member_id: String = ""
    # The time after which the member's lock ends, in milliseconds; -1 in other states.
    lock_timeout_ms: Int32 = -1


class PartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    # Both are -1 while no member of the group uses the partition.
    start_offset: Int64 = -1
    end_offset: Int64 = -1
    state_batches: list[StateBatch] = []
    # The offset at which the next page begins; -1 if the last range is described.
    next_offset: Int64 = -1


class TopicResponse(Struct):
    name: String = ""
    partitions: list[PartitionResponse] = []


class DescribeSharePartitionsResponse(Response, to=DescribeSharePartitionsRequest):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
