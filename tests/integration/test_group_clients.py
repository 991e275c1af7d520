"""One group with members of different client libraries."""

from __future__ import annotations

import asyncio
import gc
import uuid

import pytest
from tests.integration.group_members import CLIENTS, Member, stop_all, wait

PARTITIONS = 6


@pytest.fixture
def topic(make_topic):
    return make_topic(partitions=PARTITIONS).name


@pytest.fixture
def group_id():
    return uuid.uuid4().hex


@pytest.fixture
def servers(barnabas_broker):
    return barnabas_broker.bootstrap_servers


def are_shared(members):
    parts = [member.partitions for member in members]
    everything = sorted(partition for part in parts for partition in part)
    return everything == list(range(PARTITIONS)) and all(parts)


def test_clients_of_three_makers_share_one_group(servers, topic, group_id):
    members: list[Member] = []
    try:
        for client in CLIENTS.values():
            members.append(Member(lambda client=client: client(servers, group_id, topic, "range"), []))
            wait(lambda: are_shared(members), *members)
        assert [len(member.partitions) for member in members] == [2, 2, 2]
    finally:
        stop_all(members)


def test_commit_of_one_client_is_where_the_next_goes_on(barnabas_broker, servers, topic, group_id):
    from aiokafka import AIOKafkaConsumer
    from confluent_kafka import Consumer
    from kafka import KafkaConsumer

    barnabas_broker.create_topic(one := f"{topic}-one")
    barnabas_broker.produce(one, *(b"%d" % number for number in range(6)))
    settings = {"bootstrap_servers": servers, "group_id": group_id, "auto_offset_reset": "earliest"}

    consumer = KafkaConsumer(one, enable_auto_commit=False, max_poll_records=2, **settings)
    values = []
    while len(values) < 2:
        values += [r.value for batch in consumer.poll(timeout_ms=60_000).values() for r in batch]
    consumer.commit()
    consumer.close()
    assert values == [b"0", b"1"]

    async def read_on():
        consumer = AIOKafkaConsumer(one, enable_auto_commit=False, **settings)
        await consumer.start()
        found = [(await consumer.getone()).value for _ in range(2)]
        await consumer.commit()
        await consumer.stop()
        return found

    assert asyncio.run(read_on()) == [b"2", b"3"]

    consumer = Consumer({name.replace("_", "."): value for name, value in settings.items()})
    consumer.subscribe([one])
    values = []
    while len(values) < 2:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    assert values == [b"4", b"5"]
    gc.collect()
