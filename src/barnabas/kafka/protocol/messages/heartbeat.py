"""Heartbeat (key 12): keep a member in a classic group. v3 adds static members (KIP-345)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Request, Response, String, since


class HeartbeatRequest(Request, key=12, versions=(0, 4), flexible=4):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None)


class HeartbeatResponse(Response, to=HeartbeatRequest):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0
