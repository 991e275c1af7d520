"""Declares the sinks of Barnabas that write tables. The code that writes is imported with the first batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from barnabas.base.errors import ConfigError
from barnabas.base.text import is_plain_url
from barnabas.pipelines.jdbc_drivers import check_driver
from barnabas.pipelines.sink_options import SinkOptions
from barnabas.pipelines.table_sink import TableSink
from barnabas.spark.option_values import invalid_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.pipelines.sink_letters import DeadLetters

_ICEBERG_PARTITION = re.compile(r"(?:(?:year|month|day|hour|truncate\[[1-9]\d{0,8}\])\([^()]+\)|[^()\[\]]+)")

#: Options of Spark's JDBC writer that are options of the sink.
_OWN_OF_JDBC = {
    "dbtable": "table",
    "driver": "driver",
    "password": "the environment variable of password_env",
    "query": "table",
    "url": "jdbc",
    "user": "user",
}
_SECRET_IN_JDBC = re.compile(r"(?i)(?:password|passwd|pwd|secret|token)\w*\s*=|//[^?;]*@|oracle:\w+:[^@]+@")


class _OwnSink(TableSink):
    """A sink whose function `write_batch` is in the module ``barnabas.pipelines.KIND``."""

    #: whether Spark's tasks write the rows, and not the driver
    by_tasks: ClassVar[bool] = False

    def write_batch(
        self, options: SinkOptions, rows: DataFrame, query: str, number: int, letters: DeadLetters | None
    ) -> None:
        given = rows if self.by_tasks else rows.toArrow()
        import_module(f"barnabas.pipelines.{options.kind}").write_batch(
            options, given, query, number, letters
        )


class Delta(_OwnSink):
    """Writes a Delta table, with the package deltalake."""

    modes = ("append", "complete")
    takes = ("partition_by", "dead_letter")
    shares = True
    package, extra = "deltalake", "delta"


class Iceberg(_OwnSink):
    """Writes an Iceberg table, with PyIceberg."""

    by_tasks = True
    modes = ("append", "complete")
    takes = ("partition_by", "options")
    package, extra = "pyiceberg", "iceberg"

    def check(self, options: SinkOptions) -> None:
        if not re.fullmatch(r"[^.]+(\.[^.]+){2,}", options.iceberg):
            raise invalid_option("iceberg", options.iceberg, "write CATALOG.NAMESPACE.TABLE: lake.shop.sales")
        for each in options.partitions:
            if not _ICEBERG_PARTITION.fullmatch(each):
                hint = "write columns, year(c), month(c), day(c), hour(c) or truncate[N](c), by commas"
                raise invalid_option("partition_by", each, hint)


class Postgres(_OwnSink):
    """Writes a table of PostgreSQL, with psycopg."""

    modes = ("append", "update")
    takes = ("table", "key", "dead_letter")
    shares = True
    package, extra = "psycopg", "postgres"

    def check(self, options: SinkOptions) -> None:
        _check_table(options)
        if "://" in options.postgres and not is_plain_url(options.postgres):
            hint = "in user and password, percent-encode /, ?, #, @ and spaces: postgresql://user@host/name"
            raise invalid_option("postgres", options.postgres, hint)


class Jdbc(_OwnSink):
    """Writes a table of any database, with its JDBC driver."""

    by_tasks = True
    modes = ("append", "update")
    takes = ("table", "key", "dead_letter", "driver", "user", "password_env", "options")

    def check(self, options: SinkOptions) -> None:
        _check_table(options)
        options.password_env = options.password_env or "BARNABAS_JDBC_PASSWORD"
        if not re.fullmatch(r"jdbc:\w+:.+", options.jdbc):
            raise invalid_option("jdbc", options.jdbc, "write the driver's URL: jdbc:mariadb://host/shop")
        # URLs are shown in logs and plans; Oracle's has an @ before the host
        if _SECRET_IN_JDBC.search(options.jdbc):
            hint = f"the user is the option user, and the password is in {options.password_env}"
            raise invalid_option("jdbc", "[hidden]", hint)
        for name, value in options.options.items():
            if name.lower() in _OWN_OF_JDBC:
                hidden = "[hidden]" if name.lower() == "password" else value
                raise invalid_option(f"options.{name}", hidden, f"write it as {_OWN_OF_JDBC[name.lower()]}")

    def check_spark(self, options: SinkOptions, settings: Mapping[str, str]) -> None:
        check_driver(options.jdbc, options.driver, settings)


def _check_table(options: SinkOptions) -> None:
    if not options.table:
        raise ConfigError("option table is missing: name the table to write to")
    if options.mode == "update" and not options.key:
        raise ConfigError("option key is missing: mode=update replaces rows, so name the key's columns")
