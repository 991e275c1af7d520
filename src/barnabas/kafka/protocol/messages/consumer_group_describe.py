"""ConsumerGroupDescribe (key 69): describe consumer-protocol groups with members and assignments (KIP-848).

v1 adds each member's protocol (KIP-1099).
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
)


class ConsumerGroupDescribeRequest(Request, key=69, versions=(0, 1), flexible=0):
    group_ids: list[String] = []
    include_authorized_operations: Bool = False


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: list[Int32] = []


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = []


class Member(Struct):
    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    subscribed_topic_regex: String | None = None
    # The current assignment, and the target assignment.
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    # 0 by the classic protocol, 1 by the consumer protocol.
    member_type: Int8 = since(1, default=-1)


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = []
    # A bit for each operation, or the smallest int32 when it was not asked for.
    authorized_operations: Int32 = -(2**31)


class ConsumerGroupDescribeResponse(Response, to=ConsumerGroupDescribeRequest):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
