"""ListPartitionReassignments (key 46): list the partition reassignments in progress (KIP-455)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Request, Response, String, Struct


class ListPartitionReassignmentsTopics(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(Request, key=46, versions=(0, 0), flexible=0):
    timeout_ms: Int32 = 60000
    # Null: all reassignments.
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = 0
    # All replicas, with the adding and the removing ones.
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Struct):
    name: String = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(Response, to=ListPartitionReassignmentsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: list[OngoingTopicReassignment] = []
