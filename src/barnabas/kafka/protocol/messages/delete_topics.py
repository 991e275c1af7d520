"""DeleteTopics (key 20): delete topics by name, and since v6 also by id (KIP-516).

v5 adds error messages (KIP-599).
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
    until,
)


class DeleteTopicState(Struct):
    # Null when the topic is named by its id.
    name: String | None = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Request, key=20, versions=(1, 6), flexible=4):
    # Names only up to v5, names or ids since v6.
    topics: list[DeleteTopicState] = since(6, default=[])
    topic_names: list[String] = until(5, default=[])
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: String | None = since(1, default="", nullable=6)
    topic_id: Uuid = since(6, default=ZERO_UUID)
    error_code: Int16 = 0
    error_message: String | None = since(5, default=None)


class DeleteTopicsResponse(Response, to=DeleteTopicsRequest):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []
