"""A database by JDBC, through Spark's JVM: statements, their values and rows, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError

from barnabas.pipelines.errors import explain

_MAX_CAUSES = 20

#: Spark's loggers that write the password to the log, at DEBUG and below.
_TELLTALE = "org.apache.spark.sql.execution.datasources.jdbc.connection"


class Database:
    """An open connection.

    Args:
        login: Spark's options of JDBC.
        table: the one to write to.

    Attributes:
        connection: Java's.
        dialect: Spark's for this database.
    """

    def __init__(self, jvm: JVMView, login: Mapping[str, str], table: str) -> None:
        _keep_secret(jvm)
        given = jvm.PythonUtils.toScalaMap({**login, "dbtable": table})
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
        self.dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(login["url"])
        connect = self.dialect.createConnectionFactory(jdbc.JdbcOptionsInWrite(given))
        self.connection: Any = connect.apply(-1)

    def run(self, text: str, *values: object) -> int:
        """Run a statement. Returns the number of changed rows."""
        statement = self._prepared(text, *values)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def numbers_and_texts(self, text: str, *values: object) -> list[tuple[int, str]]:
        """The rows of a query for a number and a text."""
        statement = self._prepared(text, *values)
        try:
            found = statement.executeQuery()
            return [(int(found.getLong(1)), str(found.getString(2) or "")) for _ in iter(found.next, False)]
        finally:
            statement.close()

    def columns_of(self, table: str) -> dict[str, str]:
        """The columns of `table` as it spells them, each with its type."""
        statement = self.connection.createStatement()
        try:
            shape = statement.executeQuery(f"SELECT * FROM {table} WHERE 1 = 0").getMetaData()
            numbers = range(1, shape.getColumnCount() + 1)
            names = [str(shape.getColumnName(number)) for number in numbers]
            types = [f"{shape.getColumnTypeName(number)}({shape.getPrecision(number)})" for number in numbers]
            return dict(zip(names, types, strict=True))
        finally:
            statement.close()

    def _prepared(self, text: str, *values: object) -> Any:
        statement = self.connection.prepareStatement(text)
        for number, value in enumerate(values, 1):
            if isinstance(value, int):
                statement.setLong(number, value)
            else:
                statement.setString(number, value)
        return statement


def _keep_secret(jvm: JVMView) -> None:
    """Limit the loggers that write passwords to INFO, in this JVM. The JVMs of executors are separate."""
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_TELLTALE, log4j.Level.INFO)


def is_of_a_row(error: Exception, classes: tuple[str, ...]) -> bool:
    """Whether the error is that of a row, by the class of its SQLSTATE: other rows can pass."""
    return any(state[:2] in classes for state in _states(error))


def _states(error: Exception) -> Iterator[str]:
    """The SQLSTATEs of an error, of its causes, and of a driver's further errors of a batch."""
    cause = getattr(error, "java_exception", None)
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return
        with suppress(Py4JError):  # it is no SQLException, and has no such methods
            each = cause
            for _ in range(_MAX_CAUSES):
                yield str(each.getSQLState() or "")
                if (each := each.getNextException()) is None:
                    break
        cause = cause.getCause()


def reason_of(error: Exception) -> str:
    """The database's own text, of the innermost cause."""
    cause = getattr(error, "java_exception", None)
    for _ in range(_MAX_CAUSES):
        inner = cause.getCause() if cause is not None else None
        if inner is None:
            break
        cause = inner
    said = cause.getMessage() if cause is not None else None
    return str(said) if said else explain(error)
