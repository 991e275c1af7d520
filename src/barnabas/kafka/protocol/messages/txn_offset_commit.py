"""TxnOffsetCommit (key 28): commit offsets that take effect when the transaction commits (KIP-98).

v2 stores the leader epoch (KIP-320), v3 adds the member that commits (KIP-447). v4 can return
TRANSACTION_ABORTABLE. v5 adds the group to the transaction implicitly (KIP-890).
"""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct, since


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(2, default=-1)
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(Request, key=28, versions=(0, 5), flexible=3):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    # -1 with an empty member id: a commit from outside the group.
    generation_id: Int32 = since(3, default=-1)
    member_id: String = since(3, default="")
    group_instance_id: String | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(Response, to=TxnOffsetCommitRequest):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
