"""A Spark session on this machine: for the demo, for tests, for trying things out."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

_LOCAL = {
    # the loopback address only, and no web server
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # the first compiler and the simplest collector start soonest; a long-lived session wants neither
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def local_session(
    name: str, folder: Path, *, cores: int = 2, more: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of this process, started when there is none; Spark's own files go to `folder`.

    Spark's Python workers run this interpreter: else they take the PATH's, which lacks our packages.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **_LOCAL,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        **(more or {}),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    return builder.config(map=settings).getOrCreate()
