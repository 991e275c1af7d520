"""DescribeProducers (key 61): list the producers that a partition's leader remembers (KIP-664)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct


class TopicRequest(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class DescribeProducersRequest(Request, key=61, versions=(0, 0), flexible=0):
    topics: list[TopicRequest] = []


class ProducerState(Struct):
    producer_id: Int64 = 0
    # An int32 here, though an int16 everywhere else.
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    # -1 without an open transaction.
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(Struct):
    name: String = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(Response, to=DescribeProducersRequest):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
