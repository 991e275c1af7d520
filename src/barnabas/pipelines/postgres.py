"""Rows into a PostgreSQL table, each batch once.

A batch is one transaction: its rows, and in the table ``barnabas_batches`` the number of the query's last
batch, by which one that comes again is known. The rows pass through the driver: bound the batches of a large
stream with maxOffsetsPerTrigger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import conninfo, sql
from psycopg.types.json import Jsonb

from barnabas.base.errors import BarnabasError
from barnabas.base.text import without_userinfo
from barnabas.pipelines.options import SinkOptions
from barnabas.spark.debezium import DELETED

#: Asked first: PostgreSQL refuses IF NOT EXISTS, too, to one who may create no tables.
_IS_THERE = "SELECT to_regclass('barnabas_batches') IS NOT NULL"
_CREATE = "CREATE TABLE IF NOT EXISTS barnabas_batches (query TEXT PRIMARY KEY, batch BIGINT NOT NULL)"
#: Affects no row when the batch is written already; waits for another attempt that is just writing it.
_CLAIM = """
INSERT INTO barnabas_batches AS done VALUES (%s, %s)
ON CONFLICT (query) DO UPDATE SET batch = EXCLUDED.batch WHERE done.batch < EXCLUDED.batch
"""


#: The rows of a batch, numbered in their order, of which the last of each key is merged: PostgreSQL itself
#: refuses to change a row twice at once.
_STAGE = "CREATE TEMP TABLE {staged} ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA"
_NUMBER = "ALTER TABLE {staged} ADD barnabas_row BIGSERIAL, ADD {deleted} BOOLEAN"
_MERGE = """
INSERT INTO {table} ({columns}) SELECT {columns} FROM {staged} AS this WHERE NOT EXISTS (
    SELECT FROM {staged} AS later WHERE {same_key} AND later.barnabas_row > this.barnabas_row
) AND this.{deleted} IS NOT TRUE ON CONFLICT ({key}) DO {then}
"""
_DELETE = """
DELETE FROM {table} AS stored USING {staged} AS this WHERE {stored_key} AND this.{deleted} AND NOT EXISTS (
    SELECT FROM {staged} AS later WHERE {same_key} AND later.barnabas_row > this.barnabas_row
)
"""


class PostgresError(BarnabasError):
    """The server cannot be reached, or does not take the rows."""


def write_batch(options: SinkOptions, rows: pa.Table, query: str, number: int) -> None:
    """Write batch `number` of `query`, unless that is done; with a key, a row replaces the last one of it.

    Where the column `_deleted` of a row is true, the row of its key is deleted.

    Raises:
        PostgresError: the server does not take it; the text is the server's, in one line.
    """
    try:
        conninfo.conninfo_to_dict(options.postgres)
    except psycopg.Error:  # whose text may quote a piece of a password
        shown = without_userinfo(options.postgres)
        raise PostgresError(f"option postgres={shown} cannot be read: postgresql://user@host/name") from None
    try:
        with psycopg.connect(options.postgres) as connection, connection.cursor() as cursor:
            if cursor.execute(_IS_THERE).fetchone() != (True,):
                # two queries at a time would both find no table
                cursor.execute("SELECT pg_advisory_xact_lock(hashtext('barnabas_batches'))")
                cursor.execute(_CREATE)
                connection.commit()
            cursor.execute(_CLAIM, (query, number))
            if cursor.rowcount == 1:
                _write(cursor, sql.Identifier(*options.table.split(".")), options.keys, rows)
    except psycopg.Error as error:
        raise PostgresError(f"PostgreSQL, table {options.table}: {' '.join(str(error).split())}") from None


def _write(cursor: psycopg.Cursor[Any], table: sql.Identifier, key: list[str], rows: pa.Table) -> None:
    names = [name for name in rows.column_names if name != DELETED]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    if not key:
        _copy(cursor, table, rows)
        return
    others = [sql.Identifier(name) for name in names if name not in key]
    changes = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
    same = (sql.SQL("later.{0} = this.{0}").format(sql.Identifier(name)) for name in key)
    stored = (sql.SQL("stored.{0} = this.{0}").format(sql.Identifier(name)) for name in key)
    parts = {
        "table": table,
        "staged": sql.Identifier("barnabas_staged"),
        "columns": columns,
        "key": sql.SQL(", ").join(map(sql.Identifier, key)),
        "same_key": sql.SQL(" AND ").join(same),
        "stored_key": sql.SQL(" AND ").join(stored),
        "deleted": sql.Identifier(DELETED),
        "then": sql.SQL("UPDATE SET {}").format(changes) if others else sql.SQL("NOTHING"),
    }
    cursor.execute(sql.SQL(_STAGE).format(**parts))
    cursor.execute(sql.SQL(_NUMBER).format(**parts))
    _copy(cursor, parts["staged"], rows)
    cursor.execute(sql.SQL(_MERGE).format(**parts))
    if DELETED in rows.column_names:
        cursor.execute(sql.SQL(_DELETE).format(**parts))


def _copy(cursor: psycopg.Cursor[Any], table: sql.Composable, rows: pa.Table) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)) as copy:
        for row in zip(*(_values(column) for column in rows.columns), strict=True):
            copy.write_row(row)


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    """A column's values as psycopg takes them: what is nested goes as JSON, but for lists of plain values."""
    values = column.to_pylist()
    kind = column.type
    plain = not pa.types.is_nested(kind) or (
        pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type)
    )
    if plain:
        return iter(values)
    if pa.types.is_map(kind):
        values = [None if value is None else dict(value) for value in values]
    return (None if value is None else Jsonb(value) for value in values)
