"""InitializeShareGroupState (key 83): create the state of a share group's partitions (KIP-932).

The group coordinator sends it to the share coordinator.
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
    tagged,
)


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    # -1 for a start offset that the partition's leader chooses later.
    start_offset: Int64 = 0
    # The leader epoch of the group's `__consumer_offsets` partition. Kafka has no such field.
    coordinator_epoch: Int32 = tagged(10_000, since=0, default=-1)
    # The `initialized_at` of the state that the coordinator replaces. Kafka has no such field.
    replaced: Int64 = tagged(10_001, since=0, default=-1)
    # The end offset of this `__consumer_offsets` partition. Kafka has no such field.
    coordinator_log_end: Int64 = tagged(10_002, since=0, default=-1)


class InitializeStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class InitializeShareGroupStateRequest(Request, key=83, versions=(0, 0), flexible=0):
    group_id: String = ""
    topics: list[InitializeStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class InitializeStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class InitializeShareGroupStateResponse(Response, to=InitializeShareGroupStateRequest):
    results: list[InitializeStateResult] = []
