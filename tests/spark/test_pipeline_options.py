"""The options of a pipeline's sources and sinks, each with a live broker and real files."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
from confluent_kafka import Message
from tests.spark.pipeline_run import PipelineRunner

MakeTopic = Callable[..., str]
Records = Callable[[str, int], list[Message]]
Feed = Any


def test_files_of_every_format_are_read_as_they_appear(
    make_topic: MakeTopic, pipeline: PipelineRunner, records: Records, tmp_path: Path
) -> None:
    bad = make_topic()
    text = f"""
schema = "id INT NOT NULL, name STRING"

@source(files="{tmp_path}/json", format="json", schema=schema, dead_letter="{bad}",
        options={{"pathGlobFilter": "[0-9]"}})
def from_json(rows):
    return rows

@source(files="{tmp_path}/*.csv", format="csv", schema=schema, options={{"header": "true", "sep": ";"}})
def from_csv(rows):
    return rows

@source(files="{tmp_path}/text", format="text")
def from_text(rows):
    return rows

@source(files="{tmp_path}/parquet", format="parquet", schema=schema)
def from_parquet(rows):
    return rows

@source(files="{tmp_path}/orc", format="orc", schema=schema)
def from_orc(rows):
    return rows

@step
def together(from_json, from_csv, from_text, from_parquet, from_orc):
    made = from_text.selectExpr("length(value) AS id", "value AS name")
    for rows in (from_json, from_csv, from_parquet, from_orc):
        made = made.union(rows.select("id", "name"))
    return made

@sink(parquet="{tmp_path}/all", options={{"compression": "gzip"}})
def all(together):
    return together
"""
    for folder in ("json", "text", "parquet", "orc"):
        (tmp_path / folder).mkdir()
    (tmp_path / "json" / "1").write_text('{"id": 1, "name": "json"}\n\n{"name": "nobody"}\n')
    (tmp_path / "json" / "notes").write_text('{"id": 9, "name": "no number"}\n')
    (tmp_path / "1.csv").write_text("id;name\n2;csv\n")
    (tmp_path / "text" / "1").write_text("text\n")
    columns = pa.table({"id": pa.array([5], pa.int32()), "name": ["parquet"]})
    pa.parquet.write_table(columns, tmp_path / "parquet" / "1.parquet")
    pipeline(text)
    (tmp_path / "2.csv").write_text("id;name\n6;more\n")
    pa.orc.write_table(pa.table({"id": pa.array([7], pa.int32()), "name": ["orc"]}), tmp_path / "orc" / "1")
    pipeline(text)

    found = pa.parquet.read_table(tmp_path / "all").to_pylist()
    assert sorted((row["id"], row["name"]) for row in found) == [
        (1, "json"),
        (2, "csv"),
        (4, "text"),
        (5, "parquet"),
        (6, "more"),
        (7, "orc"),
    ]
    assert all(path.name.endswith(".gz.parquet") for path in (tmp_path / "all").glob("part-*"))
    (letter,) = records(bad, 1)
    assert letter.value() == b'{"name": "nobody"}'
    assert dict(letter.headers())["__barnabas.errors.file"].endswith(f"{tmp_path}/json/1".encode())


def test_raw_records_go_on_as_they_are_and_a_whole_result_is_written_again_and_again(
    make_topic: MakeTopic, feed: Feed, pipeline: PipelineRunner, records: Records
) -> None:
    visits, names, copies, counts = (make_topic() for _ in range(4))
    text = f"""
pipeline(kafka={{"client.id": "shop"}})

@source(topic="{visits}", options={{"includeHeaders": "true", "maxOffsetsPerTrigger": "1"}})
def visits(rows):
    return rows

@source(topic="{names}", format="csv", schema="id STRING, name STRING", static=True)
def names(rows):
    return rows

@step
def named(visits, names):
    return visits.join(names, visits.value.cast("string") == names.id)

@sink(topic="{copies}", format="raw", options={{"kafka.compression.type": "gzip"}})
def copies(visits):
    return visits.select("key", "value", "headers")

@sink(topic="{counts}", mode="complete", key="name")
def counts(named):
    return named.groupBy("name").count()
"""
    feed(names, ["1,Ada", "2,Grace"])
    for visitor in "12":
        feed.send(visits, key=b"\xff", value=visitor.encode(), headers=[("h", b"\xfe")])
    pipeline(text)
    copied = records(copies, 2)
    assert [(each.key(), each.value(), each.headers()) for each in copied] == [
        (b"\xff", b"1", [("h", b"\xfe")]),
        (b"\xff", b"2", [("h", b"\xfe")]),
    ]
    # one record in each batch, and after each all that is counted till then
    found = [(each.key(), json.loads(each.value())["count"]) for each in records(counts, 3)]
    assert found[0] == (b"Ada", 1)
    assert sorted(found[1:]) == [(b"Ada", 1), (b"Grace", 1)]


def test_batches_begin_when_the_trigger_says(
    make_topic: MakeTopic, feed: Feed, pipeline: PipelineRunner, tmp_path: Path
) -> None:
    topic = make_topic()
    text = f"""
@source(topic="{topic}", format="text", options={{"maxOffsetsPerTrigger": "1"}})
def lines(rows):
    return rows

@sink(parquet="{tmp_path}/lines", trigger="2 seconds")
def lines(lines):
    return lines
"""
    feed(topic, "abc")
    query = pipeline.queries(text, once=False)["lines"].start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert [progress["numInputRows"] for progress in batches] == [1, 1, 1]
    # Spark begins a batch at the next whole multiple of the interval, or at once when that is past
    beginnings = [datetime.fromisoformat(progress["timestamp"]).timestamp() // 2 for progress in batches]
    assert len(set(beginnings)) == 3
