"""WriteShareGroupState (key 85): change the state of a share group's partitions (KIP-932).

The leader of the partition sends it to the share coordinator. v1 adds the number of acknowledged or archived
records from the start offset on (KIP-1226).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    tagged,
)


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    # 0 available, 2 acknowledged, 4 archived.
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    # -1: the stored start offset stays.
    start_offset: Int64 = 0
    # The finished records from the start offset on.
    delivery_complete_count: Int32 = since(1, default=-1)
    state_batches: list[StateBatch] = []
    # The `initialized_at` that the leader has read. Kafka has no such field.
    initialized_at: Int64 = tagged(10_000, since=0, default=-1)


class WriteStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class WriteShareGroupStateRequest(Request, key=85, versions=(0, 1), flexible=0):
    group_id: String = ""
    topics: list[WriteStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class WriteStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class WriteShareGroupStateResponse(Response, to=WriteShareGroupStateRequest):
    results: list[WriteStateResult] = []
