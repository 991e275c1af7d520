"""One group of consumers written in different languages, and each client's own way with groups."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import uuid

import pytest

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


class InThread:
    """A blocking consumer, polled in a thread of its own."""

    def __init__(self, open_consumer):
        self.partitions: set[int] = set()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(open_consumer,))
        self._thread.start()

    def _run(self, open_consumer):
        try:
            poll, partitions, close = open_consumer()
            try:
                while not self._stop.is_set():
                    poll()
                    self.partitions = partitions()
            finally:
                close()
        except BaseException as error:
            self.failure = error

    def stop(self):
        self._stop.set()
        self._thread.join(30)
        assert self.failure is None, self.failure


def librdkafka(servers, topic, group_id):
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group_id,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": 100,
        }
    )
    consumer.subscribe([topic])
    return (
        lambda: consumer.poll(0.1),
        lambda: {p.partition for p in consumer.assignment()},
        consumer.close,
    )


def kafka_python(servers, topic, group_id):
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=group_id, heartbeat_interval_ms=100)
    return (
        # Not shorter: a poll that times out while the member is joining can lose the assignment (3.0.12).
        lambda: consumer.poll(timeout_ms=1500),
        lambda: {p.partition for p in consumer.assignment()},
        consumer.close,
    )


def aiokafka(servers, topic, group_id):
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    loop = asyncio.new_event_loop()

    async def start():
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group_id,
            heartbeat_interval_ms=100,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        await consumer.start()
        return consumer

    consumer = loop.run_until_complete(start())

    def close():
        loop.run_until_complete(consumer.stop())
        loop.close()

    return (
        lambda: loop.run_until_complete(consumer.getmany(timeout_ms=100)),
        lambda: {p.partition for p in consumer.assignment()},
        close,
    )


CLIENTS = [librdkafka, kafka_python, aiokafka]


def wait(condition, *members, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        state = [(member.partitions, member.failure) for member in members]
        assert time.monotonic() < deadline and all(failure is None for _, failure in state), state
        time.sleep(0.02)


def are_shared(members):
    parts = [member.partitions for member in members]
    everything = sorted(partition for part in parts for partition in part)
    return everything == list(range(PARTITIONS)) and all(parts)


@pytest.mark.parametrize("client", CLIENTS)
def test_two_members_share_and_the_last_takes_all(servers, topic, group_id, client):
    members = [InThread(lambda: client(servers, topic, group_id)) for _ in range(2)]
    try:
        wait(lambda: are_shared(members), *members)
        members.pop().stop()
        wait(lambda: are_shared(members), *members)
    finally:
        for member in members:
            member.stop()


def test_clients_of_three_makers_share_one_group(servers, topic, group_id):
    members = []
    try:
        for client in CLIENTS:
            members.append(InThread(lambda client=client: client(servers, topic, group_id)))
            wait(lambda: are_shared(members), *members)
        assert [len(member.partitions) for member in members] == [2, 2, 2]
    finally:
        for member in members:
            member.stop()


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
        values += [r.value for batch in consumer.poll(timeout_ms=500).values() for r in batch]
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
