"""CreatePartitions (key 37): raise the number of a topic's partitions (KIP-195).

Since v3, the broker can throttle the request (KIP-599).
"""

from barnabas.kafka.protocol.schema import Bool, Int16, Int32, Request, Response, String, Struct


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Struct):
    name: String = ""
    # The total after the change.
    count: Int32 = 0
    # Of the new partitions only; null leaves it to the controller.
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(Request, key=37, versions=(0, 3), flexible=2):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Response, to=CreatePartitionsRequest):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
