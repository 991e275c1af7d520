"""Starts Spark sessions on this machine, for the demo, tests and experiments."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from barnabas.base.errors import BarnabasError
from barnabas.spark.pyspark_versions import AVAILABLE_NOW
from barnabas.spark.worker_python import worker_python

_JAVA = 17

#: The environment variables that Spark sets for a Python data source each time a stream starts.
_PUT_BY_STREAMS = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_LOCAL = {
    # the loopback address only, and no web server
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # the first compiler and the simplest collector start soonest; a long-lived session wants neither
    _JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    **AVAILABLE_NOW,
}

#: Makes Spark fork workers that have imported their modules already (`barnabas.spark.worker_daemon`). Use it
#: only if Spark runs on this machine: a machine of a cluster may not have Barnabas.
FORKED = {"spark.python.daemon.module": "barnabas.spark.worker_daemon"}


class JavaMissingError(BarnabasError):
    """Spark cannot find Java, or its version is too old."""


def check_java() -> None:
    """Raise JavaMissingError unless Spark can find Java 17 or newer, by JAVA_HOME or the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    hint = f"install a JRE {_JAVA} or newer, or set JAVA_HOME to one"
    try:
        said = subprocess.run([java or "java", "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        raise JavaMissingError(f"Spark needs Java, and {java or 'java'} does not run: {hint}") from None
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < _JAVA:
        found = said.splitlines()[0] if said else "unknown"
        raise JavaMissingError(f"Spark needs Java {_JAVA}, and {java} is {found}: {hint}")


def start_spark(
    name: str,
    folder: Path,
    *,
    cores: int = 2,
    log: Path | None = None,
    java_options: str = "",
    more: Mapping[str, str] | None = None,
) -> SparkContext:
    """Start Spark on this machine for this process, or return the Spark that already runs.

    The call sets environment variables, so that Spark's Python workers use this interpreter. The interpreter
    of the PATH may lack packages.

    Args:
        name: name of the Spark application.
        folder: folder for Spark's own files.
        cores: number of tasks that run at the same time.
        log: file for the stderr of Spark and its workers; None for this process's stderr.
        java_options: additional options of the JVM.
        more: additional settings of Spark, which override the defaults.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python(folder)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **_LOCAL,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        **(more or {}),
    }
    settings[_JAVA_OPTIONS] = f"{settings[_JAVA_OPTIONS]} {java_options}".strip()
    configuration = SparkConf().setMaster(f"local[{cores}]").setAppName(name).setAll(list(settings.items()))
    with stderr_to(log):
        return SparkContext.getOrCreate(configuration)


def let_streams_start_together(spark: SparkSession) -> None:
    """Work around a race in Spark, so that several streams of the data source can start at the same time.

    Call this before the first stream starts. In Spark 4.3 (PythonStreamingSourceRunner), all streams of a JVM
    change the same map of environment variables without a lock. If two streams add the same key at the same
    time, the map gets a wrong size. Then Spark cannot serialize tasks until it is restarted: "Illegal size 5
    of collection, expected 6". This function adds the keys first. A stream then only changes their values.
    """
    source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("barnabas")
    environment = source.dataSourceCls().envVars()
    for name, value in _PUT_BY_STREAMS.items():
        environment.putIfAbsent(name, value)


@contextlib.contextmanager
def stderr_to(path: Path | None) -> Iterator[None]:
    """Within this context, append the stderr of this process and of new processes to the file `path`.

    If `path` is None, stderr does not change.
    """
    if path is None:
        yield
        return
    stderr = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
