"""JoinGroup (key 11): become a member of a classic group, or take part in its rebalance.

- v1: a rebalance timeout, separate from the session timeout (KIP-62).
- v4: requires the member id that the first response assigns (KIP-394).
- v5: static members (KIP-345).
- v7: returns the protocol type (KIP-559).
- v8: the reason for the join (KIP-800).
- v9: tells a returning static leader to skip the assignment (KIP-814).
"""

from barnabas.kafka.protocol.schema import Bool, Bytes, Int16, Int32, Request, Response, String, Struct, since


class JoinGroupRequestProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Request, key=11, versions=(0, 9), flexible=6):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    # v0 uses the session timeout also as the rebalance timeout.
    rebalance_timeout_ms: Int32 = since(1, default=-1)
    # Empty at the first join.
    member_id: String = ""
    group_instance_id: String | None = since(5, default=None)
    protocol_type: String = ""
    # Assignment strategies, the preferred one first.
    protocols: list[JoinGroupRequestProtocol] = []
    reason: String | None = since(8, default=None)


class JoinGroupResponseMember(Struct):
    member_id: String = ""
    group_instance_id: String | None = since(5, default=None)
    metadata: Bytes = b""


class JoinGroupResponse(Response, to=JoinGroupRequest):
    throttle_time_ms: Int32 = since(2, default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = since(7, default=None)
    # Null is allowed since v7; earlier error responses have an empty name.
    protocol_name: String | None = since(0, default="", nullable=7)
    leader: String = ""
    skip_assignment: Bool = since(9, default=False)
    member_id: String = ""
    # Only for the leader, which computes the assignment.
    members: list[JoinGroupResponseMember] = []
