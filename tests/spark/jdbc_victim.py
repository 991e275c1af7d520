"""Writes batches to a database in a folder.

At a step of the last batch it kills itself and its JVM with SIGKILL.

Arguments: the folder, the last batch's number, and the step. Without a step, it prints the table at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.spark.processes import children, kill
from tests.spark.session import local_session

from barnabas.pipelines import jdbc
from barnabas.pipelines.sink_options import SinkOptions


def main(folder: Path, last: int, step: str) -> None:
    spark = local_session("victim", folder / "spark", cores=1)
    driver = spark.sparkContext._jvm.org.apache.derby.iapi.jdbc.AutoloadedDriver()
    spark.sparkContext._jvm.System.setProperty("derby.stream.error.file", f"{folder}/derby.log")
    url = f"jdbc:derby:{folder}/db"
    connection = driver.connect(f"{url};create=true", spark.sparkContext._jvm.java.util.Properties())
    if not connection.getMetaData().getTables(None, None, "PEOPLE", None).next():
        statement = connection.createStatement()
        statement.execute("CREATE TABLE people (id BIGINT PRIMARY KEY, name VARCHAR(20))")
        statement.execute("CREATE TABLE events (name VARCHAR(20))")
    sinks = {
        "people": SinkOptions.parse({"jdbc": url, "table": "people", "key": "id", "mode": "update"}),
        "events": SinkOptions.parse({"jdbc": url, "table": "events"}),
    }
    for number in range(last + 1):
        for name, sink in sinks.items():
            if number == last and name == "events" and step:
                _die_after(step)
            rows = [(number, f"new {number}"), (0, f"at {number}"), (number - 1, f"old {number}")]
            batch = spark.createDataFrame(rows, "id BIGINT, name STRING").coalesce(1)
            jdbc.write_batch(sink, batch if name == "people" else batch.select("name"), name, number)
    found = {name: sorted(map(str, _rows(connection, name))) for name in sinks}
    tables = connection.getMetaData().getTables(None, None, "BARNABAS%", None)
    found["left"] = [tables.getString("TABLE_NAME") for _ in iter(tables.next, False)]
    print(json.dumps(found))
    spark.stop()


def _rows(connection: Any, table: str) -> list[list[object]]:
    found = connection.createStatement().executeQuery(f"SELECT * FROM {table}")
    columns = range(1, found.getMetaData().getColumnCount() + 1)
    return [[found.getObject(number) for number in columns] for _ in iter(found.next, False)]


def _die_after(step: str) -> None:
    """Kill the process after `step` of the next batch; for `_commit`, before it."""
    acts = getattr(jdbc._Attempt, step)

    def die(attempt: jdbc._Attempt) -> None:
        if step != "_commit":
            acts(attempt)
        for each in children(os.getpid()):
            kill(each)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(jdbc._Attempt, step, die)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
