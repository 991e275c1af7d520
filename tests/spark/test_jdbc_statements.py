"""The SQL of the JDBC sink on SQLite and PostgreSQL, too, whose JDBC drivers do not come with Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from barnabas.pipelines import jdbc_statements as sql
from barnabas.pipelines.jdbc_statements import Statements

Row = tuple[Any, ...]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """The URL's subprotocol, and a connection."""
    if request.param == "sqlite":
        opened: Any = sqlite3.connect(":memory:", isolation_level=None)
    else:
        import psycopg

        opened = psycopg.connect(request.getfixturevalue("postgres_server"), autocommit=True)
    with closing(opened):
        tables = ("shop", "staged_1", sql.BATCHES)
        for table in tables:
            opened.execute(f"DROP TABLE IF EXISTS {table}")
        opened.execute(
            'CREATE TABLE shop (id INT NOT NULL, place VARCHAR(9) NOT NULL, "Name" VARCHAR(9) NOT NULL, '
            "extra INT DEFAULT 7, PRIMARY KEY (id, place))"
        )
        yield request.param, opened
        for table in tables:
            opened.execute(f"DROP TABLE IF EXISTS {table}")


def take_over(database: tuple[str, Any], key: list[str], staged: list[Row]) -> list[Row]:
    """Stage rows (id, place, name, number, deletes) and merge them; the table's rows then."""
    kind, opened = database
    columns = ["id", "place", "Name"]
    statements = Statements(kind, "shop", "staged_1", columns, key, lambda name: f'"{name}"')
    for text in statements.create():
        opened.execute(text)
    names = f'id, place, "Name", {sql.ROW}, {sql.DELETES}'
    for row in staged:
        values = ", ".join("NULL" if value is None else repr(value) for value in row)
        opened.execute(f"INSERT INTO staged_1 ({names}) VALUES ({values})")
    for text in statements.merge(deletes=any(row[-1] for row in staged)):
        opened.execute(text)
    opened.execute(statements.drop())
    rows: list[Row] = opened.execute("SELECT * FROM shop ORDER BY id, place").fetchall()
    return rows


def test_rows_are_appended(database: tuple[str, Any]) -> None:
    assert take_over(database, [], [(1, "x", "a", 0, 0), (2, "x", "b", 1, 0)]) == [
        (1, "x", "a", 7),
        (2, "x", "b", 7),
    ]


def test_rows_replace_and_delete_those_of_the_same_key(database: tuple[str, Any]) -> None:
    key = ["id", "place"]
    take_over(database, key, [(1, "x", "a", 0, 0), (1, "y", "b", 1, 0), (2, "x", "c", 2, 0)])
    database[1].execute("UPDATE shop SET extra = 8")
    changes = [(1, "y", "new", 0, 0), (2, "x", None, 1, 1), (3, "x", "d", 2, 0), (4, "x", None, 3, 1)]
    assert take_over(database, key, changes) == [(1, "x", "a", 8), (1, "y", "new", 8), (3, "x", "d", 7)]


def test_a_key_of_all_columns_keeps_what_is_there(database: tuple[str, Any]) -> None:
    key = ["id", "place", "Name"]
    take_over(database, key, [(1, "x", "a", 0, 0)])
    found = take_over(database, key, [(1, "x", "a", 0, 0), (2, "x", "b", 1, 0)])
    assert found == [(1, "x", "a", 7), (2, "x", "b", 7)]


def test_the_rows_of_a_task_that_runs_again_are_refused(database: tuple[str, Any]) -> None:
    with pytest.raises(Exception, match=r"(?i)unique"):
        take_over(database, [], [(1, "x", "a", 0, 0), (1, "y", "a", 0, 0)])


def test_a_batch_is_claimed_once_and_by_the_last_attempt_only(database: tuple[str, Any]) -> None:
    opened = database[1]
    mark = "?" if database[0] == "sqlite" else "%s"

    def run(text: str, *values: object) -> int:
        return int(opened.execute(text.replace("?", mark), values).rowcount)

    opened.execute(sql.CREATE_BATCHES)
    run(sql.ADD, "query", "first")
    run(sql.TAKE_OVER, "second", "query")
    assert run(sql.CLAIM, 0, "query", 0, "first") == 0
    assert run(sql.CLAIM, 0, "query", 0, "second") == 1
    assert run(sql.CLAIM, 0, "query", 0, "second") == 0
    assert run(sql.CLAIM, 1, "query", 1, "second") == 1
    found = opened.execute(sql.FIND.replace("?", mark), ("query",)).fetchall()
    assert [(int(batch), staging) for batch, staging in found] == [(1, "second")]
