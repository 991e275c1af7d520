"""The Spark part: two streams on the three topics, one that keeps and one that counts.

Event time is the log line's own, else the time it was shipped. There is no watermark: the streams end when
all is read, and a record of ten years ago counts as one of today, so that the totals can be reconciled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from barnabas.demo import LOG_TOPICS, STATS_TOPIC
from barnabas.demo.windows import describe

#: A micro-batch of a long log: large enough to be efficient, small enough to show progress.
_RECORDS_A_BATCH = 50_000
_POLL_S = 0.1

_FIELDS = "source string, level string, message string, timestamp string"


def read_logs(spark: SparkSession, bootstrap: str) -> DataFrame:
    """The three topics as one stream of parsed records."""
    raw = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(LOG_TOPICS))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _RECORDS_A_BATCH)
        .load()
    )
    parsed = raw.withColumn("log", F.from_json(F.col("value").cast("string"), _FIELDS))
    return parsed.select(
        "topic",
        "partition",
        "offset",
        F.col("key").cast("string").alias("source"),
        F.coalesce("log.level", F.lit("UNKNOWN")).alias("level"),
        "log.message",
        F.coalesce(F.try_to_timestamp("log.timestamp"), "timestamp").alias("at"),
        F.col("timestamp").alias("shipped_at"),
    )


def keep(records: DataFrame, parquet: Path, checkpoint: Path) -> StreamingQuery:
    """Write every record to Parquet, a folder for each topic."""
    writer = records.writeStream.format("parquet").partitionBy("topic").option("path", str(parquet))
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def count(records: DataFrame, window: timedelta, bootstrap: str, checkpoint: Path) -> StreamingQuery:
    """Count by topic, level and window, and write the counts to the stats topic, keyed by all three.

    Output mode complete writes the whole table again with each micro-batch: the last record of a key holds.
    """
    counted = records.groupBy("topic", "level", F.window("at", describe(window)).alias("window")).count()
    stats = counted.select(
        F.concat_ws("|", "topic", "level", F.col("window.start").cast("string")).alias("key"),
        F.to_json(
            F.struct(
                "topic",
                "level",
                F.unix_seconds("window.start").alias("from"),
                F.unix_seconds("window.end").alias("to"),
                F.col("count").alias("records"),
            )
        ).alias("value"),
    )
    writer = stats.writeStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", STATS_TOPIC).option("checkpointLocation", str(checkpoint))
    return writer.outputMode("complete").trigger(availableNow=True).start()


def await_all(queries: list[StreamingQuery], on_progress: Callable[[int], None]) -> None:
    """Wait until every query has read all there was; `on_progress` is told how many records that is so far.

    Raises:
        StreamingQueryException: one of them has failed; the others are stopped.
    """
    try:
        while any(query.isActive for query in queries):
            on_progress(sum(_records(query) for query in queries))
            time.sleep(_POLL_S)
        for query in queries:
            query.awaitTermination()
        on_progress(sum(_records(query) for query in queries))
    finally:
        for query in queries:
            query.stop()


def _records(query: StreamingQuery) -> int:
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def count_stored(spark: SparkSession, parquet: Path) -> dict[str, int]:
    """How many records of each topic the Parquet files hold."""
    rows = spark.read.parquet(str(parquet)).groupBy("topic").count().collect()
    return {row["topic"]: row["count"] for row in rows}
