"""Writes each batch once to a table of any database with a JDBC driver. No row passes through Spark's driver.

With Spark's JDBC writer, each task writes its part of a batch to a staging table. Then one transaction of
Spark's driver moves the rows to the target table and stores the number of the batch. The table
``barnabas_jdbc_batches`` has a row for each query: its last batch, and the staging table of the last attempt.

Each attempt to write a batch has its own staging table. It stores the table's name in
``barnabas_jdbc_batches`` before it creates the table. So an older Spark driver that still runs, or one of its
tasks, cannot add rows to the next attempt. The last transaction of the older driver finds the name of another
staging table, and changes nothing. Each attempt drops the staging table of the previous attempt.

If the database rejects a batch and the sink has dead letters, the sink searches for the rejected rows. It
tries to write parts of the batch, down to single rows, and undoes these trials. It uses the table that
rejected the batch: the staging table or the target table. Then it writes the batch without the rejected rows.
In the same transaction, it stores the dead letters in the table ``barnabas_jdbc_rejected``. After it has sent
them, it deletes them there.

The query's id, not the sink's name, identifies the batches. The id exists as long as the checkpoint that
numbers the batches.
"""

from __future__ import annotations

import os
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.pipelines import jdbc_statements as sql
from barnabas.pipelines.bisect import find_rejected
from barnabas.pipelines.jdbc_connection import Database, is_of_a_row, reason_of
from barnabas.pipelines.jdbc_drivers import driver_of, subprotocol
from barnabas.pipelines.jdbc_statements import Statements
from barnabas.pipelines.sink_letters import DeadLetters
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.pipelines.sources import ORIGIN
from barnabas.spark.debezium import DELETED

#: Classes of SQLSTATE that a single row causes: a value, a constraint, a view's check option.
_OF_A_ROW = ("22", "23", "44")


#: Derby cuts a text that is too long for the type of a CAST; for a column it rejects the text.
_LONGEST_OF_DERBY = "VARCHAR(32672)"


class JdbcError(BarnabasError):
    """The sink cannot reach the database, or the database rejects the rows."""


def write_batch(
    options: SinkOptions, rows: DataFrame, query: str, number: int, letters: DeadLetters | None = None
) -> None:
    """Write batch `number` of `query` to the table, unless it is written already.

    `query` is the query's id, and its batches have rising numbers.

    Without a key, all rows are added. If the sink has a key, a row replaces the stored row with the same key,
    or is added if there is no such row. If the column `_deleted` of a row is true, the stored row with the
    same key is deleted. With `letters`, the rows that the database rejects are left out, and each is sent to
    the dead-letter topic once.

    Raises:
        JdbcError: the database rejects the batch; the text is the driver's, in one line.
        ConfigError: the rows have a column that the table lacks, or lack a column of the key.
        TooManyRejectedError: the database rejects more rows than the limit for dead letters.
        DeliveryError: the topic rejects the dead letters.
    """
    try:
        with _Attempt(options, rows, query, number, letters).open() as attempt:
            attempt.prepare()
            attempt.write()
            attempt.deliver()
            attempt.clean_up()
    except (Py4JError, PySparkException) as error:
        said = " ".join(reason_of(error).split())
        raise JdbcError(f"{options.jdbc}, table {options.table}: {said}") from None


class _Attempt:
    """One attempt to write a batch.

    Call `open`, `prepare`, `write`, `deliver` and `clean_up` in this order.
    """

    def __init__(
        self,
        options: SinkOptions,
        rows: DataFrame,
        query: str,
        number: int,
        letters: DeadLetters | None = None,
    ) -> None:
        self._options = options
        self._query = query
        self._number = number
        self._letters = letters
        self._deletes = DELETED in rows.columns
        self._rows = rows.withColumn(sql.ROW, F.monotonically_increasing_id())
        #: reasons of the rejected rows, by row number
        self._rejected: dict[int, str] = {}
        self._jvm: JVMView = rows.sparkSession.sparkContext._jvm
        password = os.environ.get(options.password_env, "")
        self._login = {
            **options.options,
            "url": options.jdbc,
            "driver": driver_of(options.jdbc, options.driver),
            **({"user": options.user} if options.user else {}),
            **({"password": password} if password else {}),
        }
        self._staging = f"barnabas_{uuid.uuid4().hex[:16]}"
        self._database: Database
        self._connection: Any = None
        self._as_clob: dict[str, str] = {}
        self._statements: Statements

    @contextmanager
    def open(self) -> Iterator[_Attempt]:
        self._database = Database(self._jvm, self._login, self._options.table)
        self._connection = self._database.connection
        try:
            self._connection.setAutoCommit(True)
            self._statements = Statements(
                subprotocol(self._options.jdbc),
                self._options.table,
                self._staging,
                *self._columns(),
                self._database.dialect.quoteIdentifier,
                self._as_clob,
            )
            if self._letters is not None:
                self._rows.persist()  # a row has to keep its number
            yield self
        finally:
            if self._letters is not None:
                self._rows.unpersist()
            with suppress(Py4JError):  # what failed is said already
                if not self._connection.getAutoCommit():
                    self._connection.rollback()
            with suppress(Py4JError):
                self._connection.close()

    def prepare(self) -> None:
        """Create a staging table, and drop the staging table of the previous attempt.

        Before both, store the new table's name in the table of batches. With dead letters, also create the
        table of rejected rows if it is missing.
        """
        found = self._find_batch()
        if found is None:
            self._database.run(sql.ADD, self._query, self._staging)
        else:
            self._database.run(sql.TAKE_OVER, self._staging, self._query)
            if found[1]:
                with suppress(Py4JJavaError):  # it is gone, as it mostly is
                    self._database.run(f"DROP TABLE {found[1]}")
        for statement in self._statements.create():
            self._database.run(statement)
        if self._letters is not None:
            self._make_table_of_rejected()

    def write(self) -> None:
        """Fill the staging table and move its rows to the target table.

        Repeat this without the rows that the database rejects. Raises the database's error if the sink has no
        dead letters, or no single row is the cause.
        """
        while True:
            try:
                self.fill()
            except (Py4JError, PySparkException) as error:
                self._leave_out(self._rejected_at_staging(error), error)
                continue
            try:
                self.publish()
            except Py4JJavaError as error:
                self._leave_out(self._rejected_at_take_over(error), error)
                continue
            return

    def fill(self) -> None:
        """Let Spark's tasks write the rows to the staging table.

        Also call this for a batch that is written already, because it makes Spark run the operators before
        the sink. If stateful operators did not run, they would lose their state.

        Raises:
            Py4JError, PySparkException: Spark fails, or the database rejects a row.
        """
        self._stage(self._accepted())

    def _accepted(self) -> DataFrame:
        """Return the rows that are not rejected; of rows with the same key, only the last one."""
        rows = self._rows
        if self._rejected:
            rows = rows.where(~F.col(sql.ROW).isin(list(self._rejected)))
        return _last_of(self._options.keys, rows)

    def _stage(self, rows: DataFrame) -> None:
        rows = rows.drop(ORIGIN)
        for field in rows.schema.fields:
            if isinstance(field.dataType, (T.ArrayType, T.MapType, T.StructType)):
                rows = rows.withColumn(field.name, F.to_json(F.col(_quoted(field.name))))
        deletes = F.coalesce(F.col(DELETED), F.lit(False)) if self._deletes else F.lit(False)
        rows = rows.withColumn(sql.DELETES, deletes.cast("int")).drop(DELETED)
        writer = rows.write.format("jdbc").options(**self._login)
        writer.option("dbtable", self._staging).mode("append").save()

    def publish(self) -> None:
        """In one transaction, store the batch's number and move the staging table's rows to the target.

        Change nothing if the batch is written already, or a newer attempt has begun.
        """
        self._connection.setAutoCommit(False)
        if self._database.run(sql.CLAIM, self._number, self._query, self._number, self._staging) == 1:
            for statement in self._statements.merge(deletes=self._deletes):
                self._database.run(statement)
            if self._letters is not None and self._rejected:
                made = b64encode(self._letters.made_of(*self._rejected_rows())).decode()
                self._database.run(sql.SET_ASIDE, self._query, self._number, made)
        else:
            self._rejected.clear()  # they were told of when the batch was written
        self._commit()
        self._connection.setAutoCommit(True)

    def deliver(self) -> None:
        """Send the dead letters that this and earlier attempts have stored."""
        if self._letters is None:
            return
        self._letters.add(self._rejected)
        for batch, made in self._undelivered():
            self._letters.deliver(self._query, batch, b64decode(made))
            self._database.run(sql.DELIVERED, self._query, batch)

    def clean_up(self) -> None:
        """Drop the staging table. If this fails, the next batch drops it."""
        with suppress(Py4JJavaError):
            self._database.run(self._statements.drop())

    # --- the rows that the database rejects ---

    def _rejected_rows(self) -> tuple[pa.Table, list[str]]:
        numbers = sorted(self._rejected)
        rows = self._rows.where(F.col(sql.ROW).isin(numbers)).orderBy(sql.ROW).drop(sql.ROW)
        return rows.toArrow(), [self._rejected[number] for number in numbers]

    def _leave_out(self, found: dict[int, str], error: Exception) -> None:
        """Add rows to the rejected rows, and empty the staging table.

        `found` maps the number of each row to the reason. If it is empty, raise `error`.
        """
        if not found:
            raise error
        self._rejected |= found
        self._database.run(self._statements.empty())

    def _rejected_at_staging(self, error: Exception) -> dict[int, str]:
        # the staging table has an index of its own and no other constraint
        if self._letters is None or not is_of_a_row(error, ("22",)):
            return {}
        rows = self._accepted().persist()

        def attempt(first: int, last: int) -> str | None:
            self._database.run(self._statements.empty())
            try:
                self._stage(rows.where(F.col(sql.ROW).between(first, last)).coalesce(1))
            except (Py4JError, PySparkException) as error:
                if not is_of_a_row(error, ("22",)):
                    raise
                return reason_of(error)
            return None

        try:
            return self._search(rows, attempt)
        finally:
            rows.unpersist()

    def _rejected_at_take_over(self, error: Exception) -> dict[int, str]:
        if self._letters is None or not is_of_a_row(error, _OF_A_ROW):
            return {}
        self._connection.rollback()

        def attempt(first: int, last: int) -> str | None:
            before = self._connection.setSavepoint()
            try:
                for statement in self._statements.merge(deletes=self._deletes, rows=(first, last)):
                    self._database.run(statement)
            except Py4JJavaError as error:
                if not is_of_a_row(error, _OF_A_ROW):
                    raise
                self._connection.rollback(before)
                return reason_of(error)
            return None

        try:
            return self._search(self._accepted(), attempt)
        finally:
            self._connection.rollback()
            self._connection.setAutoCommit(True)

    def _search(self, rows: DataFrame, attempt: Callable[[int, int], str | None]) -> dict[int, str]:
        """Return the reason for each row that the database rejects, by the row's number (column `sql.ROW`).

        `attempt` is called with the numbers of the first and the last row of a part of `rows`, both
        inclusive. It tries to write the part. It returns the reason if the database rejects the part, and
        None if not. Raises TooManyRejectedError above the limit for dead letters.
        """
        assert self._letters is not None
        check, before = self._letters.check, len(self._rejected)
        numbers = sorted(rows.select(sql.ROW).toArrow()[sql.ROW].to_pylist())
        found = find_rejected(
            len(numbers),
            lambda start, end: attempt(numbers[start], numbers[end - 1]),
            lambda count, reason: check(before + count, reason),
        )
        return {numbers[index]: reason for index, reason in found.items()}

    def _make_table_of_rejected(self) -> None:
        try:
            self._undelivered()
        except Py4JJavaError:
            with suppress(Py4JJavaError):  # another query has just made it
                self._database.run(sql.create_rejected(subprotocol(self._options.jdbc)))
            self._undelivered()

    def _undelivered(self) -> list[tuple[int, str]]:
        return self._database.numbers_and_texts(sql.UNDELIVERED, self._query)

    # --- the database ---

    def _commit(self) -> None:
        self._connection.commit()

    def _find_batch(self) -> tuple[int, str] | None:
        """Return the number of the query's last batch and the staging table; None if the query has no batch.

        If the table of batches does not exist, create it. Raises Py4JJavaError if that fails.
        """
        try:
            return self._known()
        except Py4JJavaError as error:
            try:
                self._database.run(sql.CREATE_BATCHES)
            except Py4JJavaError:
                with suppress(Py4JJavaError):  # another query has just made it
                    return self._known()
                raise error from None
            return None

    def _known(self) -> tuple[int, str] | None:
        found = self._database.numbers_and_texts(sql.FIND, self._query)
        return found[0] if found else None

    def _columns(self) -> tuple[list[str], list[str]]:
        """Return the columns of the rows, and the columns of the key, in the table's spelling.

        Raises ConfigError if the table lacks a column of the rows, or the rows lack a column of the key.
        """
        types = self._database.columns_of(self._options.table)
        names = list(types)
        known = {name.lower(): name for name in names}
        given = [name for name in self._rows.columns if name not in (DELETED, ORIGIN, sql.ROW)]
        for name in given:
            if name.lower() not in known:
                raise ConfigError(
                    f"table {self._options.table} has no column {name}: it has {', '.join(names)}"
                )
        columns, key = [known[name.lower()] for name in given], self._key(given, known)
        if subprotocol(self._options.jdbc) == "derby":
            # Spark calls a NULL of a text a CLOB, which Derby alone takes to be no VARCHAR
            texts = [name for name in columns if types[name].startswith(("VARCHAR(", "CHAR("))]
            self._as_clob = {name: _LONGEST_OF_DERBY for name in texts if name not in key}
        return columns, key

    def _key(self, given: list[str], known: dict[str, str]) -> list[str]:
        for name in self._options.keys:
            if name.lower() not in (each.lower() for each in given):
                raise ConfigError(f"option key={name}: the rows have no such column: {', '.join(given)}")
        return [known[name.lower()] for name in self._options.keys]


def _last_of(key: list[str], rows: DataFrame) -> DataFrame:
    """Return the last row of each key, by the row number (`sql.ROW`). Without key columns, return all rows.

    Rows with a NULL in the key are all kept, because NULLs are not equal in a database.
    """
    if not key:
        return rows
    names = [F.col(_quoted(name)) for name in key]
    unknown = F.greatest(*(name.isNull() for name in names)) if len(names) > 1 else names[0].isNull()
    same = Window.partitionBy(*names, F.when(unknown, F.col(sql.ROW))).orderBy(F.col(sql.ROW).desc())
    newest = rows.withColumn("barnabas_newest", F.row_number().over(same))
    return newest.where("barnabas_newest = 1").drop("barnabas_newest")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
