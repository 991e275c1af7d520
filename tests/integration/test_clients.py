"""Produce and consume with the usual clients and every compression."""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
import uuid

import pytest

from barnabas.kafka.records import batches

VALUES = [b"value-%03d" % n * 10 for n in range(300)]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def name(make_topic):
    return make_topic(3).name


@pytest.fixture
def servers(barnabas_broker):
    return barnabas_broker.bootstrap_servers


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka(servers, name, codec):
    from confluent_kafka import Consumer, Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
        }
    )
    failures = []
    for n, value in enumerate(VALUES):
        producer.produce(
            name,
            value,
            key=b"%d" % (n % 7),
            headers={"n": b"%d" % n},
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    consumer.subscribe([name])
    found = []
    while len(found) < len(VALUES):
        messages = consumer.consume(len(VALUES) - len(found), 20)
        assert messages, f"only {len(found)} of {len(VALUES)} records came back"
        assert [m.error() for m in messages if m.error()] == []
        found += messages
    assert sorted(m.value() for m in found) == VALUES
    assert {int(dict(m.headers())["n"]) for m in found} == set(range(len(VALUES)))
    consumer.commit(asynchronous=False)
    committed = consumer.committed(consumer.assignment())
    assert sum(max(0, position.offset) for position in committed) == len(VALUES)
    consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_compresses_for_this_broker(servers, topic, codec, wire, fetch_request):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 20})
    for value in VALUES:
        producer.produce(topic.name, value)
    assert producer.flush(60) == 0
    records = wire(fetch_request(topic, {0: 0})).responses[0].partitions[0].records
    assert {header.compression for _, header in batches(records)} == {CODECS.index(codec)}


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka(servers, name, codec):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def main():
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        await producer.start()
        try:
            for future in [await producer.send(name, value) for value in VALUES]:
                await future
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            name, bootstrap_servers=servers, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            found = []
            while len(found) < len(VALUES):
                found.append((await asyncio.wait_for(consumer.getone(), 60)).value)
            await consumer.commit()
        finally:
            await consumer.stop()
        assert sorted(found) == VALUES

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves sockets open
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python(servers, name, codec):
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=servers, compression_type=None if codec == "none" else codec, linger_ms=5
    )
    for future in [producer.send(name, value) for value in VALUES]:
        future.get(60)
    producer.close()
    consumer = KafkaConsumer(
        name,
        bootstrap_servers=servers,
        group_id=uuid.uuid4().hex,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    found = []
    for message in consumer:
        found.append(message.value)
        if len(found) == len(VALUES):
            break
    consumer.commit()
    consumer.close()
    del producer, consumer
    gc.collect()  # here, where its warnings are expected
    assert sorted(found) == VALUES


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("codec", CODECS)
def test_kcat(servers, name, codec):
    lines = b"\n".join(VALUES)
    subprocess.run(
        ["kcat", "-b", servers, "-P", "-t", name, "-z", codec], input=lines, check=True, timeout=60
    )
    read = subprocess.run(
        ["kcat", "-b", servers, "-C", "-t", name, "-o", "beginning", "-e", "-q"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert sorted(read.stdout.splitlines()) == VALUES
    group = subprocess.run(
        ["kcat", "-b", servers, "-G", uuid.uuid4().hex, "-e", "-q", "-X", "auto.offset.reset=earliest", name],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert sorted(group.stdout.splitlines()) == VALUES
