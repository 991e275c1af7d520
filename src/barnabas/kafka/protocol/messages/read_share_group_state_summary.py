"""ReadShareGroupStateSummary (key 87): read the state of share partitions without batches (KIP-932).

The group coordinator sends it to the share coordinator, for a description of the group's offsets. v1 has the
number of finished records (KIP-1226).
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
    tagged,
)


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class ReadShareGroupStateSummaryRequest(Request, key=87, versions=(0, 1), flexible=0):
    group_id: String = ""
    topics: list[ReadStateSummaryData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    # The finished records from the start offset on.
    delivery_complete_count: Int32 = since(1, default=-1)
    # It differs for each initialization of the share partition. Kafka has no such field.
    initialized_at: Int64 = tagged(10_000, since=0, default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class ReadShareGroupStateSummaryResponse(Response, to=ReadShareGroupStateSummaryRequest):
    results: list[ReadStateSummaryResult] = []
