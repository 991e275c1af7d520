"""DeleteTopics v1-6: deletes topics by name or by id (KIP-516), within the client's quota (KIP-599).

When the broker sends the response, the metadata no longer has the topic. Brokers delete the topic's folders
later. The handler ignores the request's timeout.
"""

from __future__ import annotations

from collections import Counter

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ZERO_TOPIC_ID, TopicId
from barnabas.broker.controller.topics import TopicControl
from barnabas.broker.metadata.image import ClusterImage, TopicImage
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import checked_by_handler, refusal
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.mutations import MutationBudget
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.kafka.security.acls import Access, Operation, ResourceType

#: the first version that knows THROTTLING_QUOTA_EXCEEDED
_STRICT_SINCE = 5

#: the first version that knows the code TOPIC_DELETION_DISABLED
_DELETION_DISABLED_SINCE = 3


@handles(
    DeleteTopicsRequest,
    needs=[checked_by_handler("topic DELETE, or cluster DELETE")],
    pieces=[
        Pieces("topics", "responses", size=128, unique=True),
        Pieces("topic_names", "responses", size=128, unique=True),
    ],
    is_heavy=True,
    is_forwarded=True,
    is_audited=True,
)
async def delete_topics(
    topics: TopicControl,
    view: BrokerView,
    quotas: ClientQuotas,
    context: RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse:
    image = view.image
    found: dict[TopicId, TopicImage] = {}
    named: Counter[TopicId] = Counter()
    results: list[DeletableTopicResult] = []
    asked = Counter((wanted.name, wanted.topic_id) for wanted in _wanted(request))
    for (name, topic_id), times in asked.items():
        wanted = DeleteTopicState(name=name, topic_id=topic_id)
        try:
            topic = _find(image, wanted, context.access, times)
        except KafkaError as error:
            results.append(_refused(wanted, error))
        else:
            found[topic.id] = topic
            named[topic.id] += 1
    budget = MutationBudget(quotas, context, strict_since=_STRICT_SINCE)
    once: list[TopicId] = []
    over: dict[TopicId, KafkaError] = {}
    for topic_id, times in named.items():
        if times == 1:
            try:
                budget.spend(len(found[topic_id].partitions))
            except KafkaError as error:
                over[topic_id] = error
            else:
                once.append(topic_id)
    errors = over | await topics.delete(once)
    for topic in found.values():
        if named[topic.id] > 1:
            twice = f"the request names the topic '{topic.name}' {named[topic.id]} times"
            errors[topic.id] = KafkaError(ErrorCode.INVALID_REQUEST, twice)
        results.append(_result(topic, errors.get(topic.id), context.api_version))
    return DeleteTopicsResponse(responses=results, throttle_time_ms=budget.throttle_time_ms)


def _wanted(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def _find(image: ClusterImage, wanted: DeleteTopicState, access: Access, times: int) -> TopicImage:
    """Return the topic to delete, which the request names `times` times in the same way.

    If `wanted` has a name, the error does not tell a client whether the topic exists, unless the client may
    describe the topic. If `wanted` has the id of a topic that the client may only describe, the function adds
    the name of the topic to `wanted`.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, there is no such topic;
            TOPIC_AUTHORIZATION_FAILED, the client may not delete it; INVALID_REQUEST, `wanted` has both a
            name and an id, or neither, or the request names it several times.
    """
    if (wanted.name is None) == (wanted.topic_id == ZERO_TOPIC_ID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id, and not by both")
    if times > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the request names this topic {times} times")
    may_all = access.on_cluster(Operation.DELETE)
    if wanted.name is not None:
        if not may_all and not access.on_topic(Operation.DESCRIBE, wanted.name):
            raise refusal(ResourceType.TOPIC)
        topic = image.topics.get(wanted.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{wanted.name}'")
    else:
        topic = image.topic_by_id(wanted.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not may_all and not access.on_topic(Operation.DELETE, topic.name):
        if access.on_topic(Operation.DESCRIBE, topic.name):
            wanted.name = topic.name
        raise refusal(ResourceType.TOPIC)
    return topic


def _result(topic: TopicImage, error: KafkaError | None, version: int) -> DeletableTopicResult:
    if error is None:
        return DeletableTopicResult(name=topic.name, topic_id=topic.id)
    code = error.code
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < _DELETION_DISABLED_SINCE:
        code = ErrorCode.INVALID_REQUEST
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.id, error_code=code, error_message=error.message
    )


def _refused(wanted: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=wanted.name, topic_id=wanted.topic_id, error_code=error.code, error_message=error.message
    )
