"""FindCoordinator v0-6: the broker that coordinates a group or a transactional id (KIP-98).

Several at once from v4 on (KIP-699). The first request creates the internal topic and waits for it; Apache
Kafka answers with an error, and the client retries. Share groups (KIP-932) are not supported:
INVALID_REQUEST.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC, NO_BROKER, TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.broker.answers import Answer
from barnabas.broker.controller.auto_creation import AutoCreation
from barnabas.broker.coordinator.partitioning import partition_for
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import checked_by_handler, refusal
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.kafka.security.acls import Operation, ResourceType

#: by the key type: the topic whose partitions' leaders coordinate
_TOPICS = {0: GROUP_METADATA_TOPIC, 1: TRANSACTION_STATE_TOPIC}
#: by topic: the type of its keys
_KINDS = {GROUP_METADATA_TOPIC: ResourceType.GROUP, TRANSACTION_STATE_TOPIC: ResourceType.TRANSACTIONAL_ID}
#: from this version the answer is a list
_BATCHED_FROM = 4


def _failed(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        node_id=NO_BROKER,
        port=-1,
        error_code=error.code,
        error_message=error.message,
        coordinators=[_nowhere(key, error) for key in request.coordinator_keys],
    )


@handles(
    FindCoordinatorRequest,
    needs=[checked_by_handler("group DESCRIBE or transactional id DESCRIBE")],
    on_error=_failed,
    pieces=[Pieces("coordinator_keys", "coordinators", size=512)],
    unconfirmed="it tells what the image shows",
)
def find_coordinator(
    view: BrokerView, auto_creation: AutoCreation, context: RequestContext, request: FindCoordinatorRequest
) -> Answer[FindCoordinatorResponse]:
    topic = _TOPICS.get(request.key_type)
    if topic is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"keys of type {request.key_type} have no coordinator, groups (0) and transactional ids (1) do",
        )
    keys = request.coordinator_keys if context.api_version >= _BATCHED_FROM else [request.key]
    if not any(_may_find(context, topic, key) for key in keys):  # then the broker creates no topic either
        return _failed(request, refusal(_KINDS[topic]))
    if topic not in view.image.topics:
        return _find_after_creation(view, auto_creation, context, request, topic)
    return _find(view.image, context, request, topic)


async def _find_after_creation(
    view: BrokerView,
    auto_creation: AutoCreation,
    context: RequestContext,
    request: FindCoordinatorRequest,
    topic: str,
) -> FindCoordinatorResponse:
    errors = await auto_creation.create([topic])
    for error in errors.values():
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} cannot be made: {error.message}")
    return _find(view.image, context, request, topic)


def _find(
    image: ClusterImage, context: RequestContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse:
    if context.api_version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=[_locate(image, context, topic, key) for key in request.coordinator_keys]
        )
    found = _locate(image, context, topic, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _locate(image: ClusterImage, context: RequestContext, topic: str, key: str) -> Coordinator:
    if not _may_find(context, topic, key):
        return _nowhere(key, refusal(_KINDS[topic]))
    known = image.topics.get(topic)  # this broker's image may not show a new topic yet
    state = None
    if known is not None:
        state = image.partition(TopicPartition(topic, partition_for(key, len(known.partitions))))
    leader = None if state is None else image.brokers.get(state.leader)
    endpoint = None if leader is None else leader.endpoint(context.listener)
    if leader is None or endpoint is None:
        return _nowhere(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return Coordinator(key=key, node_id=leader.id, host=endpoint.host, port=endpoint.port)


def _may_find(context: RequestContext, topic: str, key: str) -> bool:
    return context.access.allows(Operation.DESCRIBE, _KINDS[topic], key)


def _nowhere(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_BROKER, port=-1, error_code=error.code, error_message=error.message
    )
