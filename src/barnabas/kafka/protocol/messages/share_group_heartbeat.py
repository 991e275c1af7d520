"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932).

A full request has all fields; other requests have only the changed fields. v0 was an early-access version,
which Apache Kafka 4.1 removed.
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
)


class ShareGroupHeartbeatRequest(Request, key=76, versions=(1, 1), flexible=1):
    group_id: String = ""
    member_id: String = ""
    # 0 joins, -1 leaves.
    member_epoch: Int32 = 0
    # In the fields below, null means no change.
    rack_id: String | None = None
    subscribed_topic_names: list[String] | None = None


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupHeartbeatResponse(Response, to=ShareGroupHeartbeatRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    # Null when it has not changed.
    assignment: Assignment | None = None
