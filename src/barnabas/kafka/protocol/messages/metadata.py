"""Metadata (key 3): return the brokers, the topics, and the partitions with their leaders.

- v1: null asks for all topics, an empty list for none.
- v4: the client says whether the broker may create missing topics.
- v5: offline replicas (KIP-112).
- v7: leader epochs (KIP-320).
- v8: authorized operations (KIP-430); v11 moved the cluster's operations to DescribeCluster (KIP-700).
- v10: topic ids; v12: lookups by topic id (KIP-516).
- v13: a top-level error (KIP-1102).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
)


class MetadataRequestTopic(Struct):
    # Usable from v12 on; v10 and v11 have the field, but brokers ignore it.
    topic_id: Uuid = since(10, default=ZERO_UUID)
    # Null when the topic is looked up by its id.
    name: String | None = since(0, default="", nullable=10)


# librdkafka leaves three bytes of its own array count behind the message when it asks for all topics.
class MetadataRequest(Request, key=3, versions=(0, 13), flexible=9, slack=3):
    # v0: empty asks for all topics; later null asks for all, empty for none.
    topics: list[MetadataRequestTopic] | None = since(0, default=[], nullable=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, until=10, default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = since(1, default=None)


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    # -1 if there is none.
    leader_id: Int32 = 0
    leader_epoch: Int32 = since(7, default=-1)
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: list[Int32] = since(5, default=[])


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    # Null when an id that was asked for is unknown.
    name: String | None = since(0, default="", nullable=12)
    topic_id: Uuid = since(10, default=ZERO_UUID)
    is_internal: Bool = since(1, default=False)
    partitions: list[MetadataResponsePartition] = []
    # A bit set (KIP-430); the smallest int32 if it was not requested.
    topic_authorized_operations: Int32 = since(8, default=-(2**31))


class MetadataResponse(Response, to=MetadataRequest):
    throttle_time_ms: Int32 = since(3, default=0)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: String | None = since(2, default=None)
    controller_id: Int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Int32 = since(8, until=10, default=-(2**31))
    error_code: Int16 = since(13, default=0)
