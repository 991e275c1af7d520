"""CreatePartitions v0-3: adds partitions to topics, or only validates the request (KIP-195)."""

from __future__ import annotations

from collections import Counter

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.controller import NewPartitions
from barnabas.broker.controller.topics import TopicControl
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.mutations import MutationBudget
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.kafka.security.acls import Operation

#: the first version that knows THROTTLING_QUOTA_EXCEEDED
_STRICT_SINCE = 3


@handles(
    CreatePartitionsRequest,
    needs=[each_topic(Operation.ALTER, "topics", "results")],
    pieces=[Pieces("topics", "results", size=64, unique=True)],
    is_heavy=True,
    is_forwarded=True,
    is_audited=True,
)
async def create_partitions(
    topics: TopicControl,
    view: BrokerView,
    quotas: ClientQuotas,
    context: RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    budget = MutationBudget(quotas, context, strict_since=_STRICT_SINCE, validate_only=request.validate_only)
    image = view.image
    once: list[NewPartitions] = []
    over: dict[str, KafkaError] = {}
    for topic in request.topics:
        if named[topic.name] == 1:
            known = image.topics.get(topic.name)
            try:
                budget.spend(0 if known is None else max(0, topic.count - len(known.partitions)))
            except KafkaError as error:
                over[topic.name] = error
            else:
                once.append(_parse(topic))
    errors = over | await topics.create_partitions(once, validate_only=request.validate_only)
    for name, times in named.items():
        if times > 1:
            twice = f"the request names the topic '{name}' {times} times"
            errors[name] = KafkaError(ErrorCode.INVALID_REQUEST, twice)
    return CreatePartitionsResponse(
        results=[_result(name, errors.get(name)) for name in named], throttle_time_ms=budget.throttle_time_ms
    )


def _parse(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
