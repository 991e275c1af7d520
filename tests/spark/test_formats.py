"""The formats of `barnabas.spark.formats` on a live registry, broker and Spark."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import PipelineRunner

from barnabas.base.errors import ConfigError
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.spark.formats import dead_letters, decode, encode

_numbers = itertools.count()

thorough = pytest.mark.skipif(
    not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow"
)

ORDER = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; optional string item = 2; google.protobuf.Timestamp at = 3; }
"""
SCHEMAS = {
    "protobuf": ORDER,
    "jsonschema": json.dumps(
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
            "required": ["id"],
        }
    ),
    "avro": json.dumps(
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "item", "type": ["null", "string"], "default": None},
            ],
        }
    ),
}


@pytest.fixture(scope="module")
def registry(servers: str) -> Iterator[str]:
    with RegistryServer(RegistrySettings(servers, topic="_schemas-formats"), claim("127.0.0.1:0")) as running:
        yield running.url


@pytest.mark.parametrize(
    "format", [each if each == "protobuf" else pytest.param(each, marks=thorough) for each in SCHEMAS]
)
def test_a_registered_format_goes_both_ways_with_tombstones_and_dead_letters(
    spark: SparkSession, registry: str, format: str
) -> None:
    subject = f"orders-{next(_numbers)}"
    rows = spark.createDataFrame(
        [(1, "apple", False), (2, None, None), (3, "gone", True)], "id BIGINT, item STRING, _deleted BOOLEAN"
    ).coalesce(1)
    records = encode(
        rows, format, key=["id"], schema=SCHEMAS[format], registry=registry, subject=subject
    ).collect()
    assert [row.key for row in records] == ["1", "2", "3"]
    assert records[2].value is None
    bad = (bytearray(b"k"), bytearray(b"bad"))
    raw = spark.createDataFrame(
        [*((bytearray(row.key.encode()), row.value) for row in records), bad], "key BINARY, value BINARY"
    ).coalesce(1)
    decoded = decode(raw, format, registry=registry, subject=subject)
    found = decoded.select("record.id", "record.item", "error").collect()
    assert [tuple(row) for row in found[:3]] == [
        (1, "apple", None),
        (2, None, None),
        (None, None, "the value is NULL"),
    ]
    letters = dead_letters(decoded).collect()
    assert [bytes(row.key) for row in letters] == [b"3", b"k"]
    assert b"not a registered payload" in bytes(letters[1].headers[0].value)
    # without a schema, by the newest one
    again = encode(rows.limit(1), format, key=["id"], registry=registry, subject=subject).collect()
    assert again[0].value == records[0].value


def test_formats_without_a_registry_and_what_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([('{"id": 1}',), ('{"id": "x"}',)], "value STRING").coalesce(1)
    found = decode(rows, "json", schema="id BIGINT NOT NULL").selectExpr("record.id", "error").collect()
    assert [tuple(row) for row in found] == [(1, None), (None, "field id is not bigint")]
    assert decode(rows, "text").columns == ["value", "record", "error"]
    for options, words in (
        ({"format": "xml"}, "choose from json, csv"),
        ({"format": "json"}, "option schema is missing"),
        ({"format": "protobuf", "subject": "s"}, "option registry is missing"),
        ({"format": "csv", "schema": "id INT", "envelope": "debezium"}, "it is debezium, of json"),
        (
            {"format": "json", "schema": "at TIMESTAMP", "envelope": "debezium", "time_unit": "seconds"},
            "time_unit=seconds is not allowed: choose from ms, us, ns",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            decode(rows, **options)
    with pytest.raises(ConfigError, match="the columns are value"):
        encode(rows, key=["id"])


def event(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "source": {"table": "people"}, "ts_ms": 1}


def test_debeziums_changes_are_the_rows_of_their_table(spark: SparkSession) -> None:
    events = [
        event("c", None, {"id": 1, "name": "Ann"}),
        {"schema": {"type": "struct"}, "payload": event("d", {"id": 2}, None)},
        None,
        event("t"),
        event("u", None, {"name": "Nobody"}),
        event("d"),
        {"id": 1},
    ]
    rows = spark.createDataFrame([(each and json.dumps(each),) for each in events], "value STRING")
    decoded = decode(rows.coalesce(1), "json", schema="id BIGINT NOT NULL, name STRING", envelope="debezium")
    assert [tuple(row) for row in decoded.select("record.*", "error").collect()] == [
        (1, "Ann", False, None),
        (2, None, True, None),
        (None, None, None, "no row can say a change of op t"),
        (None, None, None, "field id is missing"),
        (None, None, None, "it deletes a row and does not say which: before is NULL"),
        (None, None, None, "it is not a change event of Debezium: it has no op"),
    ]


@thorough
def test_debeziums_changes_become_rows_of_a_table_and_tombstones_of_a_topic(
    make_topic: Callable[..., str],
    feed: Any,
    pipeline: PipelineRunner,
    records: Callable[[str, int], list[Message]],
    postgres_server: str,
) -> None:
    changes, compacted, bad = make_topic(), make_topic(cleanup_policy="compact"), make_topic()

    ann, bob = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}
    for value in (
        event("c", None, ann),
        {"schema": {"type": "struct"}, "payload": event("r", None, bob)},
        event("u", ann, {**ann, "name": "Anna"}),
        event("d", {"id": 2}, None),
        None,
        event("t"),
        event("c", None, {"name": "Nobody"}),
    ):
        feed.send(changes, value=None if value is None else json.dumps(value).encode())
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE TABLE changed (id BIGINT PRIMARY KEY, name TEXT)")
    text = f"""
@source(topic="{changes}", format="json", schema="id BIGINT NOT NULL, name STRING", envelope="debezium",
        dead_letter="{bad}")
def people(rows):
    return rows

@sink(topic="{compacted}", key="id")
def copy(people):
    return people

@sink(postgres="{postgres_server}", table="changed", key="id")
def table(people):
    return people
"""
    pipeline(text)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        assert connection.execute("SELECT * FROM changed").fetchall() == [(1, "Anna")]
        connection.execute("DROP TABLE changed, barnabas_batches")
    found = [(each.key(), each.value() and json.loads(each.value())) for each in records(compacted, 4)]
    assert found == [(b"1", ann), (b"2", bob), (b"1", {"id": 1, "name": "Anna"}), (b"2", None)]
    letters = [dict(each.headers())["__barnabas.errors.message"] for each in records(bad, 2)]
    assert letters == [b"no row can say a change of op t", b"field id is missing"]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_decimal_with_more_places_than_its_column_is_an_error_and_not_another_number(
    spark: SparkSession, format: str
) -> None:
    prices = ["1.99", "1.999", "2.000", "-0.005", "123456789.5", "12345678.25", None]
    texts = {
        "json": [
            json.dumps({"id": n}) if p is None else f'{{"id": {n}, "price": {p}}}'
            for n, p in enumerate(prices)
        ],
        "csv": [f"{n},{p or ''}" for n, p in enumerate(prices)],
    }[format]
    rows = spark.createDataFrame([(text,) for text in texts], "value STRING").coalesce(1)
    found = decode(rows, format, schema="id INT, price DECIMAL(10,2)")
    assert found.schema["record"].dataType["price"].dataType.simpleString() == "decimal(10,2)"
    told = [(None if p is None else str(p), e) for p, e in found.select("record.price", "error").collect()]
    too_long = "field price is not decimal(10,2)" if format == "json" else "it is not CSV of"
    assert [p for p, _ in told] == ["1.99", None, "2.00", None, None, "12345678.25", None]
    assert told[1][1] == "field price does not fit decimal(10,2): 1.999"
    assert told[3][1] == "field price does not fit decimal(10,2): -0.005"
    assert (told[4][1] or "").startswith(too_long)
    assert [e for _, e in (told[0], told[2], told[5], told[6])] == [None] * 4


TIMES = "id INT, at TIMESTAMP, day DATE, price DECIMAL(10,2)"


def with_schema(names: dict[str, str], row: dict[str, Any]) -> dict[str, Any]:
    """Return an event with the schema that Kafka Connect's JSON converter adds."""
    fields = [{"field": field, "name": name, "type": "int64"} for field, name in names.items()]
    sides = [{"field": side, "type": "struct", "fields": fields} for side in ("before", "after")]
    return {"schema": {"type": "struct", "fields": sides}, "payload": event("c", None, row)}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("io.debezium.time.Timestamp", 1_767_323_045_678),
        ("io.debezium.time.MicroTimestamp", 1_767_323_045_678_000),
        ("io.debezium.time.NanoTimestamp", 1_767_323_045_678_000_999),
        ("org.apache.kafka.connect.data.Timestamp", 1_767_323_045_678),
    ],
)
def test_debeziums_times_have_the_unit_that_their_schema_names(
    spark: SparkSession, name: str, number: int
) -> None:
    change = with_schema(
        {"at": name, "day": "io.debezium.time.Date"}, {"id": 1, "at": number, "day": 20_455, "price": 1.5}
    )
    rows = spark.createDataFrame([(json.dumps(change),)], "value STRING")
    decoded = decode(rows, "json", schema=TIMES, envelope="debezium", time_unit="ns")
    told = decoded.selectExpr("unix_millis(record.at)", "string(record.day)", "string(record.price)", "error")
    assert [tuple(row) for row in told.collect()] == [(1_767_323_045_678, "2026-01-02", "1.50", None)]


def test_debeziums_times_without_a_schema_need_a_unit_and_texts_do_not(spark: SparkSession) -> None:
    changes = [
        event("c", None, {"id": 1, "at": 253_402_300_799_000}),  # the end of time, as many tables have it
        event("c", None, {"id": 2, "at": "2026-01-02T03:04:05.678Z", "day": "2026-01-02"}),
        event("c", None, {"id": 3, "at": -1}),
        event("d", {"id": 4, "at": None}, None),
        event("c", None, {"id": 5, "at": "soon"}),
        event("c", None, {"id": 6, "price": 1.999}),
    ]
    rows = spark.createDataFrame([(json.dumps(each),) for each in changes], "value STRING").coalesce(1)
    told = "record.id", "unix_millis(record.at)", "error"
    no_unit = "field at is a number, and no schema in the event names its unit: set time_unit to ms, us or ns"
    by_default = decode(rows, "json", schema=TIMES, envelope="debezium").selectExpr(*told).collect()
    last = [
        (4, None, None),
        (None, None, "field at is not timestamp"),
        (None, None, "field price does not fit decimal(10,2): 1.999"),
    ]
    second = (2, 1_767_323_045_678, None)
    assert [tuple(row) for row in by_default] == [(None, None, no_unit), second, (None, None, no_unit), *last]
    named = decode(rows, "json", schema=TIMES, envelope="debezium", time_unit="ms").selectExpr(*told)
    assert [tuple(row) for row in named.collect()] == [
        (1, 253_402_300_799_000, None),
        second,
        (3, -1, None),
        *last,
    ]
