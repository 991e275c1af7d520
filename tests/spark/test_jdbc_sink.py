"""Batches in a database by JDBC, each once after any crash. The database is Derby,
whose jars are in PySpark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.derby import Derby
from tests.spark.pipeline_run import PipelineRunner

from barnabas.base.errors import ConfigError
from barnabas.pipelines import jdbc
from barnabas.pipelines.jdbc import JdbcError
from barnabas.pipelines.sink_options import SinkOptions


@pytest.fixture
def derby(spark: SparkSession, tmp_path: Path) -> Iterator[Derby]:
    made = Derby(spark, tmp_path)
    made.run("CREATE TABLE people (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20) DEFAULT 'nobody')")
    yield made
    made.stop()


@pytest.fixture
def rows(spark: SparkSession) -> Callable[..., DataFrame]:
    def rows(*ids: int | None, name: str | None = "a") -> DataFrame:
        return spark.createDataFrame([(each, name) for each in ids], "id BIGINT, name STRING")

    return rows


def to_people(derby: Derby, **options: Any) -> SinkOptions:
    return SinkOptions.parse({"jdbc": derby.url, "table": "people", **options})


def test_a_batch_that_comes_again_is_written_once(derby: Derby, rows: Any) -> None:
    sink = to_people(derby)
    for number, batch in ((0, rows(1, 2)), (0, rows(1, 2)), (1, rows(3, name=None)), (0, rows(1, 2))):
        jdbc.write_batch(sink, batch, "query-1", number)
    jdbc.write_batch(sink, rows(4), "query-2", 0)
    assert derby.people == [(1, "a"), (2, "a"), (3, None), (4, "a")]
    assert derby.tables == ["BARNABAS_JDBC_BATCHES", "PEOPLE"]


def test_rows_with_a_key_replace_those_of_the_same_key_and_the_last_of_a_batch_stays(
    derby: Derby, rows: Any
) -> None:
    derby.run("ALTER TABLE people ADD COLUMN city VARCHAR(9) DEFAULT 'Kent'")
    sink = to_people(derby, key="ID", mode="update")
    jdbc.write_batch(sink, rows(1, 2), "query-1", 0)
    derby.run("UPDATE people SET city = 'Boise' WHERE id = 2")
    batch = rows(2, 3, name="b").union(rows(3, name="c")).repartition(1)
    jdbc.write_batch(sink, batch, "query-1", 1)
    assert derby.people == [(1, "a"), (2, "b"), (3, "c")]
    cities = derby.run("SELECT city FROM people ORDER BY id")
    assert cities == [("Kent",), ("Boise",), ("Kent",)], "columns that the rows lack are left alone"


def test_a_row_that_is_deleted_is_gone_unless_a_later_one_brings_it_back(derby: Derby, rows: Any) -> None:
    sink = to_people(derby, key="id")
    jdbc.write_batch(sink, rows(1, 2, 3), "query-1", 0)
    changes = [(1, "b", None), (2, None, True), (3, None, True), (4, None, True), (3, "c", False)]
    batch = rows().sparkSession.createDataFrame(changes, "id BIGINT, name STRING, _deleted BOOLEAN")
    jdbc.write_batch(sink, batch.coalesce(1), "query-1", 1)
    assert derby.people == [(1, "b"), (3, "c")]


def test_nested_values_are_json_beside_rows_that_are_deleted(spark: SparkSession, derby: Derby) -> None:
    derby.run("CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, item VARCHAR(40))")
    orders = spark.sql(
        "SELECT id, named_struct('name', 'pear', 'sizes', array(1, 2)) AS item, id = 2 AS _deleted "
        "FROM VALUES (1L), (2L) AS given(id)"
    )
    jdbc.write_batch(
        SinkOptions.parse({"jdbc": derby.url, "table": "orders", "key": "id"}), orders, "query-1", 0
    )
    assert derby.run("SELECT * FROM orders") == [(1, '{"name":"pear","sizes":[1,2]}')]


def test_values_keep_their_types_and_names_their_spelling(spark: SparkSession, derby: Derby) -> None:
    derby.run(
        'CREATE TABLE kinds ("order" INT, "At" TIMESTAMP, price DECIMAL(9,2), raw BLOB, more CLOB, '
        "yes BOOLEAN)"
    )
    batch = spark.sql(
        "SELECT 7 AS `order`, TIMESTAMP '2026-03-01 10:00:30' AS at, 1.50BD AS PRICE, X'00FF' AS raw, "
        "named_struct('x', 1, 'y', array('z')) AS more, true AS yes "
        "UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL"
    )
    sink = SinkOptions.parse({"jdbc": derby.url, "table": "APP.kinds"})
    jdbc.write_batch(sink, batch, "query-1", 0)
    text = 'SELECT "order", CAST("At" AS CHAR(21)), price, LENGTH(raw), CAST(more AS VARCHAR(30)), yes'
    found = derby.run(f"{text} FROM kinds ORDER BY 1")
    assert [str(value) for value in found[0]] == [
        "7", "2026-03-01 10:00:30.0", "1.50", "2", '{"x":1,"y":["z"]}', "True",
    ]  # fmt: skip
    assert found[1] == (None,) * 6


def test_a_table_may_have_nothing_but_texts(derby: Derby, rows: Any) -> None:
    derby.run("CREATE TABLE words (word VARCHAR(9), letter CHAR(1))")
    sink = SinkOptions.parse({"jdbc": derby.url, "table": "words"})
    jdbc.write_batch(
        sink, rows(1, name="apple").selectExpr("name AS word", "left(name, 1) AS letter"), "q", 0
    )
    jdbc.write_batch(sink, rows(1, name=None).selectExpr("name AS word", "name AS letter"), "q", 1)
    assert derby.run("SELECT * FROM words ORDER BY word") == [("apple", "a"), (None, None)]


def test_a_text_that_is_too_long_for_its_column_is_an_error_and_never_cut(derby: Derby, rows: Any) -> None:
    for key, number in (("", 0), ("id", 1)):
        sink = to_people(derby, key=key)
        with pytest.raises(JdbcError, match="truncation"):
            jdbc.write_batch(sink, rows(1, name="twenty-one characters"), "query-1", number)
    assert derby.people == []


def test_what_does_not_fit_is_named_and_leaves_nothing(derby: Derby, rows: Any) -> None:
    with pytest.raises(ConfigError, match="table people has no column city: it has ID, NAME"):
        jdbc.write_batch(to_people(derby), rows(1).withColumn("city", F.lit("x")), "query-1", 0)
    with pytest.raises(ConfigError, match="option key=name: the rows have no such column: id"):
        jdbc.write_batch(to_people(derby, key="id,name"), rows(1).select("id"), "query-1", 0)
    with pytest.raises(JdbcError, match=r"jdbc:derby:\S+, table people: .*duplicate key") as caught:
        jdbc.write_batch(to_people(derby), rows(5, 1, 1), "query-1", 0)
    assert "\n" not in str(caught.value)
    with pytest.raises(JdbcError, match=r"table nobody: .*'NOBODY' does not exist"):
        jdbc.write_batch(SinkOptions.parse({"jdbc": derby.url, "table": "nobody"}), rows(1), "query-1", 0)
    assert derby.people == []
    jdbc.write_batch(to_people(derby), rows(5), "query-1", 0)
    assert derby.people == [(5, "a")]
    assert derby.tables == ["BARNABAS_JDBC_BATCHES", "PEOPLE"], "the table of the failed attempt is dropped"


class Died(Exception):
    """Simulates the end of the driver."""


@pytest.mark.parametrize("step", ["prepare", "fill", "publish", "_commit", "clean_up"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_dies_at_any_step_neither_loses_nor_doubles_rows(
    derby: Derby, rows: Any, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    sink = to_people(derby, key="id")
    jdbc.write_batch(sink, rows(1, 2), "query-1", 0)
    acts = getattr(jdbc._Attempt, step)

    def die(attempt: Any) -> None:
        if moment == "after":
            acts(attempt)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(jdbc._Attempt, step, die)
        with pytest.raises(Died):
            jdbc.write_batch(sink, rows(2, 3, name="b"), "query-1", 1)
    jdbc.write_batch(sink, rows(2, 3, name="b"), "query-1", 1)
    jdbc.write_batch(sink, rows(3, name="c"), "query-1", 2)
    assert derby.people == [(1, "a"), (2, "b"), (3, "c")]
    assert derby.tables == ["BARNABAS_JDBC_BATCHES", "PEOPLE"]


@pytest.mark.skipif(not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow")
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_driver_and_its_jvm_killed_between_the_steps_neither_lose_nor_double_rows(tmp_path: Path) -> None:
    steps = ["prepare", "fill", "_commit", "publish", "clean_up"]
    for number, step in enumerate(steps):
        done = _victim(tmp_path, str(number), step)
        assert done.returncode == -signal.SIGKILL, done.stderr
    done = _victim(tmp_path, str(len(steps)))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    batches = range(len(steps) + 1)
    events = [[f"{what} {number}"] for number in batches for what in ("new", "at", "old")]
    assert found["events"] == sorted(map(str, events))
    people = [[-1, "old 0"], *([number, f"old {number + 1}"] for number in batches[1:-1])]
    people += [[0, f"at {batches[-1]}"], [batches[-1], f"new {batches[-1]}"]]
    assert found["people"] == sorted(map(str, people))
    assert found["left"] == ["BARNABAS_JDBC_BATCHES"]


def _victim(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.spark.jdbc_victim", str(folder), *arguments]
    return subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )


def test_an_attempt_that_was_taken_for_dead_writes_nothing_any_more(derby: Derby, rows: Any) -> None:
    sink = to_people(derby)
    with jdbc._Attempt(sink, rows(1), "query-1", 0).open() as late:
        late.prepare()
        jdbc.write_batch(sink, rows(1), "query-1", 0)
        late.fill()  # Spark makes the table again
        late.publish()
        late.clean_up()
    with jdbc._Attempt(sink, rows(2), "query-1", 1).open() as late:
        late.prepare()
        late.fill()
        with jdbc._Attempt(sink, rows(2), "query-1", 1).open() as other:
            other.prepare()
            late.publish()
            other.fill()
            other.publish()
            other.clean_up()
            late.clean_up()
    assert derby.people == [(1, "a"), (2, "a")]
    assert derby.tables == ["BARNABAS_JDBC_BATCHES", "PEOPLE"]


def test_the_rows_of_a_task_that_runs_again_are_refused(derby: Derby, rows: Any) -> None:
    with jdbc._Attempt(to_people(derby), rows(1), "query-1", 0).open() as attempt:
        attempt.prepare()
        attempt.fill()
        with pytest.raises(Exception, match="duplicate key"):
            attempt.fill()


def test_the_password_is_in_no_plan(
    spark: SparkSession, derby: Derby, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    sink = to_people(derby, user="APP", password_env="SHOP_PASSWORD")
    jdbc.write_batch(sink, rows(1), "query-1", 0)
    deadline = time.monotonic() + 60
    while not any("jdbc" in plan.lower() or "SaveInto" in plan for plan in _last_plans(spark)):
        assert time.monotonic() < deadline, "no plan was listed"  # Spark does it a moment later
        time.sleep(0.1)
    assert not any("hunter2" in plan for plan in _last_plans(spark))
    assert derby.people == [(1, "a")]


def _last_plans(spark: SparkSession) -> list[str]:
    store = spark._jsparkSession.sharedState().statusStore()
    listed = store.executionsList()
    numbers = range(max(0, listed.size() - 5), listed.size())
    return [str(listed.apply(number).physicalPlanDescription()) for number in numbers]


def test_a_pipeline_writes_changes_to_a_database(
    pipeline: PipelineRunner, derby: Derby, make_topic: Any, feed: Any
) -> None:
    topic = make_topic()
    text = f'''
@source(topic="{topic}", format="json", schema="id BIGINT NOT NULL, name STRING, _deleted BOOLEAN")
def people(rows):
    return rows

@sink(jdbc="{derby.url}", table="people", key="id", mode="update")
def copy(people):
    return people
'''
    feed(topic, ['{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}'])
    pipeline(text)
    assert derby.people == [(1, "a"), (2, "b")]
    feed(topic, ['{"id": 2, "_deleted": true}', '{"id": 3, "name": "c"}'])
    pipeline(text)
    assert derby.people == [(1, "a"), (3, "c")]
