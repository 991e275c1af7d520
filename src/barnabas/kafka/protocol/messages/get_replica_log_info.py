"""GetReplicaLogInfo (key 93): return the log end offsets of replicas, for an unclean election (KIP-966)."""

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
    tagged,
)


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class GetReplicaLogInfoRequest(Request, key=93, versions=(0, 0), flexible=0):
    # The id of the broker that receives the request.
    broker_id: Int32 = 0
    topic_partitions: list[TopicPartitions] = []
    # Whether the response has the epoch_starts of each log. Kafka has no such field.
    include_epoch_starts: Bool = tagged(10_000, since=0, default=False)


class EpochStart(Struct):
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0


class PartitionLogInfo(Struct):
    partition: Int32 = 0
    # The leader epoch of the last record; -1 if there is none.
    last_written_leader_epoch: Int32 = 0
    current_leader_epoch: Int32 = 0
    log_end_offset: Int64 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    # The latest leader epochs of the log, in ascending order. Kafka has no such field.
    epoch_starts: list[EpochStart] = tagged(10_000, since=0, default=[])


class TopicPartitionLogInfo(Struct):
    topic_id: Uuid = ZERO_UUID
    partition_log_info: list[PartitionLogInfo] = []


class GetReplicaLogInfoResponse(Response, to=GetReplicaLogInfoRequest):
    throttle_time_ms: Int32 = 0
    # The epoch of the broker that answers.
    broker_epoch: Int64 = 0
    # Whether partitions are missing, for which the client must send another request.
    has_more_data: Bool = False
    topic_partition_log_info_list: list[TopicPartitionLogInfo] = []
