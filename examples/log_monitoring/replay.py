"""Computes the results of a day again, from the archive or from the topics. Both give the same results.

barnabas pipeline run examples/log_monitoring/replay.py --set day=2026-03-01 --set from=archive
"""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines import parameter, pipeline, sink, source, step
from steps import TOPICS, bursts, error_rates, placed

DAY = parameter("day")
FROM = parameter("from", "archive")
ARCHIVE = parameter("archive", "archive")
RESULT = parameter("result", f"replay/{DAY}-{FROM}")

# no record is shipped before what it tells of has happened, so no older one can belong to the day
BEGIN = round(datetime.fromisoformat(DAY).replace(tzinfo=UTC).timestamp() * 1000)

pipeline(name=f"replay-{FROM}")

if FROM not in ("archive", "topic"):
    raise ValueError(f"from={FROM}: write archive or topic")

if FROM == "topic":

    @source(
        topic=TOPICS,
        format="log",
        static=True,
        options={"startingTimestamp": str(BEGIN), "startingOffsetsByTimestampStrategy": "latest"},
    )
    def logs(rows: DataFrame) -> DataFrame:
        return placed(rows)

else:

    @source(
        files=ARCHIVE,
        format="parquet",
        schema="topic STRING, source STRING, level STRING, message STRING, at TIMESTAMP, day STRING",
        static=True,
    )
    def logs(rows: DataFrame) -> DataFrame:
        return rows


@step
def report(logs: DataFrame) -> DataFrame:
    """Return each minute of the day, with the burst that begins in it."""
    of_day = logs.where(F.col("day") == DAY)
    begun = bursts(of_day).select("topic", "minute", "usual", F.col("message").alias("burst"))
    return error_rates(of_day).join(begun, ["topic", "minute"], "left").orderBy("topic", "minute")


@sink(parquet=RESULT, mode="complete")
def kept(report: DataFrame) -> DataFrame:
    return report


@sink(console=True, options={"numRows": "5000"})
def shown(report: DataFrame) -> DataFrame:
    return report.where("errors > 0")
