"""Produce (key 0): append record batches to partitions.

- v3: magic 2 only (KIP-896).
- v7: the batches may use zstd (KIP-110).
- v8: the response lists the invalid records (KIP-467).
- v10: the response names the new leader, so that the client need not refresh its metadata (KIP-951).
- v12: adds partitions to the transaction implicitly (KIP-890).
- v13: topic ids instead of names (KIP-516).
"""

from barnabas.kafka.protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    tagged,
    until,
)


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records | None = None


class TopicProduceData(Struct):
    name: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Request, key=0, versions=(3, 13), flexible=9):
    transactional_id: String | None = None
    # 0: no response. 1: respond after the leader's append. -1: after all in-sync replicas have the records.
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    # -1 unless the topic has LogAppendTime.
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    # The invalid records, if the broker knows them (KIP-467).
    record_errors: list[BatchIndexAndErrorMessage] = since(8, default=[])
    error_message: String | None = since(8, default=None)
    # With NOT_LEADER_OR_FOLLOWER, if the broker knows the leader. Its address is in node_endpoints.
    current_leader: LeaderIdAndEpoch = tagged(0, since=10, default=LeaderIdAndEpoch())


class TopicProduceResponse(Struct):
    name: String = until(12, default="")
    topic_id: Uuid = since(13, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = []


class ProduceResponse(Response, to=ProduceRequest):
    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10, default=[])
