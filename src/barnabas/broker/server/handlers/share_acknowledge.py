"""ShareAcknowledge v1-2: acknowledges records that a share group's member has acquired (KIP-932, KIP-1222).

The broker answers when the share coordinator has stored the acknowledgements. A request with the final epoch
closes the share session, and releases the records that are not acknowledged.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import LongResponse, MaybeAwaitable
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Group, checked_by_handler
from barnabas.broker.server.responses.leaders import MOVED, Leaders
from barnabas.broker.server.share_requests import (
    SharePorts,
    acknowledging_of,
    is_long,
    lock_timeout_ms,
    member_of,
    stored,
)
from barnabas.broker.sharing.acknowledging import Acknowledging
from barnabas.broker.sharing.sessions import FINAL_EPOCH, INITIAL_EPOCH, Member, ShareSession
from barnabas.kafka.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.kafka.protocol.wire import MAX_ELEMENTS
from barnabas.kafka.security.acls import Operation


@handles(
    ShareAcknowledgeRequest,
    needs=[Group(Operation.READ), checked_by_handler("topic READ")],
    max_elements=MAX_ELEMENTS,
    unconfirmed="the share coordinator refuses a former leader",
    feature=SHARE_VERSION,
)
def share_acknowledge(
    ports: SharePorts, context: RequestContext, request: ShareAcknowledgeRequest
) -> MaybeAwaitable[ShareAcknowledgeResponse]:
    member = member_of(request)
    if request.share_session_epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "ShareFetch opens a share session")
    session = ports.sessions.find(member, request.share_session_epoch)
    acknowledging = acknowledging_of(ports, context, request)
    if is_long(acknowledging):
        return LongResponse(_in_slices(ports, context, request, session, acknowledging))
    for _ in acknowledging.steps():
        pass
    _end(ports, request, session)
    if acknowledging.is_stored:
        return _response(ports, context, member, acknowledging)
    return _later(ports, context, member, acknowledging)


async def _in_slices(
    ports: SharePorts,
    context: RequestContext,
    request: ShareAcknowledgeRequest,
    session: ShareSession,
    acknowledging: Acknowledging,
) -> ShareAcknowledgeResponse:
    async for _ in ports.long_work.slices(acknowledging.steps()):
        pass
    _end(ports, request, session)
    return await _later(ports, context, session.member, acknowledging)


async def _later(
    ports: SharePorts, context: RequestContext, member: Member, acknowledging: Acknowledging
) -> ShareAcknowledgeResponse:
    await stored(acknowledging)
    return _response(ports, context, member, acknowledging)


def _end(ports: SharePorts, request: ShareAcknowledgeRequest, session: ShareSession) -> None:
    if request.share_session_epoch == FINAL_EPOCH:
        ports.sessions.close(session)


def _response(
    ports: SharePorts, context: RequestContext, member: Member, acknowledging: Acknowledging
) -> ShareAcknowledgeResponse:
    leaders = Leaders(ports.view, context.listener)
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_timeout_ms(ports, member))
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), error in acknowledging.outcomes.items():
        data = PartitionData(partition_index=index)
        if error is not None:
            data.error_code, data.error_message = error.code, error.message
            if error.code in MOVED:
                data.current_leader = leaders.of(topic_id, index)
        topic = topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id=topic_id))
        topic.partitions.append(data)
    response.responses = list(topics.values())
    response.node_endpoints = leaders.endpoints
    return response
