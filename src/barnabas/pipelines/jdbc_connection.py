"""Runs SQL statements by JDBC in Spark's JVM, and explains their errors."""

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
    """An open connection to a database, in Spark's JVM.

    Args:
        login: options of Spark's JDBC data source, such as url, user and password.
        table: name of the table to write to.

    Attributes:
        connection: the Java object java.sql.Connection, which the caller closes.
        dialect: Spark's JdbcDialect for this kind of database.

    Raises:
        Py4JJavaError: the connection cannot be opened. The methods raise it if the database rejects a
            statement.
    """

    def __init__(self, jvm: JVMView, login: Mapping[str, str], table: str) -> None:
        _keep_secret(jvm)
        given = jvm.PythonUtils.toScalaMap({**login, "dbtable": table})
        jdbc = jvm.org.apache.spark.sql.execution.datasources.jdbc
        self.dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(login["url"])
        connect = self.dialect.createConnectionFactory(jdbc.JdbcOptionsInWrite(given))
        self.connection: Any = connect.apply(-1)

    def run(self, text: str, *values: object) -> int:
        """Run an SQL statement that changes rows. Return the number of changed rows.

        Args:
            text: the statement, with ``?`` for each parameter.
            values: the values of the parameters, in order: numbers or texts.
        """
        statement = self._prepared(text, *values)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def numbers_and_texts(self, text: str, *values: object) -> list[tuple[int, str]]:
        """Run an SQL query with two columns, a number and a text, and return its rows.

        A NULL text becomes empty.

        Args:
            text: the query, with ``?`` for each parameter.
            values: the values of the parameters, in order: numbers or texts.
        """
        statement = self._prepared(text, *values)
        try:
            found = statement.executeQuery()
            return [(int(found.getLong(1)), str(found.getString(2) or "")) for _ in iter(found.next, False)]
        finally:
            statement.close()

    def columns_of(self, table: str) -> dict[str, str]:
        """Return the SQL type of each column of `table`, for example ``varchar(255)``, by the column's name.

        The names have the spelling of the database. `table` is a name as in an SQL statement, quoted if
        necessary.
        """
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
    """Set the level INFO for Spark's logger that writes passwords at DEBUG.

    This affects only the driver's JVM.
    """
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_TELLTALE, log4j.Level.INFO)


def is_of_a_row(error: Exception, classes: tuple[str, ...]) -> bool:
    """Whether a single row has caused the error, so that the database can accept other rows.

    True if the first two characters (the class) of an SQLSTATE in the error are in `classes`, such as "23".
    """
    return any(state[:2] in classes for state in _states(error))


def _states(error: Exception) -> Iterator[str]:
    """Yield the SQLSTATEs (error codes of SQL, such as "23505") of a Java error.

    A Java error has a chain of causes. A cause that is an SQLException can have a second chain: further
    SQLExceptions, for example one for each rejected row of a batch (`getNextException`). The result has the
    SQLSTATE of every SQLException in these chains (at most `_MAX_CAUSES` of each), "" if it has none. It is
    empty for an error that is not from Java.
    """
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
    """Return the text of the error's innermost Java cause, which is the database's own text.

    If there is no such text, return the explanation of the error (`explain`).
    """
    cause = getattr(error, "java_exception", None)
    for _ in range(_MAX_CAUSES):
        inner = cause.getCause() if cause is not None else None
        if inner is None:
            break
        cause = inner
    said = cause.getMessage() if cause is not None else None
    return str(said) if said else explain(error)
