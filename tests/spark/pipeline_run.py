"""Runs pipeline files on the tests' only Spark session."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

from barnabas.pipelines.build import Query, Run, build
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.supervisor import Supervisor

HEAD = """
from barnabas.pipelines import pipeline, sink, source, step
from pyspark.sql import functions as F
"""


class PipelineRunner:
    """Runs files that it writes into `folder`. A file that runs again continues from its checkpoints."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder

    def queries(self, text: str, ending: str = "py", *, once: bool = True) -> dict[str, Query]:
        """Return the queries of a file with this text, by name. It removes the views of an earlier file."""
        self.close()
        path = self._folder / f"shop.{ending}"
        path.write_text((HEAD if ending == "py" else "") + text)
        run = Run(self._servers, (self._folder / "checkpoints").as_uri(), once)
        return {query.name: query for query in build(self._spark, read_pipeline(path), run)}

    def __call__(self, text: str, ending: str = "py") -> list[str]:
        """Run a file to its end, and return the names of its queries."""
        made = self.queries(text, ending)
        for query in made.values():  # one by one: each starts Python processes of its own
            assert supervise(query).failed is None
        return list(made)

    def close(self) -> None:
        for view in self._spark.sql("SHOW VIEWS").collect():
            self._spark.catalog.dropTempView(view.viewName)


def supervise(query: Query, restarts: int = 10) -> Supervisor:
    """Run a query to its end. If Spark stops because of a slow Python process, run it again."""
    supervisor = Supervisor([query], restarts, time.monotonic, print)
    while not supervisor.finished:
        time.sleep(0.1)
        supervisor.look()
    return supervisor
