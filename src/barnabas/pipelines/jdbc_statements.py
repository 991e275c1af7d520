"""Makes the SQL statements of the JDBC sink, which all common databases accept.

No statement for "insert or replace" works everywhere: some databases lack MERGE, others ON CONFLICT. So the
sink updates existing rows, inserts the others, and deletes last, all in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

#: The table of batches, with one row for each query. The PostgreSQL sink has a different table.
BATCHES = "barnabas_jdbc_batches"
#: The dead letters of batches that are written, as text, until they are delivered.
REJECTED = "barnabas_jdbc_rejected"
CREATE_BATCHES = (
    f"CREATE TABLE {BATCHES} "
    "(query VARCHAR(64) NOT NULL PRIMARY KEY, batch DECIMAL(20) NOT NULL, staging VARCHAR(64))"
)
FIND = f"SELECT batch, staging FROM {BATCHES} WHERE query = ?"
ADD = f"INSERT INTO {BATCHES} (query, batch, staging) VALUES (?, -1, ?)"
TAKE_OVER = f"UPDATE {BATCHES} SET staging = ? WHERE query = ?"
#: Changes no row when the batch is written, or when another attempt has taken over since.
CLAIM = f"UPDATE {BATCHES} SET batch = ? WHERE query = ? AND batch < ? AND staging = ?"

SET_ASIDE = f"INSERT INTO {REJECTED} (query, batch, letters) VALUES (?, ?, ?)"
UNDELIVERED = f"SELECT batch, letters FROM {REJECTED} WHERE query = ? ORDER BY batch"
DELIVERED = f"DELETE FROM {REJECTED} WHERE query = ? AND batch = ?"
#: A text of any length, by the URL's subprotocol.
_LONG_TEXT = {
    "mariadb": "LONGTEXT",
    "mysql": "LONGTEXT",
    "postgresql": "TEXT",
    "sqlite": "TEXT",
    "sqlserver": "VARCHAR(MAX)",
}

#: Columns of a staging table beside those of the rows: a row's number, and whether it deletes.
ROW, DELETES = "barnabas_row", "barnabas_deletes"

#: How a table is made from a query without its rows, by the URL's subprotocol; else by a condition.
_NO_DATA = ("derby", "db2", "hsqldb")


def create_rejected(subprotocol: str) -> str:
    """Return the statement that creates the table of dead letters.

    `subprotocol` is the kind of database: the part of the JDBC URL after ``jdbc:``, such as ``mariadb``.
    """
    text = _LONG_TEXT.get(subprotocol, "CLOB")
    return f"CREATE TABLE {REJECTED} (query VARCHAR(64) NOT NULL, batch DECIMAL(20) NOT NULL, letters {text})"


@dataclass(frozen=True)
class Statements:
    """The statements for one target table and one staging table.

    Attributes:
        subprotocol: the part of the JDBC URL after ``jdbc:``, such as ``mariadb``.
        table, staging: names as in SQL.
        columns: columns of the rows, in the target's spelling.
        key: the columns that identify a row; empty if the sink has no key.
        quote: makes an SQL identifier of a column's name.
        as_clob: columns that the staging table stores as CLOB, each with the type of the target.
    """

    subprotocol: str
    table: str
    staging: str
    columns: Sequence[str]
    key: Sequence[str]
    quote: Callable[[str], str]
    as_clob: Mapping[str, str] = field(default_factory=dict)

    def create(self) -> list[str]:
        """Return the statements that create the staging table and its indexes.

        The staging table has the target's columns and types. But all of its columns are nullable, because a
        row that deletes a stored row has values only in the key columns. So the table is created from an
        outer join, whose columns are nullable in every database. If a repeated Spark task writes its rows
        again, a unique index rejects them. Then the batch fails, and the next attempt writes the whole batch
        to another staging table.
        """
        alike = [name for name in self.columns if name not in self.as_clob]
        listed = ", ".join(f"shape.{self.quote(name)}" for name in alike)
        outer = f"FROM {self.table} any_row LEFT JOIN {self.table} shape ON 1 = 0"
        add_row = [f"ALTER TABLE {self.staging} ADD {ROW} DECIMAL(20)"]
        if not alike:
            made, add_row = f"CREATE TABLE {self.staging} ({ROW} DECIMAL(20))", []
        elif self.subprotocol == "sqlserver":
            made = f"SELECT {listed} INTO {self.staging} {outer} WHERE 1 = 0"
        elif self.subprotocol in _NO_DATA:
            made = f"CREATE TABLE {self.staging} AS SELECT {listed} {outer} WITH NO DATA"
        else:
            made = f"CREATE TABLE {self.staging} AS SELECT {listed} {outer} WHERE 1 = 0"
        statements = [
            made,
            *(f"ALTER TABLE {self.staging} ADD {self.quote(name)} CLOB" for name in self.as_clob),
            *add_row,
            f"ALTER TABLE {self.staging} ADD {DELETES} SMALLINT",
            f"CREATE UNIQUE INDEX {self.staging}_r ON {self.staging} ({ROW})",
        ]
        if self.key:
            statements.append(f"CREATE INDEX {self.staging}_k ON {self.staging} ({self._names(self.key)})")
        return statements

    def merge(self, *, deletes: bool, rows: tuple[int, int] | None = None) -> list[str]:
        """Return the statements that move the rows of the staging table to the target.

        Args:
            deletes: whether a staged row that is marked as a deletion deletes the target's row with its key.
            rows: the first and the last number of the rows to move (column `ROW`); by default all rows.
        """
        within = f" AND staged.{ROW} BETWEEN {rows[0]} AND {rows[1]}" if rows else ""
        if not self.key:
            return [self._insert(f" WHERE 1 = 1{within}" if rows else "")]
        statements = []
        others = [name for name in self.columns if name not in self.key]
        if others:
            changes = ", ".join(f"{self.quote(name)} = ({self._value(name)})" for name in others)
            statements.append(f"UPDATE {self.table} SET {changes} WHERE EXISTS ({self._match(0)}{within})")
        known = f"SELECT 1 FROM {self.table} known WHERE {self._same('known', 'staged')}"
        statements.append(self._insert(f" WHERE staged.{DELETES} = 0{within} AND NOT EXISTS ({known})"))
        if deletes:
            statements.append(f"DELETE FROM {self.table} WHERE EXISTS ({self._match(1)}{within})")
        return statements

    def empty(self) -> str:
        return f"DELETE FROM {self.staging}"

    def drop(self) -> str:
        return f"DROP TABLE {self.staging}"

    def _insert(self, condition: str) -> str:
        listed = ", ".join(map(self._staged, self.columns))
        names = self._names(self.columns)
        return f"INSERT INTO {self.table} ({names}) SELECT {listed} FROM {self.staging} staged{condition}"

    def _value(self, name: str) -> str:
        same = self._same("staged", self.table)
        return f"SELECT {self._staged(name)} FROM {self.staging} staged WHERE {same}"

    def _staged(self, name: str) -> str:
        value = f"staged.{self.quote(name)}"
        return f"CAST({value} AS {self.as_clob[name]})" if name in self.as_clob else value

    def _match(self, deletes: int) -> str:
        same = self._same("staged", self.table)
        return f"SELECT 1 FROM {self.staging} staged WHERE {same} AND staged.{DELETES} = {deletes}"

    def _same(self, one: str, other: str) -> str:
        pairs = (f"{one}.{self.quote(name)} = {other}.{self.quote(name)}" for name in self.key)
        return " AND ".join(pairs)

    def _names(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self.quote, columns))
