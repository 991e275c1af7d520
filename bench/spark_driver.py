"""Runs Spark for the benchmark: `python -m bench.spark_driver JAR...`.

The driver prints `ready`. Then it reads one request for each line, ``[kind, parameters]`` as JSON. It answers
each with a line of figures, or with ``{"error": ...}``. One Spark session runs all requests, so that both
connectors have the same JVM, Python workers and two cores. Like the other drivers, it does not know which
broker it uses.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from barnabas.pipelines.errors import explain
from bench.figures import Figures

CORES = 2
SETTLING_BATCHES = 3  # the first micro-batches of a query load what the others find loaded
PATIENCE_SECONDS = 60.0  # a query that takes so long has lost something


def start(jars: list[str], folder: Path) -> SparkSession:
    """Start Spark with its default settings, as a user's job would."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.jars": ",".join(jars),
        "spark.local.dir": str(folder / "scratch"),
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Jobs:
    """The jobs of the benchmark. Each gets the short name of a data source, and returns figures."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def read(self, connector: str, bootstrap: str, topic: str, records: int) -> Figures:
        """Read all columns of a topic, and discard them."""
        reader = self._spark.read.format(connector).option("kafka.bootstrap.servers", bootstrap)
        rows = reader.option("subscribe", topic).load()
        return _timed(records, lambda: rows.write.format("noop").mode("overwrite").save())

    def write(self, connector: str, bootstrap: str, topic: str, size: int, records: int) -> Figures:
        """Write generated rows to a topic, with one task for each core."""
        rows = _values(self._spark.range(0, records, 1, CORES), "id", size)
        writer = rows.write.format(connector).option("kafka.bootstrap.servers", bootstrap)
        return _timed(records, lambda: writer.option("topic", topic).mode("append").save())

    def stream_write(
        self, connector: str, bootstrap: str, topic: str, size: int, rows: int, batches: int, delivery: str
    ) -> Figures:
        """Write micro-batches of generated `rows` to a topic, with one task for each core."""
        source = self._spark.readStream.format("rate-micro-batch")
        made = source.option("rowsPerBatch", rows).option("numPartitions", CORES).load()
        writer = _values(made, "value", size).writeStream.format(connector)
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        if delivery == "exactly-once":
            writer = writer.option("barnabas.delivery", delivery)
        took = self._run(writer, batches)
        return {"ms/batch": median(took), "records/s": rows / median(took) * 1e3}

    def latency(
        self, connector: str, bootstrap: str, topic: str, sink_topic: str | None, batches: int
    ) -> Figures:
        """Run micro-batches one after the other. Each reads the new records of a topic, and discards or
        writes them.
        """
        servers = {"kafka.bootstrap.servers": bootstrap}
        rows = self._spark.readStream.format(connector).options(**servers, subscribe=topic).load()
        if sink_topic is None:
            writer = rows.writeStream.format("noop")
        else:
            writer = rows.select("value").writeStream.format(connector).options(**servers, topic=sink_topic)
        took = self._run(writer, batches)
        return {"p50 ms": median(took), "lowest ms": min(took)}

    def _run(self, writer: DataStreamWriter, batches: int) -> list[float]:
        """Return the durations of the query's batches in milliseconds, without the first ones."""
        with TemporaryDirectory(dir=self._folder) as checkpoint:
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                took = _batch_times(query, SETTLING_BATCHES + batches)
            finally:
                query.stop()
        time.sleep(0.5)  # what a task that was stopped has handed to its producer may be under way still
        return took[SETTLING_BATCHES:]


def _batch_times(query: StreamingQuery, wanted: int) -> list[float]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if (error := query.exception()) is not None:
            raise RuntimeError(str(error))
        took = [
            progress["durationMs"]["triggerExecution"]
            for progress in query.recentProgress
            if progress["numInputRows"]
        ]
        if len(took) >= wanted:
            return took[:wanted]
        time.sleep(0.25)
    raise RuntimeError(f"{len(took)} of {wanted} micro-batches in {PATIENCE_SECONDS:.0f} s")


def _values(rows: DataFrame, number: str, size: int) -> DataFrame:
    """Return distinct values of `size` bytes that need little CPU time: a number of
    ten digits, and a constant.
    """
    rest = "x" * (size - 10)
    return rows.selectExpr(
        f"CAST(concat(CAST({number} + 1000000000 AS STRING), '{rest}') AS BINARY) AS value"
    )


def _timed(records: int, job: Callable[[], object]) -> Figures:
    started = time.monotonic()
    job()
    return {"records/s": records / (time.monotonic() - started)}


def _answer(jobs: Jobs, request: list[Any]) -> dict[str, Any]:
    kind, parameters = request
    try:
        figures: Figures = getattr(jobs, kind)(**parameters)
        return figures
    except Exception as error:
        # the runner shows this line in the column of who failed
        return {"error": explain(error)}


def main() -> None:
    with TemporaryDirectory(prefix="barnabas-bench-spark-") as name:
        spark = start(sys.argv[1:], Path(name))
        jobs = Jobs(spark, Path(name))
        print("ready", flush=True)
        for line in sys.stdin:  # until it is closed
            print(json.dumps(_answer(jobs, json.loads(line))), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
