"""CreateTopics (key 19): create topics, or only check that they could be created.

- v4: -1 lets the broker choose partitions and replication factor (KIP-464).
- v5: returns the partitions, replication factor and configuration of the new topic (KIP-525).
- v6: the broker can throttle the request (KIP-599).
- v7: returns the topic's id (KIP-516).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
    tagged,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    name: String = ""
    value: String | None = ""


class CreatableTopic(Struct):
    name: String = ""
    # -1 with explicit assignments, or (since v4) for the broker's default.
    num_partitions: Int32 = 0
    # -1 with explicit assignments, or (since v4) for the broker's default.
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Request, key=19, versions=(2, 7), flexible=5):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: String = ""
    topic_id: Uuid = since(7, default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: String | None = ""
    # The error if the client may not see the configs, which are then null.
    topic_config_error_code: Int16 = tagged(0, since=5, default=0)
    # -1, here and in the fields below, if the client may not see the value.
    num_partitions: Int32 = since(5, default=-1)
    replication_factor: Int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, default=[])


class CreateTopicsResponse(Response, to=CreateTopicsRequest):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []
