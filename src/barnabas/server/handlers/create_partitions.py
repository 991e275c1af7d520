"""CreatePartitions v0-3: more partitions for a topic, assigned or not, or only validated (KIP-195).

Quotas (KIP-599) are left out. The request's timeout is not looked at.
"""

from __future__ import annotations

from collections import Counter

from barnabas.controller import NewPartitions
from barnabas.controller.topics import TopicControl
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.pieces import Pieces


def _failed(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[_result(name, error) for name in names])


@handles(
    CreatePartitionsRequest,
    on_error=_failed,
    pieces=[Pieces("topics", "results", size=64, unique=True)],
    is_heavy=True,
)
async def create_partitions(
    topics: TopicControl, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    once = [_parse(topic) for topic in request.topics if named[topic.name] == 1]
    errors = await topics.create_partitions(once, validate_only=request.validate_only)
    for name, times in named.items():
        if times > 1:
            twice = f"the request names the topic '{name}' {times} times"
            errors[name] = KafkaError(ErrorCode.INVALID_REQUEST, twice)
    return CreatePartitionsResponse(results=[_result(name, errors.get(name)) for name in named])


def _parse(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None if topic.assignments is None else [a.broker_ids for a in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)
