"""Requests to the controller and to any broker about topics: describe, create, delete, add partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, topic_id_to_str
from barnabas.client.admin_types import PartitionDescription, TopicDescription
from barnabas.client.brokers import Brokers, check, repeatable
from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.metadata import MetadataResponseTopic


def list_topics(brokers: Brokers) -> list[str]:
    """Return the names of all topics, with internal ones, sorted."""
    metadata = brokers.retry(lambda deadline: brokers.metadata(None, deadline))
    return sorted(topic.name for topic in metadata.topics if topic.name is not None)


def describe_topics(brokers: Brokers, names: Sequence[str]) -> list[TopicDescription]:
    """Return the topics in the order of `names`. Raises KafkaError if one does not exist."""
    metadata = brokers.retry(lambda deadline: brokers.metadata(list(dict.fromkeys(names)), deadline))
    found = {topic.name: topic for topic in metadata.topics}
    for name in names:
        check_topic(found[name].error_code, name)
    return [_described(found[name]) for name in names]


def create_topic(brokers: Brokers, topic: CreatableTopic, *, validate_only: bool) -> None:
    """Create a topic. If `validate_only` is true, the controller only checks the request.

    Raises KafkaError (TOPIC_ALREADY_EXISTS) if there is a topic with this name.
    """

    def create(connection: BrokerConnection) -> None:
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=_milliseconds(brokers), validate_only=validate_only
        )
        (result,) = connection.ask(request).topics
        check(result.error_code, topic.name, result.error_message)

    brokers.ask_controller(repeatable(create, ErrorCode.TOPIC_ALREADY_EXISTS))


def new_topic(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str] | None,
    assignments: Sequence[Sequence[int]] | None,
) -> CreatableTopic:
    """Return a topic for CreateTopics. None means the broker's default.

    `assignments` has the replicas of each partition, and replaces `partitions` and `replication_factor`.
    """
    if assignments is not None:  # they say both
        partitions = replication_factor = None
    return CreatableTopic(
        name=name,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replication_factor is None else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(assignments or ())
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def delete_topic(brokers: Brokers, name: str) -> None:
    """Delete a topic with all its records.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, there is no such topic; or the controller rejects the request.
        ClientError: no broker answers in time.
    """

    def delete(connection: BrokerConnection) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_milliseconds(brokers)
        )
        (result,) = connection.ask(request).responses
        check_topic(result.error_code, name, result.error_message)

    brokers.ask_controller(repeatable(delete, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def add_partitions(brokers: Brokers, name: str, total: int) -> None:
    """Raise the number of a topic's partitions to `total`.

    Raises KafkaError (INVALID_PARTITIONS) if the topic has `total` partitions or more already.
    """

    def add(connection: BrokerConnection) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=total, assignments=None)],
            timeout_ms=_milliseconds(brokers),
        )
        (result,) = connection.ask(request).results
        check_topic(result.error_code, name, result.error_message)

    brokers.ask_controller(repeatable(add, ErrorCode.INVALID_PARTITIONS))


def check_topic(code: int, name: str, message: str | None = None) -> None:
    """Raise KafkaError, with the topic's name, unless `code` is 0."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    check(code, name, message)


def _described(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            each.partition_index,
            None if each.leader_id == NO_BROKER else each.leader_id,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    )
    return TopicDescription(topic.name or "", topic_id_to_str(topic.topic_id), topic.is_internal, partitions)


def _milliseconds(brokers: Brokers) -> int:
    return round(1000 * brokers.timeout)
