"""ConsumerGroupHeartbeat (key 68): join, stay in and leave a group of the consumer protocol (KIP-848).

A full request has all fields; other requests have only the changed fields. v1 adds subscriptions by regular
expression, and requires that clients generate their member ids (KIP-1082).
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    since,
)


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(Request, key=68, versions=(0, 1), flexible=0):
    group_id: String = ""
    member_id: String = ""
    # 0 joins, -1 leaves, -2 leaves temporarily (static members).
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    # In the fields below, null or -1 means no change.
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = since(1, default=None)
    server_assignor: String | None = None
    # The partitions that the member owns; it may own no others.
    topic_partitions: list[TopicPartitions] | None = None


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatResponse(Response, to=ConsumerGroupHeartbeatRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    # Null when it has not changed.
    assignment: Assignment | None = None
