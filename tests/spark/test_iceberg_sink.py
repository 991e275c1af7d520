"""Batches in an Iceberg table, each once after any crash, with a SQL catalog and a local warehouse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.pipeline_run import PipelineRunner

from barnabas.base.errors import ConfigError
from barnabas.pipelines import iceberg
from barnabas.pipelines.iceberg import IcebergError
from barnabas.pipelines.sink_options import SinkOptions


class Lake:
    """A catalog in a file, and tables in a folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "warehouse").mkdir()
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": (folder / "warehouse").as_uri(),
        }

    @property
    def catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake", **self.properties)

    def sink(self, **options: Any) -> SinkOptions:
        return SinkOptions.parse({"iceberg": "lake.shop.people", "options": self.properties, **options})

    @property
    def people(self) -> list[tuple[Any, ...]]:
        found = self.catalog.load_table("shop.people").scan().to_arrow().to_pylist()
        return sorted(tuple(row.values()) for row in found)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    yield Lake(tmp_path)


@pytest.fixture
def rows(spark: SparkSession) -> Callable[..., DataFrame]:
    def rows(*ids: int, name: str = "a") -> DataFrame:
        return spark.createDataFrame([(each, name) for each in ids], "id BIGINT, name STRING")

    return rows


def test_a_batch_that_comes_again_is_written_once(lake: Lake, rows: Any) -> None:
    for number, batch in ((0, rows(1, 2)), (0, rows(1, 2)), (1, rows(3)), (0, rows(1, 2)), (1, rows(3))):
        iceberg.write_batch(lake.sink(), batch, "query-1", number)
    iceberg.write_batch(lake.sink(), rows(4), "query-2", 0)
    assert lake.people == [(1, "a"), (2, "a"), (3, "a"), (4, "a")]
    table = lake.catalog.load_table("shop.people")
    told = [(each.summary["barnabas.query"], each.summary["barnabas.batch"]) for each in table.snapshots()]
    assert told == [("query-1", "0"), ("query-1", "1"), ("query-2", "0")]


def test_a_batch_without_rows_is_remembered_too(lake: Lake, rows: Any) -> None:
    iceberg.write_batch(lake.sink(), rows(1).where("id = 2"), "query-1", 0)
    iceberg.write_batch(lake.sink(), rows(1), "query-1", 0)
    assert lake.people == []
    iceberg.write_batch(lake.sink(), rows(1), "query-1", 1)
    assert lake.people == [(1, "a")]


def test_mode_complete_replaces_all_rows(lake: Lake, rows: Any) -> None:
    sink = lake.sink(mode="complete")
    for number, batch in ((0, rows(1, 2)), (1, rows(3)), (0, rows(1, 2))):
        iceberg.write_batch(sink, batch, "query-1", number)
    assert lake.people == [(3, "a")]


def test_values_keep_their_types(spark: SparkSession, lake: Lake) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # as pipelines have it
    try:
        batch = spark.sql(
            "SELECT 1.50BD AS price, X'00FF' AS raw, TIMESTAMP '2026-03-01 10:00:30Z' AS at, "
            "DATE '2026-03-01' AS day, array('a') AS tags, "
            "named_struct('x', 1) AS more, map('k', 2) AS counts"
        )
        iceberg.write_batch(lake.sink(), batch, "query-1", 0)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    ((price, raw, at, day, tags, more, counts),) = lake.people
    assert (price, raw, at.isoformat()) == (Decimal("1.50"), b"\x00\xff", "2026-03-01T10:00:30+00:00")
    assert (day.isoformat(), tags, more, dict(counts)) == ("2026-03-01", ["a"], {"x": 1}, {"k": 2})


class Died(Exception):
    """Simulates the end of the driver."""


@pytest.mark.parametrize("step", ["_write", "_commit"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_dies_at_any_step_neither_loses_nor_doubles_rows(
    lake: Lake, rows: Any, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    iceberg.write_batch(lake.sink(), rows(1), "query-1", 0)
    acts = getattr(iceberg, step)

    def die(*arguments: Any) -> None:
        if moment == "after":
            acts(*arguments)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(iceberg, step, die)
        with pytest.raises((Died, IcebergError), match="Died"):
            iceberg.write_batch(lake.sink(), rows(2, 3), "query-1", 1)
    iceberg.write_batch(lake.sink(), rows(2, 3), "query-1", 1)
    assert lake.people == [(1, "a"), (2, "a"), (3, "a")]


@pytest.mark.skipif(not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow")
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_driver_and_its_jvm_killed_between_the_steps_neither_lose_nor_double_rows(tmp_path: Path) -> None:
    ends = [("_make", "after"), ("_write", "before"), ("_write", "after"), ("_commit", "after")]
    for number, end in enumerate(ends):
        last = max(0, number - 1)  # the table is made by the first batch
        done = _victim(tmp_path, str(last), *end)
        assert done.returncode == -signal.SIGKILL, done.stderr
    done = _victim(tmp_path, str(len(ends) - 1))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == [[number, name] for number in range(len(ends)) for name in "ab"]


def _victim(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.spark.iceberg_victim", str(folder), *arguments]
    return subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )


def test_of_two_drivers_with_the_same_batch_one_finds_it_done(
    lake: Lake, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.write_batch(lake.sink(), rows(1), "query-1", 0)
    commits = iceberg._commit

    def late(*arguments: Any) -> bool:
        monkeypatch.setattr(iceberg, "_commit", commits)
        iceberg.write_batch(lake.sink(), rows(2), "query-1", 1)
        return commits(*arguments)

    monkeypatch.setattr(iceberg, "_commit", late)
    iceberg.write_batch(lake.sink(), rows(2), "query-1", 1)
    assert lake.people == [(1, "a"), (2, "a")]
    table = lake.catalog.load_table("shop.people")
    assert [name for name in table.properties if name.startswith("commit.")] == []
    attempts = Path(table.location().removeprefix("file://"), "data/barnabas-query-1").glob("1-*")
    assert len(list(attempts)) == 1, "the files of the other are removed"


def test_a_commit_of_another_writer_is_no_obstacle(
    lake: Lake, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.write_batch(lake.sink(), rows(1), "query-1", 0)
    commits = iceberg._commit

    def late(*arguments: Any) -> bool:
        monkeypatch.setattr(iceberg, "_commit", commits)
        iceberg.write_batch(lake.sink(), rows(9), "query-2", 0)
        return commits(*arguments)

    monkeypatch.setattr(iceberg, "_commit", late)
    iceberg.write_batch(lake.sink(), rows(2), "query-1", 1)
    assert lake.people == [(1, "a"), (2, "a"), (9, "a")]


def test_what_the_table_does_not_take_is_said_in_one_line(spark: SparkSession, lake: Lake, rows: Any) -> None:

    iceberg.write_batch(lake.sink(), rows(1), "query-1", 0)
    with pytest.raises(IcebergError, match=r"Iceberg table lake\.shop\.people: ") as caught:
        iceberg.write_batch(lake.sink(), spark.sql("SELECT 'x' AS other"), "query-1", 1)
    assert "\n" not in str(caught.value)


def test_a_partitioned_table_gets_files_of_one_partition_each(spark: SparkSession, lake: Lake) -> None:
    sink = lake.sink(iceberg="lake.shop.sales", partition_by="day(at), truncate[2](item), shop")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # as pipelines have it
    try:
        for number, items in enumerate((("apple", "apricot", "pear", None), ("a/b=%3A\u00e9", "fig"))):
            rows = [
                (item, shop, f"2026-03-0{1 + hour // 24} {hour % 24:02}:59:59.999999Z")
                for item in items
                for shop in (1, None)
                for hour in (0, 23, 24)
            ]
            batch = spark.createDataFrame(rows, "item STRING, shop INT, at STRING")
            batch = batch.withColumn("at", F.to_timestamp("at")).repartition(3)
            for _ in "two times":
                iceberg.write_batch(sink, batch, "query-1", number)
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    table = lake.catalog.load_table("shop.sales")
    assert table.scan().to_arrow().num_rows == 36
    partitions = [task.file.partition for task in table.scan().plan_files()]
    assert len(partitions) == len(set(map(repr, partitions))) == 2 * 2 * (3 + 2)
    found = table.scan("item = 'pear' AND shop = 1 AND at >= '2026-03-02T00:00:00+00:00'")
    assert found.to_arrow().num_rows == 1 and len(list(found.plan_files())) == 1
    assert table.scan("item IS NULL AND shop IS NULL").to_arrow().num_rows == 3
    assert table.scan("item = 'a/b=%3A\u00e9'").to_arrow().num_rows == 6


def test_partitions_that_files_do_not_tell_are_refused(lake: Lake, rows: Any) -> None:
    from pyiceberg.transforms import BucketTransform

    by_name = lake.sink(partition_by="name")
    long = "x" * 5_000  # of such values Parquet has no bounds
    said = r"shop\.people: it is partitioned by name .*column name has 5,000 bytes.*no bounds"
    with pytest.raises(ConfigError, match=said):
        iceberg.write_batch(by_name, rows(1, name=long), "query-1", 0)
    assert lake.people == []
    iceberg.write_batch(by_name, rows(1), "query-1", 0)
    with lake.catalog.load_table("shop.people").update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "id_bucket")
    with pytest.raises(ConfigError, match=r"by id_bucket \(bucket\[4\]\): only identity, year"):
        iceberg.write_batch(by_name, rows(2), "query-1", 1)
    assert lake.people == [(1, "a")]


def test_a_pipeline_writes_to_an_iceberg_table(
    pipeline: PipelineRunner, lake: Lake, make_topic: Any, feed: Any
) -> None:
    topic = make_topic()
    text = f"""
@source(topic="{topic}", format="json", schema="id BIGINT NOT NULL, name STRING")
def people(rows):
    return rows

@sink(iceberg="lake.shop.people", options={lake.properties!r})
def copy(people):
    return people
"""
    feed(topic, ['{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}'])
    pipeline(text)
    feed(topic, ['{"id": 3, "name": "c"}'])
    pipeline(text)
    assert lake.people == [(1, "a"), (2, "b"), (3, "c")]
