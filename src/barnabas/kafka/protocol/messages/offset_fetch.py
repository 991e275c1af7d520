"""OffsetFetch (key 9): read a group's committed offsets.

- v2: null asks for every partition; the response has an error for the whole group.
- v5: returns the leader epoch (KIP-320).
- v7: can refuse offsets of open transactions (KIP-447).
- v8: several groups at once (KIP-709).
- v9: members of the consumer protocol (KIP-848).
- v10: topic ids (KIP-516).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    until,
)


class OffsetFetchRequestTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Struct):
    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Struct):
    group_id: String = ""
    member_id: String | None = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    # Null asks for every partition that has an offset.
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequest(Request, key=9, versions=(1, 10), flexible=6):
    # One group up to v7, `groups` since v8.
    group_id: String = until(7, default="")
    # Null asks for every partition that has an offset.
    topics: list[OffsetFetchRequestTopic] | None = until(7, default=[], nullable=2)
    groups: list[OffsetFetchRequestGroup] = since(8, default=[])
    # Answer UNSTABLE_OFFSET_COMMIT while a transaction could still change an offset.
    require_stable: Bool = since(7, default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    # -1 when there is none.
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(5, default=-1)
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: String = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    # -1 when there is none.
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Struct):
    group_id: String = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Response, to=OffsetFetchRequest):
    throttle_time_ms: Int32 = since(3, default=0)
    topics: list[OffsetFetchResponseTopic] = until(7, default=[])
    error_code: Int16 = since(2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = since(8, default=[])
