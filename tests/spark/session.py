"""A Spark session of this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark_python import forking_python

from barnabas.spark import session as starting
from barnabas.spark.session import FORKED, let_streams_start_together, start_spark


def local_session(name: str, folder: Path, *, cores: int = 2) -> SparkSession:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "worker_python", lambda folder: forking_python())
        start_spark(name, folder, cores=cores, more=FORKED)
    session = SparkSession.builder.getOrCreate()
    let_streams_start_together(session)
    return session
