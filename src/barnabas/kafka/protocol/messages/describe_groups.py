"""DescribeGroups (key 15): return the state and the members of classic groups.

v3 can return authorized operations (KIP-430), v4 adds static members (KIP-345). For an unknown group, v6
returns GROUP_ID_NOT_FOUND (KIP-1043), and earlier versions return the state Dead.
"""

from barnabas.kafka.protocol.schema import Bool, Bytes, Int16, Int32, Request, Response, String, Struct, since


class DescribeGroupsRequest(Request, key=15, versions=(0, 6), flexible=5):
    groups: list[String] = []
    include_authorized_operations: Bool = since(3, default=False)


class DescribedGroupMember(Struct):
    member_id: String = ""
    group_instance_id: String | None = since(4, default=None)
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = since(6, default=None)
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    # The assignment strategy chosen; empty while there is none.
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    # A bit set (KIP-430); the smallest int32 if it was not requested.
    authorized_operations: Int32 = since(3, default=-(2**31))


class DescribeGroupsResponse(Response, to=DescribeGroupsRequest):
    throttle_time_ms: Int32 = since(1, default=0)
    groups: list[DescribedGroup] = []
