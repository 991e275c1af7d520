"""Starts Spark for a pipeline, on this machine or on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from barnabas.pipelines.errors import PipelineError, explain
from barnabas.spark.pyspark_versions import AVAILABLE_NOW
from barnabas.spark.session import FORKED, stderr_to
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
    # Spark's 10 ms cost 6 to 8 % of a core for each query without new records, and 30 ms cost 3 %
    "spark.sql.streaming.pollingDelay": "30ms",
    # an empty headers column is an array of NULLs, which cost square time in small Arrow batches
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    **AVAILABLE_NOW,
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

#: Options for a JVM that loads only classes of the installed Spark. They turn off the verification of these
#: classes, which costs three seconds of CPU time at each start. MetaspaceSize prevents a collection of the
#: whole heap each time that the loaded classes have grown. A JVM ignores an option that it does not have.
TRUSTING_JVM = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-XX:MetaspaceSize=256m"
)
_JVM_DEFAULTS = "spark.driver.defaultJavaOptions"
#: Settings that add other classes to Spark's JVM, or that replace `_JVM_DEFAULTS`.
_OWN_CLASSES = (
    "spark.jars",
    "spark.jars.packages",
    "spark.driver.extraClassPath",
    "spark.driver.defaultJavaOptions",
    "spark.plugins",
)
_OWN_SPARK = ("PYSPARK_SUBMIT_ARGS", "SPARK_CLASSPATH", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_SUBMIT_OPTS")

#: Loggers of PySpark that print what an error says, as JSON with a stack trace, before it is raised.
_LOGGED_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

#: Errors of calls to Spark's JVM: no connection, or any Py4JError during the call.
SPARK_FAILS = (Py4JError, ConnectionError)


def start_session(name: str, folder: Path, master: str, settings: dict[str, str], log: Path) -> SparkSession:
    """Start Spark on `master`, and return its session.

    Spark writes its own files to `folder`, and its output to `log`. `name` is the name of the Spark
    application. `settings` override the defaults. The call sets the environment variable PYSPARK_PYTHON, and
    for a local `master` SPARK_LOCAL_IP, unless they are set already.

    Raises:
        PipelineError: Spark does not start.
    """
    local = master.startswith("local")
    os.environ.setdefault("PYSPARK_PYTHON", worker_python(folder) if local else sys.executable)
    chosen = {**DEFAULTS, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= {
            **_LOCAL,
            **FORKED,
            "spark.local.dir": str(folder / "scratch"),
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
            **jvm_defaults(settings, os.environ),
        }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**chosen, **settings}.items():
        builder = builder.config(key, value)
    for quiet in _LOGGED_TWICE:
        PySparkLogger.getLogger(quiet).disabled = True
    with stderr_to(log):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise PipelineError(
                f"Spark does not start on {master}: {explain(error)}; its log is {log}"
            ) from error


def jvm_defaults(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark setting that lets the driver's JVM start faster; no setting if that is not safe.

    The setting is ``spark.driver.defaultJavaOptions`` with the JVM options `TRUSTING_JVM`. The setting is not
    safe if `settings` or `environment` can add classes that are not from the installed Spark. A user's
    ``spark.driver.extraJavaOptions`` has priority over the JVM options.
    """
    brings = any(settings.get(name) for name in _OWN_CLASSES) or any(map(environment.get, _OWN_SPARK))
    return {} if brings else {_JVM_DEFAULTS: TRUSTING_JVM}


def answers(spark: SparkSession) -> bool:
    """Whether Spark's JVM still runs and answers. Py4J has no separate error for a JVM that has died."""
    try:
        spark.sparkContext._jvm.System.currentTimeMillis()
    except SPARK_FAILS:
        return False
    return True
