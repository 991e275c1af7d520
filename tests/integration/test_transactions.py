"""Transactions with the usual clients: atomic, exactly once, also when the broker is killed."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing import BarnabasBroker

SECONDS = 60
#: seconds after which a producer that knows no end is given up for another
GIVE_UP = 20


@pytest.fixture
def servers(barnabas_broker):
    return barnabas_broker.bootstrap_servers


@pytest.fixture
def name(make_topic):
    return make_topic(3).name


def transactional(servers, transactional_id=None, **settings):
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id or uuid.uuid4().hex,
            "log_level": 0,
            **settings,
        }
    )
    producer.init_transactions(SECONDS)
    return producer


def consumer(servers, group=None, **settings):
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group or uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
            **settings,
        }
    )


def everything(servers, topic, partitions, **settings):
    """Return all values up to the end of each partition for this reader, by partition."""
    reader = consumer(servers, **settings)
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found = {index: [] for index in range(partitions)}
    at_end = set()
    while len(at_end) < partitions:
        message = reader.poll(SECONDS)
        assert message is not None, f"{at_end} of {partitions} partitions ended"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            at_end.add(message.partition())
        else:
            found[message.partition()].append(message.value())
    reader.close()
    return found


def test_readers_of_committed_records_see_whole_transactions_alone(servers, name):
    producer = transactional(servers)
    expected = {0: [], 1: [], 2: []}
    for number in range(8):
        producer.begin_transaction()
        for index in range(6):
            value = b"%d-%d" % (number, index)
            producer.produce(name, value, partition=index % 3)
            if number % 3:
                expected[index % 3].append(value)
        producer.flush(SECONDS)
        if number % 3:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)
    assert everything(servers, name, 3) == expected
    uncommitted = everything(servers, name, 3, **{"isolation.level": "read_uncommitted"})
    assert [len(values) for values in uncommitted.values()] == [16, 16, 16]


def test_open_transaction_holds_back_what_comes_after_it(servers, name):
    producer = transactional(servers)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(SECONDS)
    plain = Producer({"bootstrap.servers": servers})
    plain.produce(name, b"after", partition=0)
    plain.flush(SECONDS)
    assert everything(servers, name, 3)[0] == []
    producer.commit_transaction(SECONDS)
    assert everything(servers, name, 3)[0] == [b"open", b"after"]


def test_consumer_that_waits_gets_the_records_with_the_commit(servers, name):
    reader = consumer(servers, **{"enable.partition.eof": False, "fetch.wait.max.ms": 50_000})
    reader.assign([TopicPartition(name, 0, 0)])
    producer = transactional(servers)
    producer.begin_transaction()
    producer.produce(name, b"v", partition=0)
    producer.flush(SECONDS)
    assert reader.poll(0.3) is None
    producer.commit_transaction(SECONDS)
    assert reader.poll(SECONDS).value() == b"v"  # long before its fetch would end by itself
    reader.close()


def test_successor_fences_the_producer_before(servers, name):
    old = transactional(servers, "one-of-a-kind")
    old.begin_transaction()
    old.produce(name, b"zombie", partition=0)
    old.flush(SECONDS)
    new = transactional(servers, "one-of-a-kind")
    with pytest.raises(KafkaException) as error:
        old.commit_transaction(SECONDS)
    assert error.value.args[0].fatal()
    new.begin_transaction()
    new.produce(name, b"alive", partition=0)
    new.commit_transaction(SECONDS)
    assert everything(servers, name, 3)[0] == [b"alive"]


def test_timeout_above_the_cap_is_refused(servers):
    with pytest.raises(KafkaException) as error:
        transactional(servers, **{"transaction.timeout.ms": 1_000_000})
    assert error.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def transform(servers, source, target, group, until, transactional_id=None):
    """Consume, transform and produce each record once, until `until` records have been read."""
    producer = transactional(servers, transactional_id)
    reader = consumer(servers, group, **{"enable.partition.eof": False})
    reader.subscribe([source])
    seen = 0
    while seen < until:
        messages = [m for m in reader.consume(20, 5) if not m.error()]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value().upper(), partition=0)
        position = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(
            [p for p in position if p.offset >= 0], reader.consumer_group_metadata(), SECONDS
        )
        if seen % 3 == 1:  # now and then one fails, and is done again
            producer.abort_transaction(SECONDS)
            for place in reader.committed(reader.assignment(), SECONDS):
                place.offset = max(place.offset, 0)
                reader.seek(place)
            seen += 1
            until += 1
            continue
        producer.commit_transaction(SECONDS)
        seen += len(messages)
    reader.close()


def test_consume_transform_produce_is_exactly_once(servers, make_topic):
    source, target = make_topic(2).name, make_topic(1).name
    plain = Producer({"bootstrap.servers": servers})
    for number in range(100):
        plain.produce(source, b"v%d" % number, partition=number % 2)
    plain.flush(SECONDS)
    transform(servers, source, target, uuid.uuid4().hex, 100)
    assert sorted(everything(servers, target, 1)[0]) == sorted(b"V%d" % number for number in range(100))


def test_aiokafka(servers, name):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as Partition

    group = uuid.uuid4().hex

    async def scenario():
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=uuid.uuid4().hex)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(name, b"kept", partition=0)
            await producer.send_offsets_to_transaction({Partition(name, 1): 7}, group)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(name, b"dropped", partition=0)
                await producer.send_offsets_to_transaction({Partition(name, 1): 9}, group)
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send_and_wait(name, b"last", partition=0)
        await producer.stop()
        reader = AIOKafkaConsumer(
            name,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await reader.start()
        found = [(await asyncio.wait_for(reader.getone(), SECONDS)).value for _ in range(2)]
        committed = await reader.committed(Partition(name, 1))
        await reader.stop()
        return found, committed

    assert asyncio.run(scenario()) == ([b"kept", b"last"], 7)


def test_kafka_python(servers, name):
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Partition
    from kafka.structs import OffsetAndMetadata

    group = uuid.uuid4().hex
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=uuid.uuid4().hex)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, b"kept", partition=0)
    producer.send_offsets_to_transaction({Partition(name, 1): OffsetAndMetadata(7, "", -1)}, group)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(name, b"dropped", partition=0)
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send(name, b"last", partition=0)
    producer.commit_transaction()
    producer.close()
    reader = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        isolation_level="read_committed",
        consumer_timeout_ms=60_000,
    )
    reader.assign([Partition(name, 0)])
    reader.seek_to_beginning()
    found = [next(reader).value, next(reader).value]
    committed = reader.committed(Partition(name, 1))
    reader.close()
    assert (found, committed) == ([b"kept", b"last"], 7)


def test_silent_producers_transaction_is_aborted():
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with BarnabasBroker(settings) as broker:
        create(broker, "t", 1)
        servers = broker.bootstrap_servers
        producer = transactional(servers, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
        producer.begin_transaction()
        producer.produce("t", b"silent", partition=0)
        producer.flush(SECONDS)
        plain = Producer({"bootstrap.servers": servers})
        plain.produce("t", b"after", partition=0)
        plain.flush(SECONDS)
        deadline = time.monotonic() + SECONDS
        while not (found := everything(servers, "t", 1)[0]):
            assert time.monotonic() < deadline
        assert found == [b"after"]
        with pytest.raises(KafkaException):
            producer.commit_transaction(SECONDS)


def create(broker, topic, partitions):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS)


class Load(threading.Thread):
    """Transactions of ten records in three partitions, until it is stopped.

    `outcomes` says for each number whether its transaction was committed or aborted, or that this is unknown.
    """

    def __init__(self, servers):
        super().__init__()
        self.servers = servers
        self.outcomes = []
        self.stopping = threading.Event()

    def run(self):
        producer = None
        while not self.stopping.is_set():
            try:
                producer = producer or transactional(self.servers, "load", **{"retry.backoff.ms": 20})
                self.transaction(producer)
            except KafkaException:
                producer = None  # fatal, or no end of it: a new producer fences this one

    def transaction(self, producer):
        number = len(self.outcomes)
        self.outcomes.append("unknown")
        producer.begin_transaction()
        for index in range(10):
            producer.produce("t", b"%06d-%d" % (number, index), partition=index % 3)
        commit = number % 4 != 0
        try:
            if commit:
                producer.commit_transaction(GIVE_UP)
            else:
                producer.flush(GIVE_UP)
                producer.abort_transaction(GIVE_UP)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(GIVE_UP)
            commit = False
        self.outcomes[number] = "committed" if commit else "aborted"


@pytest.mark.parametrize("fsync", ["false", "true"])
def test_transactions_through_kills_of_the_broker_are_all_or_nothing(fsync):
    with BarnabasBroker({"barnabas.acks.fsync": fsync}, mode="process") as broker:
        create(broker, "t", 3)
        load = Load(broker.bootstrap_servers)
        load.start()
        for _ in range(3):
            reached = len(load.outcomes) + 20
            deadline = time.monotonic() + 90
            while len(load.outcomes) < reached:
                assert time.monotonic() < deadline, f"stuck at {len(load.outcomes)}"
                time.sleep(0.005)
            broker.kill()
            broker.restart()
        reached = len(load.outcomes) + 20
        deadline = time.monotonic() + 90
        while len(load.outcomes) < reached:
            assert time.monotonic() < deadline, f"stuck at {len(load.outcomes)}"
            time.sleep(0.005)
        load.stopping.set()
        load.join()
        transactional(broker.bootstrap_servers, "load")  # what is open is aborted
        found = everything(broker.bootstrap_servers, "t", 3)
    whole = {}
    for values in found.values():
        assert values == sorted(values), "records of one producer are out of order"
        for value in values:
            number, _, index = value.partition(b"-")
            whole.setdefault(int(number), []).append(int(index))
    assert all(sorted(indexes) == list(range(10)) for indexes in whole.values()), "torn or repeated"
    committed = {n for n, outcome in enumerate(load.outcomes) if outcome == "committed"}
    aborted = {n for n, outcome in enumerate(load.outcomes) if outcome == "aborted"}
    assert committed <= whole.keys()
    assert not aborted & whole.keys()
