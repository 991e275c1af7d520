"""DeleteShareGroupOffsets (key 92): delete an empty share group's offsets of whole topics (KIP-932)."""

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


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(Request, key=92, versions=(0, 0), flexible=0):
    group_id: String = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteShareGroupOffsetsResponse(Response, to=DeleteShareGroupOffsetsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
