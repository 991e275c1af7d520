"""FindCoordinator v0-6: returns the coordinator of a group, a transactional id or a share partition (KIP-98).

From v4 on a request can ask for several coordinators (KIP-699). If the internal topic does not exist, the
broker creates it and then answers. (Apache Kafka returns an error, and the client retries.) From v6 on
brokers can ask for share partitions, if the cluster uses the feature `share.version` (KIP-932). The keys are
`GROUP:TOPIC_ID:PARTITION`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import (
    GROUP_METADATA_TOPIC,
    NO_BROKER,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.controller.auto_creation import AutoCreation
from barnabas.broker.coordinator.partitioning import partition_for
from barnabas.broker.metadata.features import SHARE_VERSION
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
from barnabas.kafka.security.acls import CLUSTER_NAME, Operation, ResourceType


class _Kind(NamedTuple):
    """A type of coordinator keys: groups, transactional ids or share partitions."""

    #: the internal topic; the leaders of its partitions are the coordinators
    topic: str
    #: operation that the client needs permission for
    operation: Operation
    resource: ResourceType
    #: returns the name of the resource for a key
    name_of: Callable[[str], str] = str
    #: pattern of valid keys; None if all keys are valid
    keys: re.Pattern[str] | None = None


_SHARE_PARTITIONS = 2
_KINDS = {
    0: _Kind(GROUP_METADATA_TOPIC, Operation.DESCRIBE, ResourceType.GROUP),
    1: _Kind(TRANSACTION_STATE_TOPIC, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    _SHARE_PARTITIONS: _Kind(
        SHARE_GROUP_STATE_TOPIC,
        Operation.CLUSTER_ACTION,
        ResourceType.CLUSTER,
        lambda _key: CLUSTER_NAME,
        re.compile(r".+:[A-Za-z0-9_-]{22}:[0-9]{1,10}", re.DOTALL),
    ),
}
#: the first version whose requests and responses have several coordinators
_BATCHED_FROM = 4
_SHARE_PARTITIONS_FROM = 6


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
    needs=[
        checked_by_handler(
            "group DESCRIBE, transactional id DESCRIBE, or for share partitions cluster CLUSTER_ACTION"
        )
    ],
    on_error=_failed,
    pieces=[Pieces("coordinator_keys", "coordinators", size=512)],
    unconfirmed="it tells what the image shows",
)
def find_coordinator(
    view: BrokerView, auto_creation: AutoCreation, context: RequestContext, request: FindCoordinatorRequest
) -> MaybeAwaitable[FindCoordinatorResponse]:
    kind = _kind_of(view, context, request)
    keys = request.coordinator_keys if context.api_version >= _BATCHED_FROM else [request.key]
    if not any(_may_find(context, kind, key) for key in keys):  # then the broker creates no topic either
        return _failed(request, refusal(kind.resource))
    if kind.topic not in view.image.topics:
        return _find_after_creation(view, auto_creation, context, request, kind)
    return _find(view.image, context, request, kind)


def _kind_of(view: BrokerView, context: RequestContext, request: FindCoordinatorRequest) -> _Kind:
    kind = _KINDS.get(request.key_type)
    if request.key_type == _SHARE_PARTITIONS and (
        context.api_version < _SHARE_PARTITIONS_FROM or view.image.features.level(SHARE_VERSION) < 1
    ):
        kind = None
    if kind is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"keys of type {request.key_type} have no coordinator, groups (0) and transactional ids (1) do",
        )
    return kind


async def _find_after_creation(
    view: BrokerView,
    auto_creation: AutoCreation,
    context: RequestContext,
    request: FindCoordinatorRequest,
    kind: _Kind,
) -> FindCoordinatorResponse:
    errors = await auto_creation.create([kind.topic])
    for error in errors.values():
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{kind.topic} cannot be created: {error.message}"
        )
    return _find(view.image, context, request, kind)


def _find(
    image: ClusterImage, context: RequestContext, request: FindCoordinatorRequest, kind: _Kind
) -> FindCoordinatorResponse:
    if context.api_version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=[_locate(image, context, kind, key) for key in request.coordinator_keys]
        )
    found = _locate(image, context, kind, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _locate(image: ClusterImage, context: RequestContext, kind: _Kind, key: str) -> Coordinator:
    if not _may_find(context, kind, key):
        return _nowhere(key, refusal(kind.resource))
    if kind.keys is not None and not kind.keys.fullmatch(key):
        return _nowhere(key, KafkaError(ErrorCode.INVALID_REQUEST, "a key is GROUP:TOPIC_ID:PARTITION"))
    known = image.topics.get(kind.topic)  # this broker's image may not show a new topic yet
    state = None
    if known is not None:
        state = image.partition(TopicPartition(kind.topic, partition_for(key, len(known.partitions))))
    leader = None if state is None else image.brokers.get(state.leader)
    endpoint = None if leader is None else leader.endpoint(context.listener)
    if leader is None or endpoint is None:
        return _nowhere(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return Coordinator(key=key, node_id=leader.id, host=endpoint.host, port=endpoint.port)


def _may_find(context: RequestContext, kind: _Kind, key: str) -> bool:
    return context.access.allows(kind.operation, kind.resource, kind.name_of(key))


def _nowhere(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_BROKER, port=-1, error_code=error.code, error_message=error.message
    )
