"""OffsetCommit (key 8): store a group's offsets.

- v5: the broker alone decides on retention (KIP-211).
- v6: the leader epoch (KIP-320).
- v7: static members (KIP-345).
- v9: members of the consumer protocol (KIP-848).
- v10: topic ids (KIP-516).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
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


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(6, default=-1)
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Struct):
    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Request, key=8, versions=(2, 10), flexible=8):
    group_id: String = ""
    # -1 with an empty member id: a commit from outside the group.
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: String | None = since(7, default=None)
    # -1 leaves it to offsets.retention.minutes.
    retention_time_ms: Int64 = until(4, default=-1)
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: String = until(9, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Response, to=OffsetCommitRequest):
    throttle_time_ms: Int32 = since(3, default=0)
    topics: list[OffsetCommitResponseTopic] = []
