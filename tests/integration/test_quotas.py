"""Quotas: answers with a throttle time, and connections from which the broker does not read meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.fixture
def limit(wire, request):
    """Set quotas for a new client id, and return the id."""
    client_id = request.node.name

    def set_quotas(**values: float | None) -> str:
        ops = [
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ]
        entity = [EntityData(entity_type="client-id", entity_name=client_id)]
        (result,) = wire(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)])).entries
        assert result.error_code == 0, result.error_message
        return client_id

    return set_quotas


def produce_request(topic: Any, data: bytes, acks: int = 1) -> ProduceRequest:
    records = PartitionProduceData(index=0, records=data)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[records])],
    )


def fetch_request(topic: Any, offset: int = 0, **fields: Any) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    defaults = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    return FetchRequest(
        topics=[FetchTopic(topic=topic.name, topic_id=topic.id, partitions=[wanted])], **(defaults | fields)
    )


def records_of(response: Any) -> bytes:
    return b"".join(bytes(p.records or b"") for t in response.responses for p in t.partitions)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_that_sends_too_much_is_answered_and_then_not_listened_to(
    connect, topic, batch, limit, acks
):
    client_id = limit(producer_byte_rate=1000)
    wire = connect()
    began = time.monotonic()
    answer = wire(produce_request(topic, batch(bytes(10_300)), acks), client_id=client_id)
    assert answer.responses[0].partition_responses[0].error_code == 0
    # about 300 bytes more than the window has room for, and the headers
    assert 300 <= answer.throttle_time_ms <= 700
    wire(ApiVersionsRequest(client_software_name="t", client_software_version="1"), client_id=client_id)
    assert time.monotonic() - began > answer.throttle_time_ms / 1000 - 0.1


def test_other_connections_of_the_client_and_other_clients_are_served(connect, topic, batch, limit):
    client_id = limit(producer_byte_rate=100)
    throttled, other = connect(), connect()
    answer = throttled(produce_request(topic, batch(bytes(5000))), client_id=client_id)
    assert answer.throttle_time_ms > 10_000
    answer = other(produce_request(topic, batch(b"small")), client_id="someone else")
    assert answer.throttle_time_ms == 0
    answer = other(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), client_id=client_id)
    assert answer.throttle_time_ms == 0


def test_without_acks_the_connection_is_not_listened_to_either(connect, topic, batch, limit):
    client_id = limit(producer_byte_rate=1000)
    wire = connect()
    began = time.monotonic()
    wire.send(produce_request(topic, batch(bytes(10_300)), 0), client_id=client_id)
    wire(ApiVersionsRequest(client_software_name="t", client_software_version="1"), client_id=client_id)
    assert time.monotonic() - began > 0.25


def test_a_throttled_fetch_is_empty_and_loses_nothing_of_its_session(connect, topic, batch, produce, limit):
    client_id = limit(consumer_byte_rate=1000)
    for number in range(3):
        produce(topic, batch(bytes([number]) * 9000))
    wire = connect()
    session = wire(fetch_request(topic, session_epoch=0, max_bytes=9200), client_id=client_id)
    assert session.throttle_time_ms == 0
    assert session.session_id
    assert len(records_of(session)) > 9000
    wanted = [
        FetchTopic(
            topic=topic.name,
            topic_id=topic.id,
            partitions=[FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)],
        )
    ]
    throttled = wire(
        FetchRequest(
            replica_id=-1,
            max_bytes=1 << 20,
            min_bytes=1,
            session_id=session.session_id,
            session_epoch=1,
            topics=wanted,
        ),
        client_id=client_id,
    )
    assert throttled.error_code == 0
    assert throttled.session_id == session.session_id
    assert throttled.responses == []
    # two of the batches take 18 s at that rate, and the window is 10: up to 8 s may pass between the fetches
    assert 0 < throttled.throttle_time_ms < 10_000
    limit(consumer_byte_rate=None)
    again = connect()(
        FetchRequest(
            replica_id=-1, max_bytes=1 << 20, min_bytes=1, session_id=session.session_id, session_epoch=2
        ),
        client_id=client_id,
    )
    assert again.error_code == 0
    assert len(records_of(again)) > 9000


def test_a_throttled_first_fetch_opens_no_session(connect, topic, batch, produce, limit):
    client_id = limit(consumer_byte_rate=100)
    produce(topic, batch(bytes(2000)))
    wire = connect()
    large = wire(fetch_request(topic), client_id=client_id)
    assert len(records_of(large)) > 2000  # a batch larger than the window, when nothing else was read
    throttled = connect()(fetch_request(topic, session_epoch=0), client_id=client_id)
    assert throttled.throttle_time_ms > 5000
    assert (throttled.session_id, throttled.responses) == (0, [])


def test_time_on_the_loop_is_shared_by_percents(connect, topic, batch, limit):
    client_id = limit(request_percentage=0.0001)  # 10 µs of a window: less than one request takes
    wire = connect()
    throttled = 0
    for _ in range(20):
        answer = wire(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), client_id=client_id)
        throttled = max(throttled, answer.throttle_time_ms)
        if throttled:
            break
    assert 0 < throttled <= 1000  # a window at most


def test_replicas_are_not_metered(connect, topic, batch, produce, limit):
    client_id = limit(consumer_byte_rate=1)
    produce(topic, batch(bytes(2000)))
    wire = connect()
    for _ in range(3):
        answer = wire(fetch_request(topic, replica_id=7), 12, client_id=client_id)
        assert answer.throttle_time_ms == 0


def test_librdkafka_hears_of_it_and_loses_nothing(barnabas_broker, limit, topic):
    client_id = limit(producer_byte_rate=20_000)
    throttled: list[float] = []
    delivered: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": barnabas_broker.bootstrap_servers,
            "client.id": client_id,
            "linger.ms": 500,
            "batch.size": 500_000,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    for records in (9, 1):  # at first one request of more than a window has room for
        for _ in range(records):
            producer.produce(topic.name, bytes(25_000), on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(60) == 0
    assert delivered == [None] * 10
    assert max(throttled) > 0


def test_topics_over_the_quota_are_refused_with_the_time_to_wait(wire, limit):
    client_id = limit(controller_mutation_rate=0.1)  # 1.1 at once
    topics = [
        CreatableTopic(name=f"{client_id[:40]}-{number}", num_partitions=partitions, replication_factor=1)
        for number, partitions in enumerate((1, 6, 1))
    ]
    answer = wire(CreateTopicsRequest(topics=topics), client_id=client_id)
    assert [topic.error_code for topic in sorted(answer.topics, key=lambda topic: topic.name)] == [
        0,
        0,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert 0 < answer.throttle_time_ms <= 59_000
