"""CreateTopics v2-7: creates topics, or only validates the request (KIP-4, KIP-464, KIP-525).

A request has a number of partitions or an assignment, and settings. The client's quota limits the number of
new partitions (KIP-599). The response has the new topic's settings. The handler ignores the request's
timeout, because the decision takes milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config.describe import Description
from barnabas.broker.controller import NewTopic
from barnabas.broker.controller.topics import TopicControl, check_partition_count
from barnabas.broker.metadata.image import TopicImage
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import checked_by_handler, each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.config_listing import SettingDescriptions
from barnabas.broker.server.responses.mutations import MutationBudget
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.kafka.security.acls import Access, Operation

#: the first version that knows THROTTLING_QUOTA_EXCEEDED
_STRICT_SINCE = 6


def _check(request: CreateTopicsRequest) -> None:
    """Check that the whole request does not create too many partitions.

    The dispatcher calls this before it divides the request into pieces.

    Raises:
        KafkaError: POLICY_VIOLATION, the request would create too many partitions.
    """
    check_partition_count(
        sum(len(topic.assignments) or max(1, topic.num_partitions) for topic in request.topics)
    )


@handles(
    CreateTopicsRequest,
    needs=[
        each_topic(Operation.CREATE, "topics", unless=Operation.CREATE),
        checked_by_handler("topic DESCRIBE_CONFIGS for the settings in the response"),
    ],
    pieces=[Pieces("topics", size=64, unique=True, check=_check)],
    is_heavy=True,
    is_forwarded=True,
    is_audited=True,
)
async def create_topics(
    topics: TopicControl,
    settings: SettingDescriptions,
    view: BrokerView,
    quotas: ClientQuotas,
    context: RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    once, results = [], []
    budget = MutationBudget(quotas, context, strict_since=_STRICT_SINCE, validate_only=request.validate_only)
    for topic in request.topics:
        if named[topic.name] == 1:
            count = len(topic.assignments) or topic.num_partitions
            try:
                budget.spend(count if count > 0 else view.config.num_partitions)
            except KafkaError as error:
                results.append(_refused(topic.name, error))
            else:
                once.append(_parse(topic))
    plain: list[CreatableTopicConfigs] = []
    outcomes = await topics.create(once, validate_only=request.validate_only)
    for new in once:
        outcome = outcomes[new.name]
        if isinstance(outcome, KafkaError):
            results.append(_refused(new.name, outcome))
        else:
            results.append(_created(settings, context.access, outcome, new, plain))
    for name, times in named.items():
        if times > 1:
            twice = f"the request names the topic '{name}' {times} times"
            results.append(_refused(name, KafkaError(ErrorCode.INVALID_REQUEST, twice)))
    return CreateTopicsResponse(topics=results, throttle_time_ms=budget.throttle_time_ms)


def _parse(topic: CreatableTopic) -> NewTopic:
    configs = {config.name: config.value for config in topic.configs}
    # A second value does not make up for a missing one, as in Kafka.
    configs |= {config.name: None for config in topic.configs if config.value is None}
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        configs,
    )


def _created(
    settings: SettingDescriptions,
    access: Access,
    topic: TopicImage,
    asked: NewTopic,
    plain: list[CreatableTopicConfigs],
) -> CreatableTopicResult:
    """Return the result for a created topic.

    If the client may not describe the settings of the topic, `topic_config_error_code` of the result is
    TOPIC_AUTHORIZATION_FAILED. The result then has no settings, and -1 as the number of partitions and as the
    replication factor.

    Args:
        settings: describes the settings of topics.
        access: permissions of the client.
        topic: the created topic.
        asked: the topic as the client asked for it.
        plain: settings of a topic for which the client gave no settings. The first call for a topic without
            given settings fills the list. Later calls use it again.
    """
    if not access.on_topic(Operation.DESCRIBE_CONFIGS, topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=None,
        )
    texts = {name: text for name, text in asked.configs.items() if text is not None}
    configs = plain if not texts else []
    if not configs:
        configs += _listed(settings.of_new_topic(texts))
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=configs,
    )


def _listed(descriptions: Iterable[Description]) -> Iterator[CreatableTopicConfigs]:
    for setting, text, source, _ in descriptions:
        yield CreatableTopicConfigs(
            name=setting.name, value=text, config_source=source, is_sensitive=setting.sensitive
        )


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
