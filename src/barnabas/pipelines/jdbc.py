"""Rows into a table of any database with a JDBC driver: each batch once, and no row through the driver.

The executors write a batch to a staging table, each task its own part, by Spark's own JDBC writer. Then one
transaction of the driver takes the rows over and notes the number of the batch, in the table
``barnabas_jdbc_batches``: its row of a query has the last batch and the staging table of the last attempt.

Each attempt has a staging table of its own and notes its name before it makes the table. So a driver that
was taken for dead, or a task of it that still writes, cannot add to the rows of the attempt that came after
it: its claim finds another name, and changes nothing. The next attempt drops the table that one left behind.

Batches are noted by the query's id, not by the sink's name: the id lives as long as the checkpoint, which
numbers the batches.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.pipelines import jdbc_statements as sql
from barnabas.pipelines.errors import explain
from barnabas.pipelines.jdbc_drivers import driver_of, subprotocol
from barnabas.pipelines.jdbc_statements import Statements
from barnabas.pipelines.options import SinkOptions
from barnabas.spark.debezium import DELETED

_MAX_CAUSES = 20

#: Spark's loggers that write the password to the log, at DEBUG and below.
_TELLTALE = "org.apache.spark.sql.execution.datasources.jdbc.connection"


class JdbcError(BarnabasError):
    """The database cannot be reached, or does not take the rows."""


def write_batch(options: SinkOptions, rows: DataFrame, query: str, number: int) -> None:
    """Write batch `number` of `query`, unless that is done; with a key, a row replaces the last one of it.

    Where the column `_deleted` of a row is true, the row of its key is deleted.

    Raises:
        JdbcError: the database does not take it; the text is the driver's, in one line.
        ConfigError: the rows have a column that the table lacks, or lack one of the key.
    """
    try:
        with _Attempt(options, rows, query, number).open() as attempt:
            attempt.prepare()
            attempt.fill()
            attempt.take_over()
            attempt.clean_up()
    except (Py4JError, PySparkException) as error:
        said = " ".join(_reason(error).split())
        raise JdbcError(f"{options.jdbc}, table {options.table}: {said}") from None


def _keep_secret(jvm: JVMView) -> None:
    """Have the loggers that write passwords say no more than INFO, in this JVM; executors have their own."""
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_TELLTALE, log4j.Level.INFO)


class _Attempt:
    """One attempt to write a batch; its methods are called in their order."""

    def __init__(self, options: SinkOptions, rows: DataFrame, query: str, number: int) -> None:
        self._options = options
        self._query = query
        self._number = number
        self._deletes = DELETED in rows.columns
        self._rows = rows
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
        self._connection: Any = None
        self._as_clob: dict[str, str] = {}
        self._statements: Statements

    @contextmanager
    def open(self) -> Iterator[_Attempt]:
        _keep_secret(self._jvm)
        given = self._jvm.PythonUtils.toScalaMap({**self._login, "dbtable": self._options.table})
        jdbc = self._jvm.org.apache.spark.sql.execution.datasources.jdbc
        dialect = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._options.jdbc)
        connect = dialect.createConnectionFactory(jdbc.JdbcOptionsInWrite(given))
        self._connection = connect.apply(-1)
        try:
            self._connection.setAutoCommit(True)
            self._statements = Statements(
                subprotocol(self._options.jdbc),
                self._options.table,
                self._staging,
                *self._columns(),
                dialect.quoteIdentifier,
                self._as_clob,
            )
            yield self
        finally:
            with suppress(Py4JError):  # what failed is said already
                if not self._connection.getAutoCommit():
                    self._connection.rollback()
            with suppress(Py4JError):
                self._connection.close()

    def prepare(self) -> None:
        """Note the name of this attempt's staging table, drop the last one's, and make it."""
        found = self._find()
        if found is None:
            self._run(sql.ADD, self._query, self._staging)
        else:
            self._run(sql.TAKE_OVER, self._staging, self._query)
            if found[1]:
                with suppress(Py4JJavaError):  # it is gone, as it mostly is
                    self._run(f"DROP TABLE {found[1]}")
        for statement in self._statements.create():
            self._run(statement)

    def fill(self) -> None:
        """Have the executors write the rows to the staging table.

        Done for a batch that is written already, too: operators before the sink keep their state only then.
        """
        rows = self._rows
        for field in rows.schema.fields:
            if isinstance(field.dataType, (T.ArrayType, T.MapType, T.StructType)):
                rows = rows.withColumn(field.name, F.to_json(F.col(_quoted(field.name))))
        deletes = F.coalesce(F.col(DELETED), F.lit(False)) if self._deletes else F.lit(False)
        rows = rows.withColumn(sql.DELETES, deletes.cast("int")).drop(DELETED)
        rows = rows.withColumn(sql.ROW, F.monotonically_increasing_id())
        writer = _last_of(self._options.keys, rows).write.format("jdbc").options(**self._login)
        writer.option("dbtable", self._staging).mode("append").save()

    def take_over(self) -> None:
        """Claim the batch and take its rows over, in one transaction; nothing if it is written."""
        self._connection.setAutoCommit(False)
        if self._run(sql.CLAIM, self._number, self._query, self._number, self._staging) == 1:
            for statement in self._statements.merge(deletes=self._deletes):
                self._run(statement)
        self._commit()
        self._connection.setAutoCommit(True)

    def clean_up(self) -> None:
        """Drop the staging table; one that stays is dropped by the next batch."""
        with suppress(Py4JJavaError):
            self._run(self._statements.drop())

    def _commit(self) -> None:
        self._connection.commit()

    def _find(self) -> tuple[int, str] | None:
        """The last batch and staging table of this query; the table of all queries is made if need be."""
        try:
            return self._known()
        except Py4JJavaError as error:
            try:
                self._run(sql.CREATE_BATCHES)
            except Py4JJavaError:
                with suppress(Py4JJavaError):  # another query has just made it
                    return self._known()
                raise error from None
            return None

    def _known(self) -> tuple[int, str] | None:
        statement = self._prepared(sql.FIND, self._query)
        try:
            found = statement.executeQuery()
            return (int(found.getLong(1)), str(found.getString(2) or "")) if found.next() else None
        finally:
            statement.close()

    def _columns(self) -> tuple[list[str], list[str]]:
        """The columns of the rows and those of the key, as the table spells them."""
        statement = self._connection.createStatement()
        try:
            shape = statement.executeQuery(f"SELECT * FROM {self._options.table} WHERE 1 = 0").getMetaData()
            numbers = range(1, shape.getColumnCount() + 1)
            names = [str(shape.getColumnName(number)) for number in numbers]
            types = {
                name: f"{shape.getColumnTypeName(number)}({shape.getPrecision(number)})"
                for name, number in zip(names, numbers, strict=True)
            }
        finally:
            statement.close()
        known = {name.lower(): name for name in names}
        given = [name for name in self._rows.columns if name != DELETED]
        for name in given:
            if name.lower() not in known:
                raise ConfigError(
                    f"table {self._options.table} has no column {name}: it has {', '.join(names)}"
                )
        columns, key = [known[name.lower()] for name in given], self._key(given, known)
        if subprotocol(self._options.jdbc) == "derby":
            # Spark calls a NULL of a text a CLOB, which Derby alone takes to be no VARCHAR
            texts = [name for name in columns if types[name].startswith(("VARCHAR(", "CHAR("))]
            self._as_clob = {name: types[name] for name in texts if name not in key}
        return columns, key

    def _key(self, given: list[str], known: dict[str, str]) -> list[str]:
        for name in self._options.keys:
            if name.lower() not in (each.lower() for each in given):
                raise ConfigError(f"option key={name}: the rows have no such column: {', '.join(given)}")
        return [known[name.lower()] for name in self._options.keys]

    def _run(self, text: str, *values: object) -> int:
        statement = self._prepared(text, *values)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def _prepared(self, text: str, *values: object) -> Any:
        statement = self._connection.prepareStatement(text)
        for number, value in enumerate(values, 1):
            if isinstance(value, int):
                statement.setLong(number, value)
            else:
                statement.setString(number, value)
        return statement


def _last_of(key: list[str], rows: DataFrame) -> DataFrame:
    """The last row of each key; all rows where there is none. NULLs are never the same, as in a database."""
    if not key:
        return rows
    names = [F.col(_quoted(name)) for name in key]
    unknown = F.greatest(*(name.isNull() for name in names)) if len(names) > 1 else names[0].isNull()
    same = Window.partitionBy(*names, F.when(unknown, F.col(sql.ROW))).orderBy(F.col(sql.ROW).desc())
    newest = rows.withColumn("barnabas_newest", F.row_number().over(same))
    return newest.where("barnabas_newest = 1").drop("barnabas_newest")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _reason(error: Exception) -> str:
    """What the database says: the innermost cause."""
    cause = getattr(error, "java_exception", None)
    for _ in range(_MAX_CAUSES):
        inner = cause.getCause() if cause is not None else None
        if inner is None:
            break
        cause = inner
    said = cause.getMessage() if cause is not None else None
    return str(said) if said else explain(error)
