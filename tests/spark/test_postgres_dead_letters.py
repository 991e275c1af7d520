"""Rows that PostgreSQL rejects become dead letters once. The other rows of their
batch are in the table once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.spark.letters import PEOPLE, MakeTopic, Records, finish, headers
from tests.spark.pipeline_run import PipelineRunner

from barnabas.pipelines.sink_letters import DeadLetters
from barnabas.pipelines.supervisor import Supervisor


@pytest.fixture
def table(postgres_server: str) -> Iterator[Any]:
    """Create the table people in PostgreSQL. Return a cursor."""
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE people "
            "(id BIGINT PRIMARY KEY, name VARCHAR(9) NOT NULL, age SMALLINT CHECK (age > 0))"
        )
        yield cursor
        cursor.execute("DROP TABLE people; DROP TABLE IF EXISTS barnabas_batches, barnabas_rejected")


def names_of(cursor: Any) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = cursor.execute("SELECT id, name FROM people ORDER BY id").fetchall()
    return found


MIXED = [
    '{"id": 1, "name": "ann", "age": 40}',
    '{"id": 2, "name": "much too long", "age": 40}',
    '{"id": 3, "age": 40}',
    '{"id": 4, "name": "dan", "age": -1}',
    '{"id": 5, "name": "eve", "age": 99999}',
    '{"id": 1, "name": "again", "age": 40}',
    '{"id": 6, "name": "nul\\u0000", "age": 40}',
    '{"id": 7, "name": "fay", "age": 1}',
]
REASONS = {
    2: "value too long for type character varying(9)",
    3: 'null value in column "name"',
    4: 'violates check constraint "people_age_check"',
    5: 'value "99999" is out of range for type smallint',
    1: "duplicate key value violates unique constraint",
    6: "NUL (0x00)",
}


@pytest.fixture
def shop(make_topic: MakeTopic, postgres_server: str) -> dict[str, str]:
    """Create topics, and return the parameters of a pipeline that writes to PostgreSQL."""
    sink = f'postgres="{postgres_server}", table="people"'
    return {"source": make_topic(), "bad": make_topic(), "sink": sink, "more": ""}


def test_rows_that_postgresql_rejects_become_dead_letters_and_the_others_are_written(
    shop: dict[str, str], table: Any, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(shop["source"], MIXED)
    text = PEOPLE.format(**shop)
    status = finish(pipeline.queries(text)["copy"])
    assert names_of(table) == [(1, "ann"), (7, "fay")]
    letters = records(shop["bad"], len(REASONS))
    assert [json.loads(each.value() or b"")["id"] for each in letters] == list(REASONS)
    for letter, reason in zip(letters, REASONS.values(), strict=True):
        assert reason in headers(letter)["message"]
    assert json.loads(letters[1].value() or b"") == {"id": 3, "age": 40}, "as the source may read it again"
    origin = {"sink": "copy", "topic": shop["source"], "partition": "0", "offset": "2"}
    assert headers(letters[1]) == {**origin, "message": headers(letters[1])["message"]}
    assert (status.rows_written, status.rows_rejected) == (8, 6)
    assert "NUL" in (status.last_rejection or "")

    feed(shop["source"], ['{"id": 8, "name": "gil"}'])
    finish(pipeline.queries(text)["copy"])
    assert names_of(table)[-1] == (8, "gil")
    assert len(records(shop["bad"], len(REASONS))) == len(REASONS), "no letter comes again"


def test_a_rejected_row_leaves_the_row_before_it_of_the_same_key(
    shop: dict[str, str], table: Any, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    shop["more"] = ', key="id", mode="update"'
    rows = ['{"id": 1, "name": "ann"}', '{"id": 1, "name": "much too long"}', '{"id": 2, "name": "bob"}']
    feed(shop["source"], rows)
    finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert names_of(table) == [(1, "ann"), (2, "bob")]
    (letter,) = records(shop["bad"], 1)
    assert (letter.key(), json.loads(letter.value() or b"")["name"]) == (b"1", "much too long")


@pytest.mark.parametrize("step", ["set aside", "committed", "delivered"])
def test_a_driver_that_dies_between_batch_and_dead_letters_neither_loses_nor_doubles_either(
    shop: dict[str, str],
    table: Any,
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    feed(shop["source"], MIXED)
    died = []

    def die_once(acts: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
        def dying(*arguments: Any) -> Any:
            if died:
                return acts(*arguments)
            died.append(step)
            if not before:
                acts(*arguments)
            raise RuntimeError("the driver dies")

        return dying

    steps = {
        "set aside": (DeadLetters, "made_of", False),
        "committed": (DeadLetters, "deliver", True),
        "delivered": (DeadLetters, "deliver", False),
    }
    owner, name, before = steps[step]
    monkeypatch.setattr(owner, name, die_once(getattr(owner, name), before=before))
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert died and status.restarts >= 1
    assert names_of(table) == [(1, "ann"), (7, "fay")]
    assert len(records(shop["bad"], len(REASONS))) == len(REASONS)
    assert table.execute("SELECT count(*) FROM barnabas_rejected").fetchone() == (0,)
    assert status.rows_rejected == len(REASONS)


def test_a_batch_with_more_rejected_rows_than_the_limit_stops_the_pipeline_and_writes_nothing(
    shop: dict[str, str], table: Any, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(shop["source"], MIXED)
    shop["more"] = ", dead_letter_limit=5"
    status = finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert (status.state, status.restarts) == ("failed", 0), "no restart fixes it"
    assert f"more than 5 rows of one batch would go to the dead-letter topic {shop['bad']}" in str(
        status.last_error
    )
    assert names_of(table) == []
    assert records(shop["bad"], 0) == []
    shop["more"] = ", dead_letter_limit=6"
    assert finish(pipeline.queries(PEOPLE.format(**shop))["copy"]).state == "done"
    assert names_of(table) == [(1, "ann"), (7, "fay")]
    assert len(records(shop["bad"], 6)) == 6


def test_what_is_wrong_with_the_server_or_the_table_makes_no_dead_letters(
    shop: dict[str, str], table: Any, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(shop["source"], MIXED[:1])
    text = "pipeline(restarts=0)" + PEOPLE.format(**shop)
    for harm, hint, words in (
        ("ALTER TABLE people RENAME TO persons", "ALTER TABLE persons RENAME TO people", "does not exist"),
        ("ALTER TABLE people DROP age", "ALTER TABLE people ADD age SMALLINT", 'column "age"'),
    ):
        table.execute(harm)
        supervisor = Supervisor(list(pipeline.queries(text).values()), 0, lambda: 0.0, print)
        while not supervisor.finished:
            supervisor.look()
        table.execute(hint)
        assert words in str(supervisor.statuses[0].last_error)
        assert supervisor.statuses[0].rows_rejected == 0
    assert records(shop["bad"], 0) == []
    finish(pipeline.queries(text)["copy"])
    assert names_of(table) == [(1, "ann")]


def test_a_constraint_that_is_checked_at_the_commit_rejects_its_row_only(
    shop: dict[str, str], table: Any, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    table.execute(
        "CREATE TABLE ages (age SMALLINT PRIMARY KEY); INSERT INTO ages VALUES (40); "
        "ALTER TABLE people ADD FOREIGN KEY (age) REFERENCES ages DEFERRABLE INITIALLY DEFERRED"
    )
    try:
        feed(shop["source"], ['{"id": 1, "name": "ann", "age": 40}', '{"id": 2, "name": "bob", "age": 41}'])
        finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
        assert names_of(table) == [(1, "ann")]
        (letter,) = records(shop["bad"], 1)
        assert "violates foreign key constraint" in headers(letter)["message"]
    finally:
        table.execute("DROP TABLE ages CASCADE")


def test_a_dead_letter_topic_that_is_made_anew_gets_the_next_ones(
    shop: dict[str, str],
    table: Any,
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
    admin: AdminClient,
    make_topic: MakeTopic,
) -> None:
    feed(shop["source"], MIXED[1:2])
    finish(pipeline.queries(PEOPLE.format(**shop))["copy"])
    assert len(records(shop["bad"], 1)) == 1
    admin.delete_topics([shop["bad"]])[shop["bad"]].result(60)
    make_topic(name=shop["bad"])
    feed(shop["source"], MIXED[2:3])
    assert finish(pipeline.queries(PEOPLE.format(**shop))["copy"]).state == "done"
    (letter,) = records(shop["bad"], 1)
    assert json.loads(letter.value() or b"")["id"] == 3
