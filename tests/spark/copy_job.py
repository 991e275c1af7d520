"""A streaming job that tests kill: it copies a topic to another one exactly once, in batches of three tasks.

    python -m tests.spark.copy_job MASTER SERVERS SOURCE TARGET FOLDER [PARALLELISM]

PARALLELISM is the source's option of this name. With it there is no shuffle, so the tasks are those that the
source plans. The job prints "started" when the query runs, and ends when all records are copied.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.spark.pyspark_versions import HAS_LIMITS
from barnabas.spark.session import _LOCAL, FORKED
from barnabas.spark.worker_python import worker_python

ROWS_A_BATCH = 2_000
TASKS = 3


def start_copy(
    spark: SparkSession, servers: str, source: str, target: str, folder: Path, parallelism: str = ""
) -> StreamingQuery:
    """Start the query, which ends when all present records are copied. `folder` has its checkpoint."""
    client = {"kafka.bootstrap.servers": servers, "kafka.reconnect.backoff.max.ms": "200"}
    reader = spark.readStream.format("barnabas").options(**client)
    if parallelism:
        reader = reader.option("parallelism", parallelism)
    if HAS_LIMITS:  # else there is one batch
        reader = reader.option("maxOffsetsPerTrigger", str(ROWS_A_BATCH))
    rows = reader.options(subscribe=source, startingOffsets="earliest").load()
    rows = rows.select("value") if parallelism else rows.select("value").repartition(TASKS, "value")
    writer = rows.writeStream.format("barnabas")
    return (
        writer.options(**client)
        .option("topic", target)
        .option("barnabas.delivery", "exactly-once")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def main(master: str, servers: str, source: str, target: str, folder: str, parallelism: str = "") -> None:
    os.environ |= {"PYSPARK_PYTHON": worker_python(Path(folder)), "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        **_LOCAL,
        **FORKED,
        "spark.local.dir": f"{folder}/scratch",
        "spark.executor.memory": "512m",
    }
    configuration = SparkConf().setMaster(master).setAppName("copy").setAll(list(settings.items()))
    spark = SparkSession.builder.config(conf=configuration).getOrCreate()
    query = start_copy(spark, servers, source, target, Path(folder), parallelism)
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
