"""DeleteShareGroupState (key 86): delete the state of a share group's partitions (KIP-932).

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
    # The leader epoch of the group's `__consumer_offsets` partition. Kafka has no such field.
    coordinator_epoch: Int32 = tagged(10_000, since=0, default=-1)
    # The end offset of this `__consumer_offsets` partition. Kafka has no such field.
    coordinator_log_end: Int64 = tagged(10_001, since=0, default=-1)


class DeleteStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class DeleteShareGroupStateRequest(Request, key=86, versions=(0, 0), flexible=0):
    group_id: String = ""
    topics: list[DeleteStateData] = []


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class DeleteShareGroupStateResponse(Response, to=DeleteShareGroupStateRequest):
    results: list[DeleteStateResult] = []
