"""The demo's pipeline file. One sink stores every record of the three topics, and the other one counts them.

`barnabas pipeline run` can run it, too. It has no watermark, so that the totals agree: a run reads all
present records once, and an old record counts as well as a new one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines import parameter, pipeline, sink, source
from barnabas.spark.pyspark_versions import HAS_LIMITS
from demo import LOG_TOPICS, STATS_TOPIC

pipeline(restarts=1)

WINDOW = parameter("window", "1 hour")
RECORDS = parameter("records", "records")

#: A micro-batch of a long log: large enough to be efficient, small enough to show progress.
_LIMITS = {"maxOffsetsPerTrigger": "50000"} if HAS_LIMITS else {}


@source(topic=",".join(LOG_TOPICS), format="log", options=_LIMITS)
def records(rows: DataFrame) -> DataFrame:
    return rows.select(
        "_record.topic", "_record.partition", "_record.offset", "source", "level", "message", "at"
    )


@sink(parquet=RECORDS, partition_by="topic")
def keep(records: DataFrame) -> DataFrame:
    return records


@sink(topic=STATS_TOPIC, key="topic,level,from", mode="complete")
def count(records: DataFrame) -> DataFrame:
    """Return the counts. Each micro-batch writes all of them again, so the last record of a key is valid."""
    counted = records.groupBy("topic", "level", F.window("at", WINDOW).alias("window")).count()
    return counted.select(
        "topic",
        "level",
        F.unix_seconds("window.start").alias("from"),
        F.unix_seconds("window.end").alias("to"),
        F.col("count").alias("records"),
    )
