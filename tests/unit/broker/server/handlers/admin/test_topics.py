"""CreateTopics, DeleteTopics and CreatePartitions as a client sees them, in every version."""

from __future__ import annotations

import pytest
from tests.unit.broker.server.handlers.admin.conftest import AdminBroker, Play

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import NewTopic
from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.kafka.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest


def versions(request: type) -> range:
    low, high = request.versions  # type: ignore[attr-defined]
    return range(low, high + 1)


def creatable(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )


@pytest.mark.parametrize("version", versions(CreateTopicsRequest))
def test_topics_are_made_in_every_version(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        topics = [creatable("good", 3, retention_ms="5"), creatable("bad", 0)]
        response = await broker.ask(CreateTopicsRequest(topics=topics), version)
        good, bad = response.topics
        assert (good.name, good.error_code, good.error_message) == ("good", 0, None)
        assert (bad.name, bad.error_code) == ("bad", ErrorCode.INVALID_PARTITIONS)
        assert "at least 1" in bad.error_message
        if version >= 5:
            assert (good.num_partitions, good.replication_factor) == (3, 1)
            configs = {config.name: config for config in good.configs}
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
            assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
            assert (bad.num_partitions, bad.configs) == (-1, [])
        if version >= 7:
            assert good.topic_id == broker.image.topics["good"].id

    play(scenario)


def test_topic_that_is_only_validated_is_described_and_not_made(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        request = CreateTopicsRequest(topics=[creatable("t", -1, -1, retention_ms="5")], validate_only=True)
        (result,) = (await broker.ask(request)).topics
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)
        assert {c.name: c.value for c in result.configs}["retention.ms"] == "5"
        assert not broker.image.topics

    play(scenario, config=BrokerConfig(num_partitions=4))


def test_topic_is_made_as_assigned(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        topic = creatable("t", -1, -1)
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=1, broker_ids=[2]),
            CreatableReplicaAssignment(partition_index=0, broker_ids=[1]),
        ]
        await broker.ask(CreateTopicsRequest(topics=[topic]))
        assert [state.replicas for state in broker.image.topics["t"].partitions] == [(1,), (2,)]

    play(scenario, others=1)


def test_topic_named_twice_is_refused_and_the_others_are_made(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        topics = [creatable("twice"), creatable("once"), creatable("twice")]
        response = await broker.ask(CreateTopicsRequest(topics=topics))
        assert {t.name: t.error_code for t in response.topics} == {
            "once": ErrorCode.NONE,
            "twice": ErrorCode.INVALID_REQUEST,
        }
        assert set(broker.image.topics) == {"once"}

    play(scenario)


def test_first_error_of_a_new_topic_is_the_one_that_apache_kafka_finds_first(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        null = creatable("null", retention_ms="5")
        null.configs.insert(0, CreatableTopicConfig(name="retention.ms", value=None))
        topics = [creatable("sizes", 0, 0), creatable("settings", 0, 0, retention_ms="soon"), null]
        response = await broker.ask(CreateTopicsRequest(topics=topics))
        assert {t.name: t.error_code for t in response.topics} == {
            "sizes": ErrorCode.INVALID_REPLICATION_FACTOR,
            "settings": ErrorCode.INVALID_CONFIG,
            "null": ErrorCode.INVALID_CONFIG,
        }

    play(scenario)


def test_topic_cannot_have_the_name_of_kafkas_metadata(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        response = await broker.ask(CreateTopicsRequest(topics=[creatable("__cluster_metadata")]))
        assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST
        assert not broker.image.topics

    play(scenario)


@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
def test_topics_are_deleted_by_name_in_every_version(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t"), NewTopic("kept")])
        names = ["t", "nope"]
        request = (
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])
            if version >= 6
            else DeleteTopicsRequest(topic_names=names)
        )
        response = await broker.ask(request, version)
        assert {r.name: r.error_code for r in response.responses} == {
            "t": ErrorCode.NONE,
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert set(broker.image.topics) == {"kept"}

    play(scenario)


def test_topics_are_deleted_by_id(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        known, unknown = broker.image.topics["t"].id, b"x" * 16
        states = [DeleteTopicState(topic_id=known), DeleteTopicState(topic_id=unknown)]
        response = await broker.ask(DeleteTopicsRequest(topics=states))
        assert {(r.name, r.topic_id, r.error_code) for r in response.responses} == {
            ("t", known, ErrorCode.NONE),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        }
        assert not broker.image.topics

    play(scenario)


def test_topic_to_delete_must_be_named_once_and_in_one_way(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        topic_id = broker.image.topics["t"].id
        for states in (
            [DeleteTopicState(name="t", topic_id=topic_id)],
            [DeleteTopicState()],
            [DeleteTopicState(name="t"), DeleteTopicState(name="t")],
            [DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic_id)],
        ):
            response = await broker.ask(DeleteTopicsRequest(topics=states))
            assert {r.error_code for r in response.responses} == {ErrorCode.INVALID_REQUEST}
        assert "t" in broker.image.topics

    play(scenario)


def test_missing_topic_that_a_deletion_names_twice_is_answered_once(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        states = [DeleteTopicState(name="nope"), DeleteTopicState(topic_id=b"x" * 16)] * 2
        response = await broker.ask(DeleteTopicsRequest(topics=states))
        assert [(r.name, r.error_code) for r in response.responses] == [
            ("nope", ErrorCode.INVALID_REQUEST),
            (None, ErrorCode.INVALID_REQUEST),
        ]

    play(scenario)


@pytest.mark.parametrize(
    ("version", "expected"),
    [(1, ErrorCode.INVALID_REQUEST), (2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_forbidden_deletion_is_told_by_a_code_the_client_knows(
    play: Play, version: int, expected: ErrorCode
) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        response = await broker.ask(DeleteTopicsRequest(topic_names=["t"]), version)
        assert response.responses[0].error_code == expected
        assert "t" in broker.image.topics

    play(scenario, config=BrokerConfig(delete_topic_enable=False))


@pytest.mark.parametrize("version", versions(CreatePartitionsRequest))
def test_partitions_are_added_in_every_version(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t", 2, 1)])
        assigned = [CreatePartitionsAssignment(broker_ids=[1])]
        topics = [
            CreatePartitionsTopic(name="t", count=3, assignments=assigned),
            CreatePartitionsTopic(name="nope", count=3, assignments=None),
        ]
        response = await broker.ask(CreatePartitionsRequest(topics=topics), version)
        assert {r.name: r.error_code for r in response.results} == {
            "t": ErrorCode.NONE,
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert len(broker.image.topics["t"].partitions) == 3

    play(scenario)


def test_topic_grown_twice_in_one_request_is_refused(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t", 2, 1)])
        topics = [CreatePartitionsTopic(name="t", count=n, assignments=None) for n in (3, 4)]
        (result,) = (await broker.ask(CreatePartitionsRequest(topics=topics))).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert len(broker.image.topics["t"].partitions) == 2

    play(scenario)


@pytest.mark.parametrize(
    "request_",
    [
        CreateTopicsRequest(topics=[creatable("a"), creatable("b")]),
        DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(topic_id=b"x" * 16)]),
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a"), CreatePartitionsTopic(name="b")]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_error_of_the_whole_request_is_told_for_each_topic(request_: object) -> None:
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    answer = load()[request_.api_key].on_error(request_, error)  # type: ignore[attr-defined]
    results = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
    assert [result.error_code for result in results] == [ErrorCode.NOT_CONTROLLER] * 2


@pytest.mark.parametrize(
    ("code", "directories"),
    [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, []), (ErrorCode.KAFKA_STORAGE_ERROR, [56])],
)
def test_client_that_may_not_see_log_directories_gets_none(code: ErrorCode, directories: list[int]) -> None:
    """Before v3 there is no other place for the error, and clients know what none means."""
    request = DescribeLogDirsRequest()
    answer = load()[request.api_key].on_error(request, KafkaError(code))
    assert (answer.error_code, [each.error_code for each in answer.results]) == (code, directories)


def test_error_of_all_reassignments_is_told_for_each_partition() -> None:
    """Kafka's client counts the partitions of the answer, and otherwise reports only
    that there are too few.
    """
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=[1]) for index in (0, 1)],
            )
            for name in ("a", "b")
        ]
    )
    answer = load()[request.api_key].on_error(request, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"))
    assert (answer.error_code, answer.error_message) == (ErrorCode.REQUEST_TIMED_OUT, "too late")
    assert [
        (topic.name, partition.partition_index, partition.error_code, partition.error_message)
        for topic in answer.responses
        for partition in topic.partitions
    ] == [(name, index, ErrorCode.REQUEST_TIMED_OUT, "too late") for name in ("a", "b") for index in (0, 1)]
