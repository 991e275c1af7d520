"""Spark's own Kafka connector in the JVM, with our broker and with Apache Kafka, gives the same results."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.artifacts import Unavailable
from bench.peers import PEERS, Peer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, upper

pytestmark = pytest.mark.timeout(300)

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    peer: Peer = PEERS[request.param](tmp_path_factory.mktemp(request.param))
    try:
        peer.start()
    except Unavailable as error:
        pytest.skip(str(error))
    yield peer.bootstrap
    peer.stop()


@pytest.fixture
def make_topic(servers: str) -> MakeTopic:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def make(partitions: int = 1, prefix: str = "t") -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return make


@pytest.fixture
def feed(servers: str) -> Callable[..., None]:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})

    def feed(topic: str, values: str, partition: int = 0, **record: object) -> None:
        for value in values:
            producer.produce(topic, value, partition=partition, **record)
        assert producer.flush(30) == 0

    return feed


@pytest.fixture
def load(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
        return reader.options(**options).load()

    return load


def values(rows: DataFrame) -> list[str]:
    return sorted(row.value.decode() for row in rows.select("value").collect())


def run(rows: DataFrame, servers: str, topic: str, checkpoint: Path) -> int:
    """Copy the present rows to a topic as a stream. Return the number of records."""
    writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    query = writer.options(topic=topic, checkpointLocation=str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_a_batch_is_written_and_read_back_with_all_its_columns(
    spark: SparkSession, servers: str, make_topic: MakeTopic, load: Callable[..., DataFrame]
) -> None:
    topic = make_topic(2)
    header = Row(key="trace", value=bytearray(b"\x01"))
    written = [
        Row(key="a", value=bytearray(b"one"), partition=1, headers=[header]),
        Row(key=None, value=bytearray(b"two"), partition=0, headers=None),
        Row(key="c", value=None, partition=1, headers=[]),
    ]
    schema = "key string, value binary, partition int, headers array<struct<key string, value binary>>"
    writer = spark.createDataFrame(written, schema).coalesce(1).write.format("kafka")
    writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    found = load(subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset, row.key, row.value, row.headers) for row in found] == [
        (0, 0, None, b"two", None),
        (1, 0, b"a", b"one", [header]),
        (1, 1, b"c", None, None),
    ]
    assert {(row.topic, row.timestampType) for row in found} == {(topic, 0)}


def test_a_batch_reads_from_offsets_and_times(
    make_topic: MakeTopic, load: Callable[..., DataFrame], feed: Callable[..., None]
) -> None:
    topic = make_topic(2)
    for number, value in enumerate("abcdef"):
        feed(topic, value, number % 2, timestamp=1_000_000 + number)
    partitions = {"subscribe": topic, "minPartitions": "4"}
    start, end = f'{{"{topic}":{{"0":1,"1":-2}}}}', f'{{"{topic}":{{"0":-1,"1":1}}}}'
    assert values(load(**partitions, startingOffsets=start, endingOffsets=end)) == ["b", "c", "e"]
    assert values(load(**partitions, startingTimestamp="1000002", endingTimestamp="1000005")) == [
        "c",
        "d",
        "e",
    ]
    assert values(load(assign=f'{{"{topic}":[1]}}')) == ["b", "d", "f"]


def test_a_pattern_finds_topics(
    make_topic: MakeTopic, load: Callable[..., DataFrame], feed: Callable[..., None]
) -> None:
    prefix = uuid.uuid4().hex
    for value in "ab":
        feed(make_topic(prefix=prefix), value)
    assert values(load(subscribePattern=f"{prefix}-.*")) == ["a", "b"]


def test_records_of_transactions_are_read_when_they_are_committed(
    servers: str, make_topic: MakeTopic, load: Callable[..., DataFrame]
) -> None:
    topic = make_topic()
    for value, end in (("kept", "commit"), ("dropped", "abort"), ("open", "")):
        producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-{value}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        if end:
            getattr(producer, f"{end}_transaction")(30)
    assert values(load(subscribe=topic)) == ["dropped", "kept", "open"]
    assert values(load(subscribe=topic, **{"kafka.isolation.level": "read_committed"})) == ["kept"]
    producer.abort_transaction(30)


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession,
    servers: str,
    make_topic: MakeTopic,
    load: Callable[..., DataFrame],
    feed: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic, copies = make_topic(2), make_topic(2)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    rows = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2").load()
    shouted = rows.select("key", upper(col("value").cast("string")).alias("value"))
    feed(topic, "abc")
    assert run(shouted, servers, copies, tmp_path) == 3
    feed(topic, "de", 1)
    assert run(shouted, servers, copies, tmp_path) == 2
    assert values(load(subscribe=copies)) == ["A", "B", "C", "D", "E"]
