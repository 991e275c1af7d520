"""The SQL of the JDBC sink on SQLite and PostgreSQL, whose JDBC drivers are not in PySpark."""

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
    """Return the name of the database in JDBC URLs, and a connection to it."""
    if request.param == "sqlite":
        opened: Any = sqlite3.connect(":memory:", isolation_level=None)
    else:
        import psycopg

        opened = psycopg.connect(request.getfixturevalue("postgres_server"), autocommit=True)
    with closing(opened):
        tables = ("shop", "staged_1", sql.BATCHES, sql.REJECTED)
        for table in tables:
            opened.execute(f"DROP TABLE IF EXISTS {table}")
        opened.execute(
            'CREATE TABLE shop (id INT NOT NULL, place VARCHAR(9) NOT NULL, "Name" VARCHAR(9) NOT NULL, '
            "extra INT DEFAULT 7, PRIMARY KEY (id, place))"
        )
        yield request.param, opened
        for table in tables:
            opened.execute(f"DROP TABLE IF EXISTS {table}")


def take_over(
    database: tuple[str, Any], key: list[str], staged: list[Row], *parts: tuple[int, int] | None
) -> list[Row]:
    """Stage rows (id, place, name, number, deletes) and merge them, or parts. Return the table's rows
    afterwards.
    """
    kind, opened = database
    columns = ["id", "place", "Name"]
    statements = Statements(kind, "shop", "staged_1", columns, key, lambda name: f'"{name}"')
    for text in statements.create():
        opened.execute(text)
    names = f'id, place, "Name", {sql.ROW}, {sql.DELETES}'
    for row in staged:
        values = ", ".join("NULL" if value is None else repr(value) for value in row)
        opened.execute(f"INSERT INTO staged_1 ({names}) VALUES ({values})")
    for part in parts or (None,):
        for text in statements.merge(deletes=any(row[-1] for row in staged), rows=part):
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


@pytest.mark.parametrize("key", [[], ["id", "place"]])
def test_rows_are_taken_over_in_parts_and_only_those_of_a_part(
    database: tuple[str, Any], key: list[str]
) -> None:
    database[1].execute("INSERT INTO shop VALUES (9, 'x', 'i', 7), (8, 'x', 'h', 7)")
    rows = [(1, "x", "a", 0, 0), (2, "x", "b", 1, 0), (3, "x", "c", 5, 0)]
    changes: list[Row] = [(9, "x", "new", 6, 0), (8, "x", None, 7, 1)] if key else []
    found = take_over(database, key, [*rows, *changes], (0, 0), (5, 7))
    old = [(9, "x", "new", 7)] if key else [(8, "x", "h", 7), (9, "x", "i", 7)]
    assert found == [(1, "x", "a", 7), (3, "x", "c", 7), *old]


def test_dead_letters_are_kept_until_they_are_delivered(database: tuple[str, Any]) -> None:
    kind, opened = database
    mark = "?" if kind == "sqlite" else "%s"

    def run(text: str, *values: object) -> Any:
        return opened.execute(text.replace("?", mark), values)

    run(sql.create_rejected(kind))
    large = "x" * 100_000
    for query, batch in (("a", 7), ("a", 3), ("b", 3)):
        run(sql.SET_ASIDE, query, batch, large)
    assert [(int(n), text) for n, text in run(sql.UNDELIVERED, "a").fetchall()] == [(3, large), (7, large)]
    run(sql.DELIVERED, "a", 3)
    assert [int(n) for n, _ in run(sql.UNDELIVERED, "a").fetchall()] == [7]
    assert [int(n) for n, _ in run(sql.UNDELIVERED, "b").fetchall()] == [3]


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
