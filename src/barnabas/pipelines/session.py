"""The Spark that a pipeline runs on: in this process, or a cluster that it is the driver of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from barnabas.pipelines.errors import PipelineError, explain
from barnabas.spark.session import stderr_to
from barnabas.spark.worker_python import worker_python

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    # as UTC, which every reader of Parquet understands; Spark's own default has been given up by the format
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # the only state store that transformWithState works with; state need not fit into memory
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # a batch that is done again has to be cut into the same tasks, on a cluster of any size: not by its cores
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # an empty headers column is an array of NULLs, which cost square time in small Arrow batches
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

#: What a call of Spark's JVM raises when it cannot be made: a Py4JError of any kind when it was under way.
SPARK_FAILS = (Py4JError, ConnectionError)


def start_session(name: str, folder: Path, master: str, settings: dict[str, str], log: Path) -> SparkSession:
    """Start Spark; its own files go to `folder`, what it says to `log`. `settings` go before the defaults.

    Raises:
        PipelineError: it does not start.
    """
    local = master.startswith("local")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python(folder) if local else sys.executable)
    chosen = {**DEFAULTS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= {
            **_LOCAL,
            "spark.local.dir": str(folder / "scratch"),
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**chosen, **settings}.items():
        builder = builder.config(key, value)
    with stderr_to(log):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise PipelineError(
                f"Spark does not start on {master}: {explain(error)}; its log is {log}"
            ) from error


def answers(spark: SparkSession) -> bool:
    """Whether Spark's JVM is there: Py4J has no error of its own for one that has died."""
    try:
        spark.sparkContext._jvm.System.currentTimeMillis()
    except SPARK_FAILS:
        return False
    return True
