"""FindCoordinator (key 10): find the coordinator of a group or a transactional id.

v1 adds the key type (KIP-98), v4 several keys in one request (KIP-699). v5 can return TRANSACTION_ABORTABLE
(KIP-890). v6 adds share groups (KIP-932).
"""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct, since, until


class FindCoordinatorRequest(Request, key=10, versions=(0, 6), flexible=3):
    # One key up to v3, `coordinator_keys` since v4.
    key: String = until(3, default="")
    # 0 group, 1 transactional id, 2 share group partition (v6).
    key_type: Int8 = since(1, default=0)
    coordinator_keys: list[String] = since(4, default=[])


class Coordinator(Struct):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class FindCoordinatorResponse(Response, to=FindCoordinatorRequest):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = until(3, default=0)
    error_message: String | None = since(1, until=3, default="")
    node_id: Int32 = until(3, default=0)
    host: String = until(3, default="")
    port: Int32 = until(3, default=0)
    coordinators: list[Coordinator] = since(4, default=[])
