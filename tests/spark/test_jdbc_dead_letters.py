"""Rows that a database rejects by JDBC become dead letters once. The others are in the table once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession
from tests.spark.derby import Derby
from tests.spark.letters import PEOPLE, MakeTopic, Records, finish, headers
from tests.spark.pipeline_run import PipelineRunner

from barnabas.pipelines import jdbc
from barnabas.pipelines.sink_letters import DeadLetters

ROWS = [
    '{"id": 1, "name": "ann", "age": 40}',
    '{"id": 2, "age": 40}',
    '{"id": 3, "name": "cat", "age": -1}',
    '{"id": 4, "name": "dan", "age": 99999}',
    '{"id": 1, "name": "again", "age": 40}',
    '{"id": 6, "name": "much too long", "age": 40}',
    '{"id": 5, "name": "eve", "age": 1}',
]
REASONS = {1: "duplicate key", 2: "NULL", 3: "check constraint", 4: "outside the range", 6: "truncation"}


@pytest.fixture
def derby(spark: SparkSession, tmp_path: Path) -> Iterator[Derby]:
    made = Derby(spark, tmp_path)
    made.run(
        "CREATE TABLE people "
        "(id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(9) NOT NULL, age SMALLINT CHECK (age > 0))"
    )
    yield made
    made.stop()


@pytest.fixture
def shop(make_topic: MakeTopic, derby: Derby) -> dict[str, str]:
    """Create topics, and return the parameters of a pipeline that writes to Derby."""
    return {
        "source": make_topic(),
        "bad": make_topic(),
        "sink": f'jdbc="{derby.url}", table="people"',
        "more": "",
    }


def reasons(letters: list[Message]) -> dict[int, str]:
    return {json.loads(each.value() or b"")["id"]: headers(each)["message"] for each in letters}


def test_rows_that_a_database_rejects_become_dead_letters_and_the_others_are_written(
    shop: dict[str, str], derby: Derby, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(shop["source"], ROWS)
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert derby.people == [(1, "ann"), (5, "eve")]
    letters = records(shop["bad"], len(REASONS))
    found = reasons(letters)
    assert sorted(found) == sorted(REASONS)
    assert all(REASONS[number] in words for number, words in found.items()), found
    assert {headers(each)["offset"] for each in letters} == {"1", "2", "3", "4", "5"}
    assert (status.rows_written, status.rows_rejected) == (7, 5)
    assert derby.tables == ["BARNABAS_JDBC_BATCHES", "BARNABAS_JDBC_REJECTED", "PEOPLE"]
    assert derby.run("SELECT * FROM barnabas_jdbc_rejected") == []


def test_a_rejected_row_leaves_the_row_before_it_of_the_same_key(
    shop: dict[str, str], derby: Derby, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    shop["more"] = ', key="id", mode="update"'
    feed(shop["source"], ['{"id": 1, "name": "ann"}', '{"id": 1, "age": -1}', '{"id": 2, "name": "bob"}'])
    finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert derby.people == [(1, "ann"), (2, "bob")]
    (letter,) = records(shop["bad"], 1)
    assert (letter.key(), json.loads(letter.value() or b"")) == (b"1", {"id": 1, "age": -1})


@pytest.mark.parametrize("step", ["publish", "deliver", "delivered"])
def test_a_driver_that_dies_between_batch_and_dead_letters_neither_loses_nor_doubles_either(
    shop: dict[str, str],
    derby: Derby,
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    feed(shop["source"], ROWS)
    owner: Any = DeadLetters if step == "delivered" else jdbc._Attempt
    name = "deliver" if step == "delivered" else step
    acts: Callable[..., Any] = getattr(owner, name)
    died: list[str] = []

    def die_once(*arguments: Any) -> None:
        if died or step != "deliver":
            acts(*arguments)
        if not died:
            died.append(step)
            raise RuntimeError("the driver dies")

    monkeypatch.setattr(owner, name, die_once)
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert died
    assert status.restarts >= 1
    assert derby.people == [(1, "ann"), (5, "eve")]
    assert sorted(reasons(records(shop["bad"], len(REASONS)))) == sorted(REASONS)
    assert derby.run("SELECT * FROM barnabas_jdbc_rejected") == []


def test_more_rejected_rows_than_the_limit_stop_the_pipeline_and_nothing_is_written(
    shop: dict[str, str], derby: Derby, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(shop["source"], ROWS)
    shop["more"] = ", dead_letter_limit=3"
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert (status.state, status.restarts) == ("failed", 0)
    assert f"more than 3 rows of one batch would go to the dead-letter topic {shop['bad']}" in str(
        status.last_error
    )
    assert derby.people == []
    assert records(shop["bad"], 0) == []


def test_a_column_that_the_table_lacks_makes_no_dead_letters(
    shop: dict[str, str], derby: Derby, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    derby.run("ALTER TABLE people DROP COLUMN age")
    feed(shop["source"], ROWS)
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert (status.state, status.rows_rejected) == ("failed", 0)
    assert "has no column age" in str(status.last_error)
    assert records(shop["bad"], 0) == []
