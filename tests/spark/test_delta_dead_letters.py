"""Rows that a Delta table rejects become dead letters once. The other rows of their batch are in the table
once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.spark.letters import PEOPLE, MakeTopic, Records, finish, headers
from tests.spark.pipeline_run import PipelineRunner

from barnabas.pipelines.sink_letters import DeadLetters
from barnabas.pipelines.supervisor import Supervisor

ROWS = [
    '{"id": 1, "name": "ann", "age": 40}',
    '{"id": 2, "age": 40}',
    '{"id": 3, "name": "cat", "age": -1}',
    '{"id": 4, "name": "dan", "age": 99999}',
    '{"id": 5, "name": "eve", "age": 1}',
]


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    columns = [pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)]
    made = DeltaTable.create(tmp_path / "people", pa.schema([*columns, pa.field("age", pa.int16())]))
    made.alter.add_constraint({"age": "age > 0"})
    return made


@pytest.fixture
def shop(make_topic: MakeTopic, table: DeltaTable, tmp_path: Path) -> dict[str, str]:
    """Create topics, and return the parameters of a pipeline that writes to the Delta table."""
    return {"source": make_topic(), "bad": make_topic(), "sink": f'delta="{tmp_path}/people"', "more": ""}


def people(table: DeltaTable) -> list[int]:
    table.update_incremental()
    return sorted(pa.table(table.to_pyarrow_table())["id"].to_pylist())


def test_rows_that_a_table_rejects_become_dead_letters_and_the_others_are_written(
    shop: dict[str, str], table: DeltaTable, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(shop["source"], ROWS)
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert people(table) == [1, 5]
    letters = records(shop["bad"], 3)
    assert [json.loads(each.value() or b"")["id"] for each in letters] == [2, 3, 4]
    assert [headers(each)["offset"] for each in letters] == ["1", "2", "3"]
    assert "validation" in headers(letters[1])["message"]
    assert "Can't cast value 99999" in headers(letters[2])["message"]
    assert (status.rows_written, status.rows_rejected) == (5, 3)


def test_a_batch_of_which_all_rows_are_rejected_is_written_once_too(
    shop: dict[str, str], table: DeltaTable, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(shop["source"], ROWS[1:2])
    finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    feed(shop["source"], ROWS[:1])
    finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert people(table) == [1]
    assert len(records(shop["bad"], 1)) == 1


@pytest.mark.parametrize("step", ["made_of", "deliver", "delivered"])
def test_a_driver_that_dies_between_commit_and_dead_letters_neither_loses_nor_doubles_either(
    shop: dict[str, str],
    table: DeltaTable,
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    feed(shop["source"], ROWS)
    name = "deliver" if step == "delivered" else step
    acts: Callable[..., Any] = getattr(DeadLetters, name)
    died: list[str] = []

    def die_once(*arguments: Any) -> Any:
        if died:
            return acts(*arguments)
        died.append(step)
        if step == "delivered":
            acts(*arguments)
        raise RuntimeError("the driver dies")

    monkeypatch.setattr(DeadLetters, name, die_once)
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert died
    assert status.restarts >= 1
    assert people(table) == [1, 5]
    assert len(records(shop["bad"], 3)) == 3


def test_columns_that_do_not_fit_make_no_dead_letters(
    shop: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    text = PEOPLE.format(**shop).replace("age BIGINT", "years BIGINT")
    feed(shop["source"], ROWS[:1])
    supervisor = Supervisor(list(pipeline.queries(text).values()), 0, lambda: 0.0, print)
    while not supervisor.finished:
        supervisor.look()
    (status,) = supervisor.statuses
    assert (status.state, status.rows_rejected) == ("failed", 0)
    assert records(shop["bad"], 0) == []
