"""Streams that start at the same moment share a map of Spark, to which they must not add entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from barnabas.spark.session import let_streams_start_together


def test_a_stream_finds_all_that_it_would_add_to_the_environment_of_its_source(
    spark: SparkSession, servers: str, make_topic: Callable[..., str], feed: Any, tmp_path: Path
) -> None:
    topic = make_topic()
    feed(topic, range(1))
    source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("barnabas")
    environment = source.dataSourceCls().envVars()
    for name in list(environment):
        if name.startswith("SPARK_"):  # as it was before the first stream
            environment.remove(name)
    let_streams_start_together(spark)
    names = set(environment)

    reading = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", servers)
    writing = reading.option("subscribe", topic).load().writeStream.format("noop")
    checkpoint = str(tmp_path / "checkpoint")
    writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    assert environment["SPARK_LOCAL_DIRS"]  # what the stream put there
    assert set(environment) == names
