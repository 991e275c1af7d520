"""AlterPartitionReassignments (key 45): begin or cancel moves of partitions to other brokers (KIP-455).

v1 can forbid a change of the replication factor (KIP-860).
"""

from barnabas.kafka.protocol.schema import Bool, Int16, Int32, Request, Response, String, Struct, since


class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    # The preferred leader first; null cancels a reassignment.
    replicas: list[Int32] | None = None


class ReassignableTopic(Struct):
    name: String = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(Request, key=45, versions=(0, 1), flexible=0):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: list[ReassignableTopic] = []


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class ReassignableTopicResponse(Struct):
    name: String = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(Response, to=AlterPartitionReassignmentsRequest):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = since(1, default=True)
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[ReassignableTopicResponse] = []
