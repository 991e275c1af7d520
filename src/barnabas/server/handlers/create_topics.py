"""CreateTopics v2-7: topics with partitions counted or assigned, with settings, or only validated (KIP-4, KIP-464,
KIP-525).

The answer has the new topic's settings as DescribeConfigs would. Quotas of KIP-599 are not served.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.controller import NewTopic
from barnabas.errors import ErrorCode, KafkaError
from barnabas.metadata.image import TopicImage
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.server.config_listing import list_topic_configs
from barnabas.server.context import RequestContext
from barnabas.server.handlers import handles

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


def _failed(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_refused(name, error) for name in names])


@handles(CreateTopicsRequest, on_error=_failed)
async def create_topics(
    broker: Broker, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if named[topic.name] == 1]
    outcomes: dict[str, TopicImage | KafkaError] = {}
    new_topics = []
    for topic in once:
        try:
            new_topics.append(_parse(topic, context.api_version))
        except KafkaError as error:
            outcomes[topic.name] = error
    outcomes |= await broker.controller.create_topics(new_topics, validate_only=request.validate_only)
    results = []
    for name, times in named.items():
        if times > 1:
            twice = KafkaError(ErrorCode.INVALID_REQUEST, f"the request names the topic '{name}' {times} times")
            results.append(_refused(name, twice))
            continue
        outcome = outcomes[name]
        if isinstance(outcome, KafkaError):
            results.append(_refused(name, outcome))
        else:
            results.append(_created(broker, outcome, _parse_configs(once, name)))
    return CreateTopicsResponse(topics=results)


def _parse(topic: CreatableTopic, version: int) -> NewTopic:
    if len({config.name for config in topic.configs}) < len(topic.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"'{topic.name}' is given a setting twice")
    if version < 4 and not topic.assignments and -1 in (topic.num_partitions, topic.replication_factor):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "the default number of partitions and replicas needs version 4 (KIP-464)"
        )
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )
