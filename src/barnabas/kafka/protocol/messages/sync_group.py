"""SyncGroup (key 14): the leader sends the assignment, and each member receives its partitions.

v3 adds static members (KIP-345). v5 has the protocol type and the protocol name of the group (KIP-559).
"""

from barnabas.kafka.protocol.schema import Bytes, Int16, Int32, Request, Response, String, Struct, since


class SyncGroupRequestAssignment(Struct):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Request, key=14, versions=(0, 5), flexible=4):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None)
    protocol_type: String | None = since(5, default=None)
    protocol_name: String | None = since(5, default=None)
    # From the leader only; empty from everyone else.
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Response, to=SyncGroupRequest):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0
    protocol_type: String | None = since(5, default=None)
    protocol_name: String | None = since(5, default=None)
    assignment: Bytes = b""
