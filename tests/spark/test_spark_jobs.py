"""Whole Spark jobs with the data source, as a user writes them with its short name."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader, DataStreamWriter
from tests.spark.limits import NEEDS_LIMITS

from barnabas.base.types import TopicPartition
from barnabas.spark.progress import lag

MakeTopic = Callable[..., str]
Feed = Callable[..., None]

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def load(spark: SparkSession, servers: str) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", servers)
        return reader.options(**options).load()

    return load


@pytest.fixture
def stream(spark: SparkSession, servers: str) -> DataStreamReader:
    return spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers)


@pytest.fixture
def to_topic(servers: str, tmp_path: Path) -> Callable[..., DataStreamWriter]:
    """Write a stream to a topic until all records are written. A second call
    continues from its checkpoint.
    """

    def to_topic(rows: DataFrame, topic: str, mode: str = "append") -> list[int]:
        # a column partition would be obeyed, and the topics have not the same number of them
        rows = rows.select("key", "value")
        writer = rows.writeStream.format("barnabas").option("kafka.bootstrap.servers", servers)
        query = (
            writer.option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    return to_topic


def values(rows: DataFrame) -> list[str]:
    return [row.value for row in rows.orderBy("partition", "offset").selectExpr("string(value)").collect()]


def test_a_batch_is_written_and_read_back_with_all_its_columns(
    spark: SparkSession, servers: str, load: Callable[..., DataFrame], make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    rows = spark.range(100).selectExpr(
        "string(id) AS key",
        "concat('v', id) AS value",
        "int(id % 2) AS partition",
        "array(named_struct('key', 'n', 'value', binary(string(id)))) AS headers",
        "id AS not_a_column_of_a_record",
    )
    writer = rows.write.format("barnabas").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).mode("append").save()
    back = load(subscribe=topic, includeHeaders="true")
    assert back.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    checks = back.selectExpr(
        "count(*) AS rows",
        f"count_if(topic = '{topic}' AND timestampType = 0 AND timestamp > now() - INTERVAL 1 HOUR) AS fresh",
        "count_if(value = concat('v', string(key)) AND partition = int(string(key)) % 2) AS placed",
        "count_if(headers = array(named_struct('key', 'n', 'value', key))) AS headed",
        "count(DISTINCT partition, offset) AS offsets",
    ).first()
    assert tuple(checks) == (100, 100, 100, 100, 100)


def test_a_batch_reads_between_its_bounds_in_as_many_tasks_as_asked(
    load: Callable[..., DataFrame], make_topic: MakeTopic, feed: Feed
) -> None:
    topic = make_topic()
    feed(topic, range(50))
    bounds = {"startingOffsets": f'{{"{topic}":{{"0":10}}}}', "endingOffsets": f'{{"{topic}":{{"0":40}}}}'}
    rows = load(subscribe=topic, minPartitions="3", **bounds)
    assert values(rows) == [str(n) for n in range(10, 40)]
    assert rows.select(F.spark_partition_id()).distinct().count() == 3


def test_an_empty_topic_is_an_empty_batch(load: Callable[..., DataFrame], make_topic: MakeTopic) -> None:
    assert load(subscribe=make_topic(2)).count() == 0


@NEEDS_LIMITS
def test_a_stream_goes_on_from_its_checkpoint_with_nothing_lost_or_repeated(
    stream: DataStreamReader,
    to_topic: Callable[..., list[int]],
    load: Callable[..., DataFrame],
    make_topic: MakeTopic,
    feed: Feed,
) -> None:
    source, copy = make_topic(2), make_topic()
    feed(source, range(40))
    rows = stream.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="25").load()
    assert to_topic(rows, copy) == [25, 15]
    feed(source, range(40, 60), partition=1)
    assert to_topic(rows, copy) == [20]
    assert values(load(subscribe=copy)) == [str(n) for n in range(60)]


def test_a_restarted_stream_notices_that_its_topic_was_made_anew(
    stream: DataStreamReader,
    to_topic: Callable[..., list[int]],
    load: Callable[..., DataFrame],
    make_topic: MakeTopic,
    feed: Feed,
    admin: AdminClient,
) -> None:
    source, copy = make_topic(), make_topic()
    feed(source, "abc")
    strict = stream.options(subscribe=source, startingOffsets="earliest").load()
    to_topic(strict, copy)
    admin.delete_topics([source])[source].result(60)
    make_topic(name=source)
    feed(source, "uvwxyz")
    with pytest.raises(
        PySparkException, match=f"{source}-0: the topic was deleted and re-created; its records from"
    ):
        to_topic(strict, copy)
    lenient = stream.options(subscribe=source, startingOffsets="earliest", failOnDataLoss="false").load()
    assert to_topic(lenient, copy) == [6]
    assert values(load(subscribe=copy)) == list("abcuvwxyz")


@NEEDS_LIMITS  # 4.1 does not tell a source that the last micro-batch is processed
def test_a_streams_lag_shows_in_its_group(
    stream: DataStreamReader,
    to_topic: Callable[..., list[int]],
    make_topic: MakeTopic,
    feed: Feed,
    admin: AdminClient,
) -> None:
    source, group = make_topic(2), f"lag-{uuid.uuid4()}"
    feed(source, range(30))
    feed(source, range(5), partition=1)
    rows = stream.option("kafka.group.id", group).options(
        subscribe=source, startingOffsets="earliest", commitOffsets="true"
    )
    to_topic(rows.load(), make_topic())
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    assert {(each.partition, each.offset) for each in asked.topic_partitions} == {(0, 30), (1, 5)}


def test_counts_by_window_are_written_as_a_stream(
    stream: DataStreamReader,
    to_topic: Callable[..., list[int]],
    load: Callable[..., DataFrame],
    make_topic: MakeTopic,
    feed: object,
) -> None:
    source, counts = make_topic(), make_topic()
    for minute, value in ((0, "a"), (0, "a"), (1, "a"), (1, "b")):
        feed.send(source, value=value.encode(), timestamp=(minute + 10) * 60_000)
    rows = stream.options(subscribe=source, startingOffsets="earliest").load()
    counted = rows.groupBy(F.window("timestamp", "1 minute").start.alias("at"), "value").count()
    shaped = counted.selectExpr(
        "concat(date_format(at, 'mm:ss'), ' ', string(value)) AS key", "string(count) AS value"
    )
    to_topic(shaped, counts, mode="complete")
    found = {
        (row.key, row.value)
        for row in load(subscribe=counts).selectExpr("string(key)", "string(value)").collect()
    }
    assert found == {("10:00 a", "2"), ("11:00 a", "1"), ("11:00 b", "1")}


def test_a_mistake_comes_to_the_user_in_one_line(
    load: Callable[..., DataFrame], make_topic: MakeTopic
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(subscribe=make_topic(), startingOffset="earliest").count()
    mistake = "option startingoffset=earliest is not allowed: did you mean startingOffsets?"
    assert f"barnabas.base.errors.ConfigError: {mistake}" in str(caught.value).splitlines()


def test_only_the_columns_that_are_asked_for_are_read(
    spark: SparkSession, servers: str, make_topic: MakeTopic, feed: Feed
) -> None:
    topic = make_topic()
    feed(topic, "ab")
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", servers)
    rows = reader.option("subscribe", topic).schema("offset bigint, value binary").load()
    assert [tuple(row) for row in rows.collect()] == [(0, b"a"), (1, b"b")]
    wrong = reader.option("subscribe", topic).schema("value string")
    with pytest.raises(PySparkException, match=r"a topic has no column value string: choose in \.schema"):
        wrong.load().count()


def test_filters_narrow_what_a_batch_reads_and_do_not_change_what_it_finds(
    spark: SparkSession,
    load: Callable[..., DataFrame],
    make_topic: MakeTopic,
    feed: Feed,
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        for number in range(4):
            feed.send(topic, value=b"%d" % number, partition=partition, timestamp=1000 * number + 1)
    rows = load(subscribe=topic, maxRecordsPerPartition="1")  # so that there is a task for each record read
    conditions = {
        f"topic = '{topic}' AND partition = 1 AND offset >= 2": (2, 2),
        "offset IN (1, 3) AND partition IN (0, 2)": (6, 4),
        "timestamp >= timestamp_millis(2001) AND offset < 3": (3, 3),
        "topic = 'none'": (1, 0),
    }
    assert {rows.where(condition).rdd.getNumPartitions() for condition in conditions} == {12}
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition, expected in conditions.items():
            narrowed = rows.where(condition)
            assert (narrowed.rdd.getNumPartitions(), narrowed.count()) == expected, condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@NEEDS_LIMITS
def test_a_query_tells_how_far_it_is_behind(
    stream: DataStreamReader, make_topic: MakeTopic, feed: Feed, tmp_path: Path
) -> None:
    topic = make_topic(2)
    feed(topic, range(10))
    feed(topic, range(6), partition=1)
    rows = stream.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="8").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        query.processAllAvailable()
        feed(topic, ["late"])
        query.processAllAvailable()
    finally:
        query.stop()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in batches] == [8, 8, 1]
    assert [lag(progress) for progress in batches] == [
        {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 3},
        {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0},
        {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0},
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("id AS other", r"column value is missing \(there are: other\)"),
        ("id AS value", "column value is bigint: cast it to binary"),
        ("string(id) AS value, 'a' AS partition", "column partition is string: cast it to integer"),
        (
            "string(id) AS value, array('a') AS headers",
            "column headers is array<string>: cast it to array<struct",
        ),
    ],
)
def test_columns_that_no_record_can_hold_are_refused(
    spark: SparkSession, servers: str, columns: str, expected: str
) -> None:
    writer = spark.range(1).selectExpr(*columns.split(", ")).write.format("barnabas")
    with pytest.raises(PySparkException, match=expected):
        writer.option("kafka.bootstrap.servers", servers).option("topic", "t").mode("append").save()


def test_a_write_without_any_topic_and_one_that_overwrites_are_refused(
    spark: SparkSession, servers: str
) -> None:
    rows = spark.range(1).selectExpr("string(id) AS value")
    writer = rows.write.format("barnabas").option("kafka.bootstrap.servers", servers)
    with pytest.raises(PySparkException, match="option topic is missing: set it, or add a column topic"):
        writer.mode("append").save()
    with pytest.raises(PySparkException, match="a topic is only appended to"):
        writer.option("topic", "t").mode("overwrite").save()
