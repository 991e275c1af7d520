"""AlterPartition (key 56): a leader asks the controller to change a partition's ISR (KIP-497).

v1 adds the leader's recovery state (KIP-704), v2 topic ids, v3 the broker epochs of the ISR (KIP-903).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    Struct,
    Uuid,
    since,
    until,
)


class BrokerState(Struct):
    broker_id: Int32 = 0
    # -1: the leader does not know the broker epoch.
    broker_epoch: Int64 = -1


class PartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: list[Int32] = until(2, default=[])
    new_isr_with_epochs: list[BrokerState] = since(3, default=[])
    # 1: the leader is recovering after an unclean election.
    leader_recovery_state: Int8 = 0
    # The partition epoch to which the change applies.
    partition_epoch: Int32 = 0


class TopicData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class AlterPartitionRequest(Request, key=56, versions=(2, 3), flexible=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[TopicData] = []


class PartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    # The state as it is now.
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class TopicResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class AlterPartitionResponse(Response, to=AlterPartitionRequest):
    throttle_time_ms: Int32 = 0
    # The error of the whole request; else each partition has its own error.
    error_code: Int16 = 0
    topics: list[TopicResult] = []
