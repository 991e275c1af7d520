"""Batches in PostgreSQL and Delta, each once, with a real server and real files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.pipelines import delta, postgres
from barnabas.pipelines.delta import DeltaError
from barnabas.pipelines.postgres import PostgresError
from barnabas.pipelines.sink_options import SinkOptions

AT = datetime(2026, 3, 1, 10, 0, 30, tzinfo=UTC)


def rows(*ids: int | None, name: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids)})


@pytest.fixture
def table(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a cursor on the PostgreSQL server. Drop its tables after the test."""
    import psycopg

    with psycopg.connect(postgres_server, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT)")
        yield cursor
        cursor.execute("DROP TABLE people; DROP TABLE IF EXISTS barnabas_batches")


def people(cursor: Any) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = cursor.execute("SELECT id, name FROM people ORDER BY id, name").fetchall()
    return found


def to_people(server: str, **options: str) -> SinkOptions:
    return SinkOptions.parse({"postgres": server, "table": "people", **options})


def test_a_batch_that_comes_again_is_written_once(postgres_server: str, table: Any) -> None:
    sink = to_people(postgres_server)
    for number, batch in ((0, rows(1, 2)), (0, rows(1, 2)), (1, rows(3)), (0, rows(1, 2)), (1, rows(3))):
        postgres.write_batch(sink, batch, "query-1", number)
    assert people(table) == [(1, "a"), (2, "a"), (3, "a")]


def test_batches_are_numbered_by_query(postgres_server: str, table: Any) -> None:
    postgres.write_batch(to_people(postgres_server), rows(1), "query-1", 0)
    postgres.write_batch(to_people(postgres_server), rows(2), "query-2", 0)
    assert people(table) == [(1, "a"), (2, "a")]


def test_a_batch_that_fails_leaves_nothing_and_can_be_written_again(postgres_server: str, table: Any) -> None:
    with pytest.raises(PostgresError, match=r"table people: duplicate key value .* \(id\)=\(1\)"):
        postgres.write_batch(to_people(postgres_server), rows(5, 1, 1), "query-1", 0)
    assert people(table) == []
    postgres.write_batch(to_people(postgres_server), rows(5), "query-1", 0)
    assert people(table) == [(5, "a")]


def test_rows_with_a_key_replace_those_of_the_same_key(postgres_server: str, table: Any) -> None:
    sink = to_people(postgres_server, key="id", mode="update")
    postgres.write_batch(sink, rows(1, 2), "query-1", 0)
    postgres.write_batch(sink, rows(2, 3, name="b"), "query-1", 1)
    assert people(table) == [(1, "a"), (2, "b"), (3, "b")]


def test_of_rows_with_the_same_key_in_one_batch_the_last_one_stays(postgres_server: str, table: Any) -> None:
    table.execute("ALTER TABLE people DROP CONSTRAINT people_pkey, ALTER id DROP NOT NULL, ADD UNIQUE (id)")
    batch = pa.concat_tables([rows(1, 2), rows(2, 1, None, name="b"), rows(1, None, name="c")])
    for mode in ("append", "update"):
        postgres.write_batch(to_people(postgres_server, key="id", mode=mode), batch, mode, 0)
        found = people(table)
        assert found[:2] == [(1, "c"), (2, "b")]
        # NULLs are never the same
        assert [name for _, name in found[2:]] == sorted("bc" * (1 if mode == "append" else 2))


def test_columns_that_rows_with_a_key_lack_get_their_defaults(postgres_server: str, table: Any) -> None:
    table.execute("ALTER TABLE people ADD number INT NOT NULL DEFAULT 7")
    postgres.write_batch(to_people(postgres_server, key="id"), rows(1), "query-1", 0)
    assert table.execute("SELECT id, name, number FROM people").fetchall() == [(1, "a", 7)]


def test_one_who_may_create_no_tables_can_use_those_that_are_there(postgres_server: str, table: Any) -> None:
    postgres.write_batch(to_people(postgres_server), rows(1), "query-1", 0)
    table.execute(
        "CREATE ROLE clerk LOGIN; GRANT SELECT, INSERT, UPDATE ON people, barnabas_batches TO clerk"
    )
    try:
        as_clerk = to_people(postgres_server.replace("tester@", "clerk@"))
        postgres.write_batch(as_clerk, rows(2), "query-1", 1)
        assert people(table) == [(1, "a"), (2, "a")]
    finally:
        table.execute("DROP OWNED BY clerk; DROP ROLE clerk")


def test_a_row_that_is_deleted_is_gone_unless_a_later_one_brings_it_back(
    postgres_server: str, table: Any
) -> None:
    sink = to_people(postgres_server, key="id")
    postgres.write_batch(sink, rows(1, 2, 3), "query-1", 0)
    changes = pa.concat_tables([rows(1, 2, name="b"), rows(2, 4, 3), rows(3, 5, name="c")])
    deleted = pa.array([None, False, True, True, True, False, False])
    postgres.write_batch(sink, changes.append_column("_deleted", deleted), "query-1", 1)
    assert people(table) == [(1, "b"), (3, "c"), (5, "c")]


def test_values_keep_their_types(postgres_server: str, table: Any) -> None:
    table.execute(
        "CREATE TEMP TABLE x (a INT); DROP TABLE x; DROP TABLE IF EXISTS kinds; CREATE TABLE kinds "
        "(at TIMESTAMPTZ, price NUMERIC, raw BYTEA, tags TEXT[], more JSONB, counts JSONB, none INT)"
    )
    batch = pa.table(
        {
            "at": pa.array([AT], pa.timestamp("us", tz="UTC")),
            "price": pa.array([Decimal("1.50")]),
            "raw": pa.array([b"\x00\xff"]),
            "tags": pa.array([["a", "b"]]),
            "more": pa.array([{"x": 1, "y": ["z"]}]),
            "counts": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "none": pa.array([None], pa.int32()),
        }
    )
    sink = SinkOptions.parse({"postgres": postgres_server, "table": "public.kinds"})
    postgres.write_batch(sink, batch, "query-1", 0)
    row = table.execute("SELECT * FROM kinds").fetchone()
    table.execute("DROP TABLE kinds")
    assert row == (AT, Decimal("1.50"), b"\x00\xff", ["a", "b"], {"x": 1, "y": ["z"]}, {"a": 1}, None)


def test_a_server_that_is_not_there_and_a_table_that_is_not_there_are_named(
    postgres_server: str, table: Any
) -> None:
    with pytest.raises(PostgresError, match="PostgreSQL, table t: connection failed: ") as caught:
        nowhere = SinkOptions.parse({"postgres": "postgresql://127.0.0.1:1/x", "table": "t"})
        postgres.write_batch(nowhere, rows(1), "query-1", 0)
    assert "\n" not in str(caught.value)
    with pytest.raises(PostgresError, match='table t: relation "t" does not exist'):
        postgres.write_batch(
            SinkOptions.parse({"postgres": postgres_server, "table": "t"}), rows(1), "query-1", 0
        )


def in_delta(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(delta.DeltaTable(str(path)).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: row["id"])


def test_a_delta_table_gets_each_batch_once(tmp_path: Path) -> None:
    sink = SinkOptions.parse({"delta": str(tmp_path / "t"), "partition_by": "name"})
    for number, batch in ((0, rows(1, 2)), (0, rows(1, 2)), (1, rows(3, name="b")), (0, rows(1, 2))):
        delta.write_batch(sink, batch, "query-1", number)
    delta.write_batch(sink, rows(4), "query-2", 0)
    assert [row["id"] for row in in_delta(tmp_path / "t")] == [1, 2, 3, 4]
    assert (tmp_path / "t" / "name=b").is_dir()


def test_mode_complete_replaces_a_delta_table(tmp_path: Path) -> None:
    sink = SinkOptions.parse({"delta": str(tmp_path / "t"), "mode": "complete"})
    delta.write_batch(sink, rows(1, 2), "query-1", 0)
    delta.write_batch(sink, rows(3), "query-1", 1)
    delta.write_batch(sink, rows(1, 2), "query-1", 0)
    assert [row["id"] for row in in_delta(tmp_path / "t")] == [3]


def test_a_delta_table_of_other_columns_is_named(tmp_path: Path) -> None:
    sink = SinkOptions.parse({"delta": str(tmp_path / "t")})
    delta.write_batch(sink, rows(1), "query-1", 0)
    with pytest.raises(DeltaError, match=f"Delta table {tmp_path}/t: ") as caught:
        delta.write_batch(sink, pa.table({"other": [1]}), "query-1", 1)
    assert "\n" not in str(caught.value)
