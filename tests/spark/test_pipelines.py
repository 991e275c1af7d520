"""Pipelines on a live broker: the output in topics and files, and the errors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import PipelineRunner, supervise

from barnabas.base.errors import ConfigError
from barnabas.pipelines.build import Run, build
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.session import DEFAULTS
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.pipelines.sinks import _records as encode
from barnabas.pipelines.supervisor import Supervisor
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.spark.text_formats import decode_text

MakeTopic = Callable[..., str]
Feed = Any

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = DEFAULTS[PROVIDER]


@contextmanager
def config(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    yield
    spark.conf.set(name, before)


def test_records_go_their_ways_and_those_that_do_not_parse_to_the_dead_letter_topic(
    make_topic: MakeTopic,
    feed: Feed,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
    tmp_path: Path,
) -> None:
    orders, dear, bad = make_topic(), make_topic(), make_topic()
    text = f"""
@source(topic="{orders}", format="json", schema="id BIGINT NOT NULL, price DOUBLE", dead_letter="{bad}")
def orders(rows):
    return rows

@F.udf("string")
def shout(word):
    return word + "!"

@step
def shouted(orders):
    return orders.withColumn("said", shout(F.col("id").cast("string")))

@sink(topic="{dear}", key="id")
def dear(shouted):
    return shouted.where("price > 10")

@sink(parquet="{tmp_path}/kept", partition_by="id")
def kept(orders):
    return orders.select("id", "price", "_record.offset")
"""
    for value in ('{"id": 1, "price": 5}', '{"id": 2, "price": 50}', '{"price": 1}'):
        feed.send(orders, value=value.encode())
    feed.send(orders, key=b"k", value=b"{nothing", headers=[("h", b"1")])
    assert pipeline(text) == ["orders.dead_letter", "dear", "kept"]

    feed.send(orders, value=b'{"id": 3, "price": 70}')
    pipeline(text)  # goes on where it was
    assert [(each.key(), json.loads(each.value())) for each in records(dear, 2)] == [
        (b"2", {"id": 2, "price": 50.0, "said": "2!"}),
        (b"3", {"id": 3, "price": 70.0, "said": "3!"}),
    ]
    kept = pyarrow.parquet.read_table(tmp_path / "kept").to_pylist()
    assert sorted((row["id"], row["price"], row["offset"]) for row in kept) == [
        (1, 5, 0),
        (2, 50, 1),
        (3, 70, 4),
    ]

    missing, broken = records(bad, 2)
    assert (missing.key(), missing.value()) == (None, b'{"price": 1}')
    assert dict(missing.headers())["__barnabas.errors.message"] == b"field id is missing"
    assert (broken.key(), broken.value()) == (b"k", b"{nothing")
    assert broken.headers() == [
        ("h", b"1"),
        ("__barnabas.errors.message", b"it is not JSON"),
        ("__barnabas.errors.topic", orders.encode()),
        ("__barnabas.errors.partition", b"0"),
        ("__barnabas.errors.offset", b"3"),
    ]


def test_sql_joins_two_streams_in_time_and_a_file_and_counts_in_windows(
    make_topic: MakeTopic,
    feed: Feed,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
    tmp_path: Path,
) -> None:
    orders, payments, paid, counts = (make_topic() for _ in range(4))
    (tmp_path / "names.csv").write_text("id,name\n1,Ada\n2,Grace\n")
    text = f"""/*
[source.orders]
topic = "{orders}"
format = "json"
schema = "id INT, customer INT, at TIMESTAMP"
watermark = "at 1 minute"

[source.payments]
topic = "{payments}"
format = "csv"
schema = "orderId INT, paidAt TIMESTAMP"
watermark = "paidAt 1 minute"

[source.customers]
files = "{tmp_path}/names.csv"
format = "csv"
schema = "id INT, name STRING"
static = true
options = {{ header = "true" }}

[sink.paid]
from = "paid"
topic = "{paid}"
format = "csv"

[sink.counts]
from = "counts"
topic = "{counts}"
key = "minute"
mode = "update"
*/
CREATE TEMPORARY VIEW paid AS
SELECT o.id, c.name, p.paidAt IS NOT NULL AS paid FROM orders o
LEFT JOIN payments p ON o.id = p.orderId AND p.paidAt BETWEEN o.at AND o.at + INTERVAL 1 HOUR
JOIN customers c ON c.id = o.customer;

CREATE TEMPORARY VIEW counts AS
SELECT date_format(window.start, 'HH:mm') AS minute, count(*) AS orders
FROM orders GROUP BY window(at, '1 minute');
"""
    for number, minute in ((1, 0), (2, 0), (3, 1)):
        value = {"id": number, "customer": 2 - number % 2, "at": f"2026-03-01T10:{minute:02}:30Z"}
        feed.send(orders, value=json.dumps(value).encode())
    feed(payments, ["2,2026-03-01T10:05:00Z", "3,2026-03-01T12:05:00Z", "1,2026-03-01T10:05:00Z"])
    assert pipeline(text, "sql") == ["paid", "counts"]
    assert sorted(each.value() for each in records(paid, 2)) == [b"1,Ada,true", b"2,Grace,true"]
    found = {each.key(): json.loads(each.value())["orders"] for each in records(counts, 2)}
    assert found == {b"10:00": 2, b"10:01": 1}

    # both streams have come to a time after which no payment of the third order can count
    feed(orders, ['{"id": 4, "customer": 1, "at": "2026-03-01T12:10:00Z"}'])
    feed(payments, ["9,2026-03-01T12:10:00Z"])
    (status,) = supervise(pipeline.queries(text, "sql")["paid"]).statuses
    assert (status.state, status.rows_read, status.rows_written, status.lag) == ("done", 2, 1, 0)
    assert status.watermark == "2026-03-01T12:09:00.000Z"
    assert status.state_rows and status.state_bytes, "the last order and the last payment may find others yet"
    assert [each.value() for each in records(paid, 3)][2:] == [b"3,Ada,false"]


def test_a_query_of_a_sql_pipeline_can_be_started_again_and_again(
    pipeline: PipelineRunner, tmp_path: Path
) -> None:
    """A query that has failed starts in the same way."""
    text = f"""/*
[source.lines]
files = "{tmp_path}/lines"
format = "text"

[sink.kept]
from = "loud"
parquet = "{tmp_path}/kept"
*/
CREATE TEMPORARY FUNCTION loudly(line STRING) RETURNS STRING RETURN upper(line);
CREATE TEMPORARY VIEW loud AS SELECT loudly(value) AS line FROM lines;
"""
    (tmp_path / "lines").mkdir()
    query = pipeline.queries(text, "sql")["kept"]
    for number in range(2):
        (tmp_path / "lines" / str(number)).write_text(f"line {number}")
        assert supervise(query).failed is None
    found = pyarrow.parquet.read_table(tmp_path / "kept")["line"].to_pylist()
    assert sorted(found) == ["LINE 0", "LINE 1"]


def test_changes_go_to_a_topic_and_to_tables_each_once(
    make_topic: MakeTopic,
    feed: Feed,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
    postgres_server: str,
    tmp_path: Path,
) -> None:
    words, counts = make_topic(), make_topic()
    with psycopg.connect(postgres_server) as connection:
        connection.execute("CREATE TABLE words (value TEXT PRIMARY KEY, count BIGINT)")
    text = f"""
@source(topic="{words}", format="text")
def words(rows):
    return rows

@step
def counted(words):
    return words.groupBy("value").count()

@sink(topic="{counts}", key="value", mode="update", delivery="exactly-once")
def to_topic(counted):
    return counted

@sink(postgres="{postgres_server}", table="words", key="value", mode="update")
def to_postgres(counted):
    return counted

@sink(delta="{tmp_path}/words")
def to_delta(words):
    return words.select("value", F.col("_record.timestamp").alias("at"))
"""
    for batch in ("aab", "ac"):
        feed(words, batch)
        pipeline(text)
    found = [(each.key(), json.loads(each.value())["count"]) for each in records(counts, 4)]
    assert sorted(found) == [(b"a", 2), (b"a", 3), (b"b", 1), (b"c", 1)]
    with psycopg.connect(postgres_server) as connection:
        rows = connection.execute("SELECT value, count FROM words ORDER BY value").fetchall()
    assert rows == [("a", 3), ("b", 1), ("c", 1)]
    stored = DeltaTable(str(tmp_path / "words")).to_pyarrow_table()
    assert sorted(stored["value"].to_pylist()) == ["a", "a", "a", "b", "c"]


def test_a_step_may_keep_state_of_its_own(
    spark: SparkSession,
    make_topic: MakeTopic,
    feed: Feed,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
) -> None:
    transfers, balances = make_topic(), make_topic()
    text = f"""
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

class Balance(StatefulProcessor):
    def init(self, handle):
        self._sum = handle.getValueState("sum", "amount BIGINT")

    def handleInputRows(self, key, rows, timer):
        sum = self._sum.get()[0] if self._sum.exists() else 0
        for frame in rows:
            sum += int(frame["amount"].sum())
        self._sum.update((sum,))
        yield pd.DataFrame({{"account": [key[0]], "balance": [sum]}})

    def close(self):
        pass

@source(topic="{transfers}", format="csv", schema="account STRING, amount BIGINT")
def transfers(rows):
    return rows

@sink(topic="{balances}", key="account", mode="update")
def balances(transfers):
    accounts = transfers.groupBy("account")
    return accounts.transformWithStateInPandas(Balance(), "account STRING, balance BIGINT", "Update", "None")
"""
    with config(spark, PROVIDER, ROCKSDB):
        for batch in (["a,5", "b,1", "a,-2"], ["a,10"]):
            feed(transfers, batch)
            pipeline(text)
    found = [(each.key(), json.loads(each.value())["balance"]) for each in records(balances, 3)]
    assert sorted(found) == [(b"a", 3), (b"a", 13), (b"b", 1)]


def test_registered_avro_is_read_and_written(
    servers: str,
    make_topic: MakeTopic,
    feed: Feed,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
) -> None:
    orders, dear, bad = make_topic(), make_topic(), make_topic()
    subject = "DearOrder"
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": "double"}],
    }
    text = f"""
@source(topic="{orders}", format="avro", subject="Order", dead_letter="{bad}")
def orders(rows):
    return rows

@sink(topic="{dear}", format="avro", schema='{json.dumps(schema)}', subject="{subject}", key="id")
def dear(orders):
    return orders.where("price > 10")
"""
    settings = RegistrySettings(servers, topic=f"_schemas-{orders}")
    with (
        RegistryServer(settings, claim("127.0.0.1:0")) as registry,
        SchemaRegistryClient({"url": registry.url}) as client,
    ):
        by_record = {"subject.name.strategy": lambda context, record: record}
        to_avro = AvroSerializer(client, json.dumps(schema), conf=by_record)
        for order in ({"id": 1, "price": 5.0}, {"id": 2, "price": 50.0}):
            feed.send(orders, value=to_avro(order, SerializationContext(orders, MessageField.VALUE)))
        feed.send(orders, value=b"no avro")
        pipeline(f'pipeline(registry="{registry.url}")\n{text}')
        (written,) = records(dear, 1)
        value = AvroDeserializer(client)(written.value(), SerializationContext(dear, MessageField.VALUE))
        assert sorted(client.get_subjects()) == [subject, "Order"]
    assert (written.key(), value) == (b"2", {"id": 2, "price": 50.0})
    (letter,) = records(bad, 1)
    assert letter.value() == b"no avro"
    assert dict(letter.headers())["__barnabas.errors.message"]


def test_what_would_fail_again_ends_the_pipeline_and_says_why_in_one_line(
    make_topic: MakeTopic, feed: Feed, pipeline: PipelineRunner
) -> None:
    topic = make_topic()
    feed(topic, ["fine", "{"])
    text = f"""
@source(topic="{topic}", format="json", schema="id INT")
def orders(rows): return rows
@sink(console=True)
def out(orders): return orders
"""
    supervisor = supervise(pipeline.queries(text)["out"])
    assert supervisor.failed is not None
    said = f"{topic}-0 offset 0 does not parse: it is not JSON; name a topic for such records with "
    assert supervisor.failed.last_error.startswith(said)


def test_a_pipeline_of_static_sources_is_a_batch_that_can_be_run_again(
    make_topic: MakeTopic,
    feed: Feed,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs, counts = make_topic(), make_topic()
    (tmp_path / "levels_of_logs.py").write_text("""
from pyspark.sql.functions import udf

@udf("boolean")
def is_bad(level):
    return level in ("ERROR", "FATAL")
""")
    text = f"""
from levels_of_logs import is_bad

@source(topic="{logs}", format="log", static=True)
def logs(rows):
    return rows

@step
def counted(logs):
    return logs.groupBy("source", is_bad("level").alias("bad")).count()

@sink(topic="{counts}", key="source,bad")
def to_topic(counted):
    return counted

@sink(parquet="{tmp_path}/logs", mode="complete", partition_by="level")
def kept(logs):
    return logs

@sink(console=True)
def shown(logs):
    return logs.orderBy("at").select("source", "level", "message", "at")
"""
    long_ago = {"source": "a", "level": "ERROR", "message": "m", "timestamp": "2001-02-03T04:05:06", "pid": 7}
    to_come = {"source": "a", "level": "INFO", "message": "n", "timestamp": "2999-01-01T00:00:00Z"}
    for value in (json.dumps(long_ago), json.dumps(to_come), "no JSON"):
        feed.send(logs, key=b"k", value=value.encode())
    for _ in range(2):
        assert pipeline(text) == ["to_topic", "kept", "shown"]
    found = [(each.key().decode(), json.loads(each.value())["count"]) for each in records(counts, 6)]
    expected = [
        ('{"source":"a","bad":false}', 1),
        ('{"source":"a","bad":true}', 1),
        ('{"source":"k","bad":false}', 1),
    ]
    assert sorted(found) == sorted(expected * 2)
    kept = pyarrow.parquet.read_table(tmp_path / "logs").sort_by("at").to_pylist()
    assert [(row["level"], row["message"]) for row in kept] == [
        ("ERROR", "m"),
        ("INFO", "n"),
        ("UNKNOWN", "no JSON"),
    ]
    assert json.loads(kept[0]["fields"])["pid"] == 7
    assert kept[1]["at"].year < 2999, "a line cannot be younger than its shipping"
    assert "|a     |ERROR  |m      |2001-02-03 04:05:06" in capsys.readouterr().out


@pytest.mark.parametrize("begun", [True, False])
def test_a_batch_can_be_stopped_at_once_when_it_has_begun_and_before(
    spark: SparkSession, pipeline: PipelineRunner, tmp_path: Path, begun: bool
) -> None:
    (tmp_path / "lines.txt").write_text("a line")
    text = f"""
import time

@F.udf("string")
def slow(text):
    time.sleep(20)
    return text

@source(files="{tmp_path}/lines.txt", format="text", static=True)
def lines(rows):
    return rows

@sink(parquet="{tmp_path}/kept")
def kept(lines):
    return lines.select(slow("value"))
"""
    supervisor = Supervisor(list(pipeline.queries(text).values()), 10, time.monotonic, print)
    supervisor.look()
    jobs = spark.sparkContext.statusTracker()
    while begun and not jobs.getActiveStageIds():
        time.sleep(0.05)
    supervisor.stop_now()
    assert [status.state for status in supervisor.statuses] == ["stopped"]
    assert not (tmp_path / "kept" / "_SUCCESS").exists()


def test_a_batch_that_is_tried_again_writes_each_row_once(
    make_topic: MakeTopic,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
    tmp_path: Path,
) -> None:
    target = make_topic()
    (tmp_path / "lines.txt").write_text("a line")
    text = f"""
from pathlib import Path

@F.udf("long")
def fails_once(number):
    failed = Path("{tmp_path}/failed")
    if number == 3 and not failed.exists():
        failed.touch()
        raise OSError("no answer")
    return number

@source(files="{tmp_path}/lines.txt", format="text", static=True)
def numbers(lines):
    return lines.sparkSession.range(0, 4, 1, 4)  # the last one waits for a core

@sink(topic="{target}", delivery="exactly-once")
def copy(numbers):
    return numbers.select(fails_once("id").alias("id"))
"""
    supervisor = supervise(pipeline.queries(text)["copy"])
    (status,) = supervisor.statuses
    assert (status.state, status.restarts) == ("done", 1)
    assert status.last_error.startswith("OSError: no answer (")
    found = [json.loads(each.value())["id"] for each in records(target, 4)]
    assert sorted(found) == [0, 1, 2, 3]


def test_a_batch_that_fails_says_why(pipeline: PipelineRunner, tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text("no JSON")
    text = """
@source(files="{folder}/ids.json", format="json", schema="id INT", static=True)
def ids(rows):
    return rows

@sink(parquet="{folder}/kept")
def kept(ids):
    return ids
"""
    supervisor = supervise(pipeline.queries(text.format(folder=tmp_path))["kept"])
    assert supervisor.failed is not None
    assert "ids.json does not parse: it is not JSON" in str(supervisor.failed.last_error)


MISTAKEN = """
@source(topic="t", format="json", schema="id INT")
def orders(rows):
    return rows

@step
def dear(orders):
    return orders.where("id > 1")

@sink(topic="dear")
def out(dear):
    return dear
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "id INT",
            "id INTT",
            "5: source orders: option schema=id INTT is not allowed: write columns as `id BIGINT",
        ),
        ("return rows", "return rows.nothing()", "7: source orders: "),
        ("id > 1", "idd > 1", "11: step dear: "),
        ("return dear", "return 5", "13: sink out gives int: return a DataFrame"),
        (
            '"dear")',
            '"dear", key="idd")',
            "13: out: option key=idd is not allowed: the columns are id",
        ),
    ],
)
def test_a_mistake_that_only_spark_sees_is_said_with_its_line(
    pipeline: PipelineRunner, tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        for query in pipeline.queries(MISTAKEN.replace(old, new)).values():
            query.start()
    assert str(caught.value).startswith(f"{tmp_path}/shop.py:{said}")
    assert "\n" not in str(caught.value)


def test_checkpoints_that_cannot_be_kept_are_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "shop.sql"
    path.write_text(f"""/*
[source.lines]
files = "{tmp_path}"
format = "text"

[sink.shown]
from = "lines"
console = true
*/""")
    (query,) = build(spark, read_pipeline(path), Run("127.0.0.1:1", "nosuch://host/folder", once=True))
    with pytest.raises(PipelineError) as caught:
        query.start()
    assert str(caught.value) == f'{path}:7: shown: No FileSystem for scheme "nosuch"'


def test_reasons_say_what_is_wrong_with_a_value(spark: SparkSession) -> None:
    schema = "id BIGINT NOT NULL, at TIMESTAMP, tags ARRAY<STRING>"
    cases = {
        b'{"id": 1, "at": "2026-03-01T10:00:00Z", "tags": ["a"], "more": 1}': None,
        b'{"id": 1, "tags": null}': None,
        b'{"at": "2026-03-01T10:00:00Z"}': "field id is missing",
        b'{"id": "x", "at": "noon"}': "field id is not bigint, field at is not timestamp",
        b'{"id": 1, "tags": "a"}': "field tags is not array<string>",
        b"[1]": "it is not a JSON object",
        b"5": "it is not a JSON object",
        b'{"id": 1': "it is not JSON",
        b' {"id": 1}\n ': None,
        b"{'id': 1, 'tags': [']}{']}": None,
        b'{"id": 1}{"id": 2}': "something follows the JSON object",
        b'{"id": 1}\n{"id": 2}': "something follows the JSON object",
        b'{"id": 1}, {"id": 2}': "something follows the JSON object",
        b'{"id": 1} and more': "something follows the JSON object",
        b"": "the value is empty",
        b"\xff": "it is not UTF-8",
    }
    rows = spark.createDataFrame([(bytearray(value),) for value in cases], "value BINARY")
    parsed, decoded = decode_text(rows, "json", schema, {})
    found = parsed.select(decoded.reason).collect()
    assert [row[0] for row in found] == list(cases.values())

    lines = {
        b"1,a": None,
        b"x,a": "it is not CSV of id INT, name STRING",
        b"1": "it is not CSV of id INT, name STRING",
    }
    rows = spark.createDataFrame([(bytearray(value),) for value in lines], "value BINARY")
    parsed, decoded = decode_text(rows, "csv", "id INT, name STRING", {})
    found = parsed.select(decoded.reason).collect()
    assert [row[0] for row in found] == list(lines.values())


@pytest.mark.parametrize(("format", "reads"), [("json", 2), ("csv", 1)])
def test_a_record_is_parsed_once_however_often_its_columns_are_used(
    spark: SparkSession, format: str, reads: int
) -> None:
    """JSON is also parsed without its columns, to find text after it."""
    rows, decoded = decode_text(spark.range(1).selectExpr("string(id) AS value"), format, "id INT", {})
    good = rows.where(decoded.reason.isNull()).select(decoded.columns["id"].alias("id"))
    plan = good.where("id > 3").selectExpr("id", "id + 1")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count(f"from_{format}(") == reads


def test_a_row_goes_to_the_one_of_several_topics_that_it_names(spark: SparkSession) -> None:
    options = SinkOptions.parse({"topic": "good,bad", "format": "raw"})
    rows = spark.createDataFrame([("good", "1"), ("bad", "2")], "topic STRING, value STRING")
    assert encode(rows, options, "").collect() == [("good", "1"), ("bad", "2")]
    for slip in ("godo", None):
        rows = spark.createDataFrame([(slip, "3")], "topic STRING, value STRING")
        with pytest.raises(
            PySparkException, match=f"column topic is {slip or 'NULL'}: choose from good, bad"
        ):
            encode(rows, options, "").collect()
    with pytest.raises(
        ConfigError, match="option topic=good,bad is not allowed: each row must name its topic"
    ):
        encode(rows.select("value"), options, "")
