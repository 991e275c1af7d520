"""DeleteRecords (key 21): move the log start offset of partitions (KIP-107)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = 0
    # The new log start offset; -1 is the high watermark.
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Request, key=21, versions=(0, 2), flexible=2):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = 0
    # The lowest log start offset among the live replicas; -1 on error.
    low_watermark: Int64 = -1
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Response, to=DeleteRecordsRequest):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
