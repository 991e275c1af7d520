"""DeleteShareGroupOffsets v0: deletes the offsets of topics in a share group without members (KIP-932)."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from barnabas.kafka.security.acls import Operation


def _failed(request: DeleteShareGroupOffsetsRequest, error: KafkaError) -> DeleteShareGroupOffsetsResponse:
    if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    topics = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=error.code, error_message=error.message
        )
        for topic in request.topics
    ]
    return DeleteShareGroupOffsetsResponse(responses=topics)


@handles(
    DeleteShareGroupOffsetsRequest,
    needs=[
        Group(Operation.DELETE),
        each_topic(Operation.READ, "topics", "responses", name="topic_name"),
    ],
    on_error=_failed,
    pieces=[Pieces("topics", "responses", size=64)],
    is_heavy=True,
    confirmed_by=group_coordinator(),
    is_audited=True,
    feature=SHARE_VERSION,
)
async def delete_share_group_offsets(
    groups: GroupCoordinator,
    view: BrokerView,
    _context: RequestContext,
    request: DeleteShareGroupOffsetsRequest,
) -> DeleteShareGroupOffsetsResponse:
    names = {topic.topic_name for topic in request.topics}
    outcomes = await groups.share_groups.delete_offsets(request.group_id, names)
    topics = view.image.topics
    response = DeleteShareGroupOffsetsResponse()
    for wanted in request.topics:
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
        response.responses.append(answer)
        topic = topics.get(wanted.topic_name)
        if topic is None or topic.id not in outcomes:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.error_message = "There is no offset information to delete."
            continue
        answer.topic_id = topic.id
        if (error := outcomes[topic.id]) is not None:
            answer.error_code, answer.error_message = error.code, error.message
    return response
