"""ReadShareGroupState (key 84): read the state of a share group's partitions (KIP-932).

The leader of the partition sends it to the share coordinator, which fences earlier leaders.
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
    tagged,
)


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateRequest(Request, key=84, versions=(0, 0), flexible=0):
    group_id: String = ""
    topics: list[ReadStateData] = []


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    # 0 available, 2 acknowledged, 4 archived.
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    # -1 until the partition's leader has chosen it.
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []
    # It differs for each initialization of the share partition. Kafka has no such field.
    initialized_at: Int64 = tagged(10_000, since=0, default=-1)


class ReadStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateResponse(Response, to=ReadShareGroupStateRequest):
    results: list[ReadStateResult] = []
