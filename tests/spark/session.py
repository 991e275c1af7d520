"""A Spark session of this process."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from barnabas.spark.session import FORKED, let_streams_start_together, start_spark


def local_session(name: str, folder: Path, *, cores: int = 2) -> SparkSession:
    start_spark(name, folder, cores=cores, more=FORKED)
    session = SparkSession.builder.getOrCreate()
    let_streams_start_together(session)
    return session
