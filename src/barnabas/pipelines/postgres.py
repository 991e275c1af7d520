"""Writes rows to a PostgreSQL table, each batch once.

A batch is one transaction. It writes the rows, and stores the number of the query's last batch in the table
``barnabas_batches``. By this number the sink recognizes a repeated batch. The rows pass through the driver:
limit the batches of a large stream with maxOffsetsPerTrigger.

With dead letters, the sink writes a batch under a savepoint. If the server rejects it, the sink writes
smaller and smaller parts, down to single rows. In the same transaction, it stores the dead letters of the
rejected rows in the table ``barnabas_rejected``, until it has sent them.
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
from barnabas.pipelines.bisect import find_rejected
from barnabas.pipelines.sink_letters import DeadLetters, without_origin
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.spark.debezium import DELETED

#: The sink's own tables: the last batch of each query, and dead letters that are not sent yet.
_BATCHES = "barnabas_batches"
_REJECTED = "barnabas_rejected"
#: Runs before CREATE: without the right to create tables, PostgreSQL rejects even IF NOT EXISTS.
_IS_THERE = "SELECT to_regclass(%s) IS NOT NULL"
_CREATE = {
    _BATCHES: "CREATE TABLE IF NOT EXISTS barnabas_batches (query TEXT PRIMARY KEY, batch BIGINT NOT NULL)",
    _REJECTED: "CREATE TABLE IF NOT EXISTS barnabas_rejected "
    "(query TEXT, batch BIGINT, letters BYTEA NOT NULL, PRIMARY KEY (query, batch))",
}
_SET_ASIDE = "INSERT INTO barnabas_rejected VALUES (%s, %s, %s)"
_UNDELIVERED = "SELECT batch, letters FROM barnabas_rejected WHERE query = %s ORDER BY batch"
_DELIVERED = "DELETE FROM barnabas_rejected WHERE query = %s AND batch = %s"
#: Changes no row if the batch is written already. Waits for another attempt that writes the batch now.
_CLAIM = """
INSERT INTO barnabas_batches AS done VALUES (%s, %s)
ON CONFLICT (query) DO UPDATE SET batch = EXCLUDED.batch WHERE done.batch < EXCLUDED.batch
"""


#: SQLSTATEs of further errors that a single row causes: a view's check option, an exception that a trigger
#: raises, a value too large for an index. psycopg's DataError (class 22) and IntegrityError (23) count, too.
_OF_A_ROW = ("44000", "P0001", "54000")

#: A temporary table for the rows of a batch, numbered in their order. Only the last row of each key is
#: merged, because PostgreSQL rejects a statement that changes a row twice.
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
    """The sink cannot reach the server, or the server rejects the rows."""


def write_batch(
    options: SinkOptions, rows: pa.Table, query: str, number: int, letters: DeadLetters | None = None
) -> None:
    """Write batch `number` of `query` to the table, unless it is written already.

    `query` is the query's id, and its batches have rising numbers.

    Without a key, all rows are added. If the sink has a key, a row replaces the stored row with the same key,
    or is added if there is no such row. If the column `_deleted` of a row is true, the stored row with the
    same key is deleted. With `letters`, the rows that the server rejects are left out, and each is sent to
    the dead-letter topic once.

    Raises:
        PostgresError: the server rejects the batch; the text is the server's, in one line.
        TooManyRejectedError: the server rejects more rows than the limit for dead letters.
        DeliveryError: the topic rejects the dead letters.
    """
    try:
        conninfo.conninfo_to_dict(options.postgres)
    except psycopg.Error:  # whose text may quote a piece of a password
        shown = without_userinfo(options.postgres)
        raise PostgresError(f"option postgres={shown} cannot be read: postgresql://user@host/name") from None
    try:
        with psycopg.connect(options.postgres) as connection, connection.cursor() as cursor:
            _make_tables(cursor, [_BATCHES, _REJECTED] if letters else [_BATCHES])
            cursor.execute(_CLAIM, (query, number))
            table = sql.Identifier(*options.table.split("."))
            rejected: dict[int, str] = {}
            if cursor.rowcount == 1:
                if letters is None:
                    _write(cursor, table, options.keys, rows)
                else:
                    rejected = _write_accepted(cursor, table, options.keys, rows, letters)
            if letters is not None:
                if rejected:
                    made = letters.made_of(rows.take(list(rejected)), list(rejected.values()))
                    cursor.execute(_SET_ASIDE, (query, number, made))
                connection.commit()
                letters.add(rejected)
                _deliver(cursor, query, letters)
    except psycopg.Error as error:
        raise PostgresError(f"PostgreSQL, table {options.table}: {_words(error)}") from None


def _make_tables(cursor: psycopg.Cursor[Any], names: list[str]) -> None:
    for name in names:
        if cursor.execute(_IS_THERE, (name,)).fetchone() != (True,):
            # two queries at a time would both find no table
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('barnabas_batches'))")
            cursor.execute(_CREATE[name])
            cursor.connection.commit()


def _write_accepted(
    cursor: psycopg.Cursor[Any], table: sql.Identifier, key: list[str], rows: pa.Table, letters: DeadLetters
) -> dict[int, str]:
    """Write the rows that the server accepts. Return the reason for each rejected row, by the row's index.

    Raises:
        psycopg.Error: the write has failed for another reason than a single row.
        TooManyRejectedError: the server rejects more rows than the limit for dead letters.
    """
    written = without_origin(rows)

    def attempt(start: int, end: int) -> str | None:
        try:
            with cursor.connection.transaction():  # a savepoint
                _write(cursor, table, key, written.slice(start, end - start))
                # those that would be checked at the commit
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not _is_of_a_row(error):
                raise
            return _words(error)
        return None

    return find_rejected(rows.num_rows, attempt, letters.check)


def _deliver(cursor: psycopg.Cursor[Any], query: str, letters: DeadLetters) -> None:
    """Send the stored dead letters of `query`, also of earlier batches, and delete them from the table."""
    for batch, made in cursor.execute(_UNDELIVERED, (query,)).fetchall():
        letters.deliver(query, batch, made)
        cursor.execute(_DELIVERED, (query, batch))
        cursor.connection.commit()


def _is_of_a_row(error: psycopg.Error) -> bool:
    """Whether a single row has caused the error, so that the server can accept the other rows."""
    return isinstance(error, psycopg.DataError | psycopg.IntegrityError) or error.sqlstate in _OF_A_ROW


def _words(error: psycopg.Error) -> str:
    return " ".join(str(error).split())


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
    cursor.execute(sql.SQL("DROP TABLE {staged}").format(**parts))


def _copy(cursor: psycopg.Cursor[Any], table: sql.Composable, rows: pa.Table) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)) as copy:
        for row in zip(*(_values(column) for column in rows.columns), strict=True):
            copy.write_row(row)


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    """Return a column's values for psycopg. Nested values become JSON, except lists of plain values."""
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
