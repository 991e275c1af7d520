"""Compaction as clients see it: the records that they read afterwards and meanwhile."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from barnabas.testing import BarnabasBroker

SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.segment.delete.delay.ms": "0",
    "log.flush.interval.messages": "1",
    "offsets.topic.segment.bytes": "4000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.segment.bytes": "2000",
    "transaction.state.log.num.partitions": "1",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture(scope="module")
def broker():
    with BarnabasBroker(SETTINGS) as broker:
        yield broker


def create(broker, **config):
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    settings = {**COMPACTED, **{key.replace("_", "."): value for key, value in config.items()}}
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(60)
    return name


def produce(broker, topic, pairs, **settings):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 5, **settings})
    refused = []
    for key, value in pairs:
        producer.produce(topic, value, key, on_delivery=lambda error, _: error and refused.append(error))
    assert producer.flush(60) == 0
    assert not refused


def read(broker, topic, isolation="read_committed"):
    """Return every record from the beginning: {offset: (key, value)}."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = {}
    while True:
        message = consumer.poll(60)
        assert message is not None, "no end was reached"
        if message.error():
            consumer.close()
            return found
        found[message.offset()] = (message.key(), message.value())


def alter(broker, topic, **config):
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(60)


def files(broker, partition, suffix=".log"):
    return sorted((broker.data / partition).glob(f"*{suffix}"))


def eventually(probe):
    deadline = time.monotonic() + 60
    while not (found := probe()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_consumers_find_the_last_value_of_each_key(broker, codec):
    topic = create(broker)
    pairs = [(b"key %d" % (number % 10), b"value %d" % number) for number in range(500)]
    produce(broker, topic, pairs, **{"compression.type": codec})
    before = read(broker, topic)
    produce(broker, topic, [(b"last", bytes(1500))])  # seals what came before
    found = eventually(lambda: len(after := read(broker, topic)) <= 60 and after)
    assert found.items() <= {**before, 500: (b"last", bytes(1500))}.items()
    latest = {key: value for _, (key, value) in sorted(found.items())}
    assert latest == {**dict(pairs), b"last": bytes(1500)}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None)
    consumer.assign([KafkaPythonPartition(topic, 0)])
    consumer.seek_to_beginning()
    records = []
    while len(records) < len(found):
        records += [r for batch in consumer.poll(5000).values() for r in batch]
    consumer.close()
    assert {r.offset: (r.key, r.value) for r in records} == found


def test_many_batches_of_one_record_are_compacted_in_one_go(broker):
    """The number of batches is above that for one system call (IOV_MAX)."""
    topic = create(broker, segment_bytes="150000")
    pairs = [(b"k%d" % number, b"v") for number in range(1500)]
    one_a_batch = {"batch.num.messages": 1}
    produce(broker, topic, pairs, **one_a_batch)
    produce(
        broker, topic, [(b"k0", b"w"), (b"last", bytes(140_000))], **one_a_batch
    )  # seals what came before
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    eventually(lambda: checkpoint.exists() and f"{topic} 0 1501" in checkpoint.read_text())
    expected = [*pairs[1:], (b"k0", b"w"), (b"last", bytes(140_000))]
    assert list(read(broker, topic).values()) == expected
    broker.restart()
    produce(broker, topic, [(b"after", b"v")])
    assert list(read(broker, topic).values()) == [*expected, (b"after", b"v")]


def test_tombstones_and_what_they_delete_go(broker):
    topic = create(broker, delete_retention_ms="0")
    produce(broker, topic, [(b"gone", b"1"), (b"kept", b"1"), (b"gone", None)])
    for number in range(200):  # several cleanings: the first sets the horizon, a later one drops it
        produce(broker, topic, [(b"other", b"%d" % number + bytes(300))])
        if {key for key, _ in read(broker, topic).values()} == {b"kept", b"other"}:
            return
    pytest.fail("the tombstone stayed")


def test_aborted_records_are_dropped_and_never_seen(broker):
    topic = create(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"id-{topic}"})
    producer.init_transactions(60)
    for number in range(30):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number + bytes(300), b"aborted" if number % 2 else b"committed")
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    produce(broker, topic, [(b"last", bytes(1500))])
    everything = eventually(lambda: len(all_of := read(broker, topic, "read_uncommitted")) <= 4 and all_of)
    assert b"aborted" not in {key for key, _ in everything.values()}
    assert [value[:2] for _, value in read(broker, topic).values()][-2:] == [b"28", bytes(2)]


def test_a_topic_is_compacted_from_when_it_is_told_to_be(broker):
    topic = create(broker, cleanup_policy="delete")
    produce(broker, topic, [(b"k", b"%d" % number + bytes(100)) for number in range(100)])
    compacted = create(broker)
    produce(broker, compacted, [(b"k", b"%d" % number + bytes(100)) for number in range(100)])
    eventually(lambda: len(read(broker, compacted)) < 30)  # the cleaner has passed
    assert len(read(broker, topic)) == 100
    alter(broker, topic, cleanup_policy="compact")
    eventually(lambda: len(read(broker, topic)) < 30)


def test_a_log_that_is_damaged_is_left_alone_and_others_go_on(broker):
    damaged = create(broker, min_compaction_lag_ms="60000")
    produce(broker, damaged, [(b"k", b"%d" % number + bytes(100)) for number in range(100)])
    first = files(broker, f"{damaged}-0")[0]
    content = bytearray(first.read_bytes())
    content[-1] ^= 0xFF
    first.write_bytes(content)
    size = len(content)
    alter(broker, damaged, min_compaction_lag_ms="0")
    other = create(broker)
    produce(broker, other, [(b"k", b"%d" % number + bytes(100)) for number in range(100)])
    eventually(lambda: len(read(broker, other)) < 30)
    assert first.stat().st_size == size
    assert not files(broker, f"{damaged}-0", ".cleaned")


def test_committed_offsets_are_compacted_and_survive(broker):
    topic = create(broker)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "enable.auto.commit": False}
    )
    for offset in range(300):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    partition = "__consumer_offsets-0"
    eventually(lambda: sum(file.stat().st_size for file in files(broker, partition)) < 9000)
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    eventually(lambda: "__consumer_offsets 0 " in checkpoint.read_text())
    consumer.close()
    broker.restart()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    assert committed.offset == 299
    consumer.close()


def test_transactional_ids_are_compacted_and_survive(broker):
    topic = create(broker, cleanup_policy="delete")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    for number in range(40):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.commit_transaction(60)
    partition = "__transaction_state-0"
    eventually(lambda: sum(file.stat().st_size for file in files(broker, partition)) < 5000)
    broker.restart()
    producer.begin_transaction()
    producer.produce(topic, b"after")
    producer.commit_transaction(60)
    assert len(read(broker, topic)) == 41


def test_a_cleaning_gives_way_to_a_stop_and_to_the_deletion_of_its_topic():
    slow = {**SETTINGS, "log.cleaner.io.max.bytes.per.second": "20"}  # for an hour
    with BarnabasBroker(slow) as broker:
        topics = [create(broker), create(broker)]
        for topic in topics:
            produce(broker, topic, [(b"k", b"%d" % number + bytes(300)) for number in range(200)])
        broker.admin().delete_topic(topics[0])
        assert len(read(broker, topics[1])) == 200
        broker.restart()
        assert len(read(broker, topics[1])) == 200


def test_lags_that_contradict_each_other_are_refused(broker):
    with pytest.raises(KafkaException, match=r"min\.compaction\.lag\.ms=10 is more than"):
        create(broker, min_compaction_lag_ms="10", max_compaction_lag_ms="5")
    topic = create(broker, max_compaction_lag_ms="5")
    with pytest.raises(KafkaException, match=r"min\.compaction\.lag\.ms=6 is more than"):
        alter(broker, topic, min_compaction_lag_ms="6")
