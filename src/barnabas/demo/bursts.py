"""Bursts of errors: the windows of a topic that have far more errors than its others.

A window stands out with at least `_AT_LEAST` errors and more than the mean of the topic's windows by
`_DEVIATIONS` standard deviations; windows without any record are not counted among them, since logs may lie
years apart. Windows that stand out side by side are one burst.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from barnabas.demo.windows import describe

ERROR_LEVELS = ("ERROR", "FATAL")

_AT_LEAST = 5
_DEVIATIONS = 2


@dataclass(frozen=True)
class Burst:
    """`errors` of `topic` from `start` to `end`, of which the `sample` is the most frequent message."""

    topic: str
    start: datetime
    end: datetime
    errors: int
    usual: float
    sample: str


def find_bursts(spark: SparkSession, parquet: Path, window: timedelta) -> list[Burst]:
    """The bursts in the stored records, the largest first."""
    records = spark.read.parquet(str(parquet)).where(F.col("message").isNotNull())
    is_error = F.col("level").isin(*ERROR_LEVELS)
    windowed = records.withColumn("start", F.window("at", describe(window)).start)
    # numbers differ from one repetition of a message to the next
    errors = windowed.where(is_error).withColumn("shape", F.regexp_replace("message", r"\d+", "#"))
    messages = errors.groupBy("topic", "start", "shape").agg(
        F.count("*").alias("n"), F.min("message").alias("one")
    )
    samples = messages.groupBy("topic", "start").agg(F.max_by("one", "n").alias("sample"))
    of_topic = Window.partitionBy("topic")
    counts = (
        windowed.groupBy("topic", "start")
        .agg(F.count_if(is_error).alias("errors"))
        .withColumn("usual", F.avg("errors").over(of_topic))
        .withColumn("spread", F.coalesce(F.stddev_pop("errors").over(of_topic), F.lit(0.0)))
    )
    high = counts.where(
        (F.col("errors") >= _AT_LEAST) & (F.col("errors") > F.col("usual") + _DEVIATIONS * F.col("spread"))
    )
    rows = high.join(samples, ["topic", "start"]).orderBy("topic", "start").collect()
    return sorted(_merge(rows, window), key=lambda burst: -burst.errors)


def _merge(rows: list[Row], window: timedelta) -> list[Burst]:
    """Windows that follow each other as one burst, with the message of the one that has most errors."""
    bursts: list[Burst] = []
    largest = 0
    for row in rows:
        last = bursts[-1] if bursts else None
        if last is not None and (last.topic, last.end) == (row["topic"], row["start"]):
            sample = row["sample"] if row["errors"] > largest else last.sample
            largest = max(largest, row["errors"])
            errors = last.errors + row["errors"]
            bursts[-1] = Burst(last.topic, last.start, row["start"] + window, errors, last.usual, sample)
        else:
            largest = row["errors"]
            end = row["start"] + window
            bursts.append(Burst(row["topic"], row["start"], end, largest, row["usual"], row["sample"]))
    return bursts
