"""Derby, a database for tests of JDBC, whose jars are in PySpark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]


class Derby:
    """A database in a folder, open in Spark's JVM."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.url = f"jdbc:derby:{folder}/db"
        self._jvm = spark.sparkContext._jvm
        self._jvm.System.setProperty("derby.stream.error.file", f"{folder}/derby.log")
        self.connect(create=True).close()

    def connect(self, create: bool = False) -> Any:
        driver = self._jvm.org.apache.derby.iapi.jdbc.AutoloadedDriver()
        return driver.connect(
            f"{self.url};create=true" if create else self.url, self._jvm.java.util.Properties()
        )

    def run(self, *statements: str) -> Rows:
        """Run statements, and return the rows of the last one."""
        connection = self.connect()
        try:
            rows: Rows = []
            for text in statements:
                statement = connection.createStatement()
                if statement.execute(text):
                    rows = _rows(statement.getResultSet())
                statement.close()
            return rows
        finally:
            connection.close()

    def stop(self) -> None:
        driver = self._jvm.org.apache.derby.iapi.jdbc.AutoloadedDriver()
        with pytest.raises(Exception, match="08006"):  # as Derby says that it has shut down
            driver.connect(f"{self.url};shutdown=true", self._jvm.java.util.Properties())

    @property
    def people(self) -> Rows:
        return self.run("SELECT id, name FROM people ORDER BY id, name")

    @property
    def tables(self) -> list[str]:
        found = self.run("SELECT tablename FROM sys.systables WHERE tabletype = 'T' ORDER BY 1")
        return [name for (name,) in found]


def _rows(found: Any) -> Rows:
    count = found.getMetaData().getColumnCount()
    rows = []
    while found.next():
        rows.append(tuple(found.getObject(number + 1) for number in range(count)))
    return rows
