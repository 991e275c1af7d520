"""ShareGroupDescribe (key 77): describe share groups with members and assignments (KIP-932).

v0 was an early-access version, which Apache Kafka 4.1 removed.
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
)


class ShareGroupDescribeRequest(Request, key=77, versions=(1, 1), flexible=1):
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
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    assignment: Assignment = Assignment()


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


class ShareGroupDescribeResponse(Response, to=ShareGroupDescribeRequest):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
