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

from barnabas.errors import ConfigError
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
