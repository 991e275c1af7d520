"""The options of a pipeline, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ConfigError
from barnabas.pipelines.options import PipelineOptions, SourceOptions
from barnabas.pipelines.sink_options import SinkOptions


def test_options_come_with_their_defaults() -> None:
    source = SourceOptions.parse({"topic": "orders", "options": {"maxOffsetsPerTrigger": "10"}})
    assert (source.kind, source.format) == ("topic", "raw")
    sink = SinkOptions.parse({"topic": "counts"})
    assert (sink.kind, sink.format, sink.mode, sink.delivery) == ("topic", "json", "append", "at-least-once")
    assert PipelineOptions.parse({}).restarts == 10


def test_a_watermark_is_a_column_and_a_delay() -> None:
    assert SourceOptions.parse({"topic": "t", "watermark": "at 10 minutes"}).watermark_parts == (
        "at",
        "10 minutes",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topik": "t"}, "option topik=t is not allowed: did you mean topic?"),
        ({"topic": 5}, 'option topic=5 is not allowed: write a text: "..."'),
        (
            {"topic": "t", "options": {"a": 1}},
            "option options.a=1 is not allowed: write a text",
        ),
        ({"topic": "t", "static": 1}, "option static=1 is not allowed: write true or false"),
        (
            {"topic": "t", "refresh": "1 minute"},
            "refresh=1 minute is not allowed: a stream reads new records as they arrive",
        ),
        (
            {"topic": "t", "static": True, "refresh": "soon"},
            "option refresh=soon is not allowed: write a number and a unit",
        ),
        (
            {"topic": "t", "static": True, "refresh": "0 seconds"},
            "option refresh=0 seconds is not allowed: write a number and a unit",
        ),
        ({}, "where the rows come from is given by one of topic, files; here it is none"),
        ({"topic": "t", "files": "f"}, "by one of topic, files; here it is topic and files"),
        ({"topic": "t", "format": "jsn"}, "option format=jsn is not allowed: did you mean json?"),
        ({"files": "f"}, "option format= is not allowed: choose from json, csv"),
        ({"topic": "t", "format": "json"}, "option schema is missing: json needs one"),
        ({"topic": "t", "format": "text", "schema": "a INT"}, "the columns of text are fixed: remove it"),
        ({"topic": "t", "dead_letter": "d"}, "every record is valid as raw: remove it"),
        ({"topic": "t", "watermark": "at"}, "option watermark=at is not allowed: write a column and a delay"),
    ],
)
def test_a_source_that_cannot_be_is_refused_with_the_cure(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse(given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "where the rows go is given by one of topic, parquet, delta, iceberg, postgres, jdbc, console"),
        (
            {"parquet": "p", "key": "id"},
            "option key=id is not allowed: it goes with topic or postgres or jdbc, not with",
        ),
        (
            {"parquet": "p", "mode": "update"},
            "option mode=update is not allowed: choose from append, complete",
        ),
        (
            {"console": True, "partition_by": "a"},
            "it goes with parquet or delta or iceberg, not with console",
        ),
        ({"postgres": "u"}, "option table is missing: name the table to write to"),
        (
            {"postgres": "u", "table": "t", "mode": "update"},
            "option key is missing: mode=update replaces rows",
        ),
        (
            {"iceberg": "shop.sales"},
            "option iceberg=shop.sales is not allowed: write CATALOG.NAMESPACE.TABLE",
        ),
        (
            {"iceberg": "lake.shop.sales", "partition_by": "day(at), truncate(2, item)"},
            "option partition_by=truncate(2 is not allowed: write columns, year(c)",
        ),
        ({"jdbc": "jdbc:derby:d"}, "option table is missing: name the table to write to"),
        ({"jdbc": "derby:d", "table": "t"}, "option jdbc=derby:d is not allowed: write the driver's URL"),
        (
            {"jdbc": "jdbc:derby:d", "table": "t", "mode": "update"},
            "option key is missing: mode=update replaces rows",
        ),
        (
            {"jdbc": "jdbc:derby:d", "table": "t", "options": {"dbTable": "u"}},
            "option options.dbTable=u is not allowed: write it as table",
        ),
        (
            {"topic": "t,u"},
            "option format=json is not allowed: rows for several topics are written as they are",
        ),
        ({"topic": "t", "format": "raw", "key": "id"}, "the column key is the key: remove it"),
        (
            {"topic": "t", "delivery": "exactly"},
            "option delivery=exactly is not allowed: did you mean exactly-once?",
        ),
        (
            {"topic": "t", "mode": "update", "options": {"Barnabas.delivery": "exactly-once"}},
            "option Barnabas.delivery=exactly-once is not allowed: it is the sink's own option delivery",
        ),
        (
            {"parquet": "p", "dead_letter": "bad"},
            "it goes with topic or delta or postgres or jdbc, not with parquet",
        ),
        ({"topic": "t", "dead_letter": "t"}, "the sink writes there: choose another topic"),
        ({"topic": "t", "dead_letter": "a b"}, "option dead_letter=a b is not allowed: write letters"),
        (
            {"topic": "t", "dead_letter": "bad", "dead_letter_limit": 0},
            "option dead_letter_limit=0 is not allowed: write 1 or more",
        ),
        ({"topic": "t", "dead_letter_limit": 5}, "it needs dead_letter: set that too"),
    ],
)
def test_a_sink_that_cannot_be_is_refused_with_the_cure(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse(given)
    assert said in str(caught.value)


def test_brokers_are_named_in_one_place() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers=b:1 .* named by the option bootstrap"):
        PipelineOptions.parse({"kafka": {"bootstrap.servers": "b:1"}})


def test_secrets_are_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"option password=\[hidden\] is not allowed"):
        PipelineOptions.parse({"password": "hunter2"})
    with pytest.raises(ConfigError, match=r"option postgress=postgresql://\[hidden\]@h/db is not allowed"):
        SinkOptions.parse({"postgress": "postgresql://me:hunter2@h/db"})
    for url in (
        "jdbc:derby:d;user=me;password=hunter2",
        "jdbc:mysql://me:hunter2@h/db",
        "jdbc:mysql://me:hun/ter2@h/db",
        "jdbc:postgresql://h/db?user=me&PASSWORD=hunter2",
        "jdbc:oracle:thin:me/hunter2@//h/db",
    ):
        with pytest.raises(ConfigError, match="the password is in BARNABAS_JDBC_PASSWORD") as caught:
            SinkOptions.parse({"jdbc": url, "table": "t"})
        assert "ter2" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"options.password=\[hidden\] is not allowed"):
        SinkOptions.parse({"jdbc": "jdbc:derby:d", "table": "t", "options": {"password": "hunter2"}})
    assert SinkOptions.parse({"jdbc": "jdbc:oracle:thin:@//h/db", "table": "t"}).kind == "jdbc"
    for beside in ({"socket.timeout.ms": 5}, {"bootstrap.servers": "b:1"}):
        with pytest.raises(ConfigError, match=r"option kafka\.") as caught:
            PipelineOptions.parse({"kafka": {"sasl.password": "hunter2", **beside}})
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "trigger", ["10 seconds", "1 minute 30 seconds", "interval 5 minutes", "500 Milliseconds", "0 seconds"]
)
def test_a_trigger_is_what_spark_takes_for_one(trigger: str) -> None:
    assert SinkOptions.parse({"topic": "t", "trigger": trigger}).trigger == trigger


@pytest.mark.parametrize("trigger", ["10 sekunden", "10", "ten seconds", "1 month", "10s"])
def test_any_other_trigger_is_refused_before_a_query_starts(trigger: str) -> None:
    with pytest.raises(
        ConfigError, match=f"option trigger={trigger} is not allowed: write numbers and units"
    ):
        SinkOptions.parse({"topic": "t", "trigger": trigger})
