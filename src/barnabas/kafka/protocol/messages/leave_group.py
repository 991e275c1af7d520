"""LeaveGroup (key 13): remove members from a classic group.

v3 removes several at once, static ones by their instance id (KIP-345); v5 adds the reason (KIP-800).
"""

from barnabas.kafka.protocol.schema import Int16, Int32, Request, Response, String, Struct, since, until


class MemberIdentity(Struct):
    member_id: String = ""
    group_instance_id: String | None = None
    reason: String | None = since(5, default=None)


class LeaveGroupRequest(Request, key=13, versions=(0, 5), flexible=4):
    group_id: String = ""
    # One member up to v2, `members` since v3.
    member_id: String = until(2, default="")
    members: list[MemberIdentity] = since(3, default=[])


class MemberResponse(Struct):
    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Response, to=LeaveGroupRequest):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0
    members: list[MemberResponse] = since(3, default=[])
