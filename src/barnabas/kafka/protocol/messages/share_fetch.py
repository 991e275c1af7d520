"""ShareFetch (key 78): acquire records as a member of a share group, and acknowledge earlier ones (KIP-932).

v2 can limit the acquired records strictly (KIP-1206), and can renew the locks of acquired records (KIP-1222).
v0 was an early-access version.
"""

from barnabas.kafka.protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    RecordChunks,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
)


class AcknowledgementBatch(Struct):
    # Both offsets are inclusive.
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    # 0 gap, 1 accept, 2 release, 3 reject, 4 renew: one type for all records, or one for each.
    acknowledge_types: list[Int8] = []


class FetchPartition(Struct):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class FetchTopic(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ShareFetchRequest(Request, key=78, versions=(1, 2), flexible=0):
    group_id: String | None = None
    member_id: String | None = ""
    # 0 opens a session, -1 closes it; any other counts the requests of the session.
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    # May be exceeded to keep batches whole, unless the mode is 1.
    max_records: Int32 = 0
    # The number of records after which another range of acquired records begins.
    batch_size: Int32 = 0
    # 0 batch-optimised, 1 strict limit of records.
    share_acquire_mode: Int8 = since(2, default=0)
    # Whether an acknowledgement has the type 4.
    is_renew_ack: Bool = since(2, default=False)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class AcquiredRecords(Struct):
    # Both offsets are inclusive.
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: String | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    records: RecordChunks = b""
    acquired_records: list[AcquiredRecords] = []


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class ShareFetchResponse(Response, to=ShareFetchRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    # The addresses of the brokers in current_leader.
    node_endpoints: list[NodeEndpoint] = []
