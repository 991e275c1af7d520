"""Metadata, DescribeTopicPartitions and DescribeCluster as a client sees them."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.server.handlers.admin.conftest import AdminBroker, Play

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import NewPartitions, NewTopic
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.image import PartitionState, TopicImage
from barnabas.broker.server.responses.topics import TopicCache
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

VERSIONS = range(MetadataRequest.versions[0], MetadataRequest.versions[1] + 1)


def request(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def codes(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_topic_in_every_version(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t", 2, 1)])
        response = await broker.ask(request("t"), version)
        assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "127.0.0.1", 9092)]
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("t", 0)
        assert [p.partition_index for p in topic.partitions] == [0, 1]
        assert {(p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes)) for p in topic.partitions} == {
            (1, (1,), (1,))
        }
        if version >= 1:
            assert response.controller_id == 1
        if version >= 2:
            assert response.cluster_id == broker.image.cluster_id
        if version >= 7:
            assert topic.partitions[0].leader_epoch == 0
        if version >= 10:
            assert topic.topic_id == broker.image.topics["t"].id

    play(scenario)


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_topic_is_made_and_answered_when_the_client_allows_it(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        response = await broker.ask(request("new", create=True), version)
        assert codes(response) == {"new": ErrorCode.NONE}
        assert len(response.topics[0].partitions) == 3
        assert "new" in broker.image.topics

    play(scenario, config=BrokerConfig(num_partitions=3))


def test_missing_topic_is_not_made_when_the_client_or_the_broker_forbids_it(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        create = broker.config.auto_create_topics_enable is False
        response = await broker.ask(request("t", "a b", create=create))
        assert codes(response) == {
            "t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert not broker.image.topics

    play(scenario)
    play(scenario, config=BrokerConfig(auto_create_topics_enable=False))


def test_topics_that_cannot_be_made_say_why_and_the_others_are_made(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        response = await broker.ask(request("fine", "a b", "x.y", "x_y", create=True))
        assert codes(response) == {
            "fine": ErrorCode.NONE,
            "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "x.y": ErrorCode.NONE,
            "x_y": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }

    play(scenario)


def test_topic_that_two_clients_miss_at_once_is_there_for_both(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        answers = await asyncio.gather(*(broker.ask(request("t", create=True)) for _ in range(5)))
        assert [codes(answer) for answer in answers] == [{"t": ErrorCode.NONE}] * 5

    play(scenario)


def test_internal_topic_is_made_with_its_own_shape_and_marked(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        response = await broker.ask(request(GROUP_METADATA_TOPIC, create=True))
        assert response.topics[0].is_internal
        assert len(response.topics[0].partitions) == 7
        assert broker.image.topic_config(GROUP_METADATA_TOPIC)["cleanup.policy"] == "compact"

    play(scenario, config=BrokerConfig(offsets_topic_num_partitions=7))


def test_all_topics_are_asked_for_by_null_and_in_v0_by_none(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("a"), NewTopic("b")])
        assert codes(await broker.ask(MetadataRequest(topics=[]), 0)).keys() == {"a", "b"}
        for version in VERSIONS[1:]:
            assert codes(await broker.ask(MetadataRequest(topics=[]), version)) == {}
            assert codes(await broker.ask(MetadataRequest(topics=None), version)).keys() == {"a", "b"}

    play(scenario)


def test_topic_named_twice_is_answered_once(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        response = await broker.ask(request("t", "t", create=True))
        assert [topic.name for topic in response.topics] == ["t"]

    play(scenario)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id_and_unknown_ids_told(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t")])
        known, unknown = broker.image.topics["t"].id, b"x" * 16
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (known, unknown)]
        response = await broker.ask(MetadataRequest(topics=topics), version)
        assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [
            ("t", known, ErrorCode.NONE),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    play(scenario)


@pytest.mark.parametrize(
    ("version", "topic"),
    [
        (10, MetadataRequestTopic(topic_id=b"x" * 16, name=None)),
        (11, MetadataRequestTopic(topic_id=b"x" * 16, name="t")),
        (11, MetadataRequestTopic(name=None)),
        (12, MetadataRequestTopic(name=None)),
    ],
)
def test_topic_named_in_no_valid_way_is_an_invalid_request(
    play: Play, version: int, topic: MetadataRequestTopic
) -> None:
    async def scenario(broker: AdminBroker) -> None:
        with pytest.raises(KafkaError) as refused:
            await broker.ask(MetadataRequest(topics=[topic]), version)
        assert refused.value.code is ErrorCode.INVALID_REQUEST

    play(scenario)


def test_leader_without_the_clients_listener_and_absent_replicas_are_told(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        assignments = [(0, [2, 1]), (1, [1, 2])]
        alone = NewTopic("alone", assignments=[(0, [2])])
        await broker.controller.topics.create([NewTopic("t", assignments=assignments), alone])
        for version, expected in ((6, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)):
            response = await broker.ask(request("t"), version)
            assert [p.error_code for p in response.topics[0].partitions] == [expected, ErrorCode.NONE]
            assert [b.node_id for b in response.brokers] == [1]
        await broker.others[0].close()
        await broker.loader.settled()
        response = await broker.ask(request("t", "alone"))
        assert [p.offline_replicas for p in response.topics[0].partitions] == [[2], [2]]
        assert response.topics[1].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE

    play(scenario, others=1)


def test_allowed_operations_are_told_to_who_asks(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        asking = request("t", create=True)
        asking.include_topic_authorized_operations = True
        asking.include_cluster_authorized_operations = True
        response = await broker.ask(asking, 9)
        # as Apache Kafka 4.2 answers without an authorizer
        assert response.topics[0].topic_authorized_operations == 3576
        assert response.cluster_authorized_operations == 8096
        missing = request("nope", "a b")
        missing.include_topic_authorized_operations = True
        response = await broker.ask(missing, 9)
        assert [topic.topic_authorized_operations for topic in response.topics] == [3576, 3576]
        silent = await broker.ask(request("t"), 9)
        assert silent.topics[0].topic_authorized_operations == -(2**31)
        assert silent.cluster_authorized_operations == -(2**31)

    play(scenario)


# --- DescribeTopicPartitions ---


def pages_request(
    *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsRequest:
    topics = [TopicRequest(name=name) for name in names]
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)


@pytest.mark.parametrize("limit", range(1, 8))
@pytest.mark.parametrize("names", [("d2", "d1", "d3"), ()], ids=["named", "all"])
def test_pages_together_hold_every_partition_once_in_order(
    play: Play, limit: int, names: tuple[str, ...]
) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("d2", 3), NewTopic("d1", 3), NewTopic("d3", 1)])
        seen, cursor = [], None
        for _ in range(8):
            page = await broker.ask(pages_request(*names, limit=limit, cursor=cursor))
            partitions = [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
            assert 1 <= len(partitions) <= limit
            seen += partitions
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [("d1", 0), ("d1", 1), ("d1", 2), ("d2", 0), ("d2", 1), ("d2", 2), ("d3", 0)]

    play(scenario)


def test_page_is_bounded_by_the_brokers_limit_too_and_never_empty(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t", 5)])
        page = await broker.ask(pages_request("t", limit=100))
        assert len(page.topics[0].partitions) == 2
        page = await broker.ask(pages_request("t", limit=-1))
        assert len(page.topics[0].partitions) == 1

    play(scenario, config=BrokerConfig(max_request_partition_size_limit=2))


def test_missing_topics_of_a_page_are_told(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        page = await broker.ask(pages_request("nope", "a b"))
        assert [(t.name, t.error_code) for t in page.topics] == [
            ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    play(scenario)


def test_missing_topic_after_the_end_of_a_page_is_on_the_next_page(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("a", 1)])
        page = await broker.ask(pages_request("a", "nope", limit=1))
        assert [topic.name for topic in page.topics] == ["a"]
        page = await broker.ask(pages_request("a", "nope", limit=1, cursor=page.next_cursor))
        assert [topic.name for topic in page.topics] == ["nope"]
        assert page.next_cursor is None

    play(scenario)


@pytest.mark.parametrize("cursor", [Cursor(topic_name="t", partition_index=-1), Cursor(topic_name="other")])
def test_cursor_that_fits_no_request_is_refused(play: Play, cursor: Cursor) -> None:
    async def scenario(broker: AdminBroker) -> None:
        with pytest.raises(KafkaError) as refused:
            await broker.ask(pages_request("t", cursor=cursor))
        assert refused.value.code is ErrorCode.INVALID_REQUEST

    play(scenario)


def test_cursor_past_the_last_partition_goes_on_with_the_next_topic(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("a", 1), NewTopic("b", 1)])
        page = await broker.ask(pages_request(cursor=Cursor(topic_name="a", partition_index=5)))
        assert [(t.name, len(t.partitions)) for t in page.topics] == [("a", 0), ("b", 1)]

    play(scenario)


def test_page_after_a_topic_that_was_deleted_meanwhile_has_all_of_the_next_topic(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("c", 3)])
        page = await broker.ask(pages_request(cursor=Cursor(topic_name="b", partition_index=2)))
        assert [(t.name, len(t.partitions)) for t in page.topics] == [("c", 3)]

    play(scenario)


# --- DescribeCluster ---


@pytest.mark.parametrize("version", [0, 1, 2])
def test_cluster_is_described(play: Play, version: int) -> None:
    async def scenario(broker: AdminBroker) -> None:
        response = await broker.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True), version
        )
        assert response.error_code == ErrorCode.NONE
        assert (response.cluster_id, response.controller_id) == (broker.image.cluster_id, 1)
        assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(1, "127.0.0.1", 9092)]
        assert response.cluster_authorized_operations == 8096

    play(scenario, others=1)


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_described(play: Play, endpoint_type: int, expected: ErrorCode) -> None:
    async def scenario(broker: AdminBroker) -> None:
        with pytest.raises(KafkaError) as refused:
            await broker.ask(DescribeClusterRequest(endpoint_type=endpoint_type))
        assert refused.value.code is expected

    play(scenario)


# --- kept answers ---


def test_kept_answers_follow_growth_recreation_and_brokers(play: Play) -> None:
    async def scenario(broker: AdminBroker) -> None:
        await broker.controller.topics.create([NewTopic("t", 1, 1)])
        before = (await broker.ask(request("t"))).topics[0]
        await broker.controller.topics.create_partitions([NewPartitions("t", 3)])
        assert len((await broker.ask(request("t"))).topics[0].partitions) == 3
        await broker.controller.topics.delete([before.topic_id])
        await broker.controller.topics.create([NewTopic("t", assignments=[(0, [1, 2])])])
        after = (await broker.ask(request("t"))).topics[0]
        assert after.topic_id != before.topic_id
        assert after.partitions[0].offline_replicas == []
        await broker.others[0].close()
        await broker.loader.settled()
        assert (await broker.ask(request("t"))).topics[0].partitions[0].offline_replicas == [2]

    play(scenario, others=1)


def test_kept_answers_do_not_pile_up() -> None:
    answers, brokers = TopicCache(), {}
    for number in range(1000):
        topic = TopicImage(f"t{number}", bytes(16), (PartitionState((1,), (1,), 1),))
        image = ClusterImage(brokers=brokers, topics={topic.name: topic})
        answers.get(image, topic, "PLAINTEXT", 12, operations=False)
    assert len(answers._made) < 200
