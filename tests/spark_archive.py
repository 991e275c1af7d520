"""Write the archive of Spark's classes that the JVMs of the tests share (application class data sharing).

    python -m tests.spark_archive

A JVM does what most tests of Spark do, and writes the classes that it has loaded when it ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark_quick import ARCHIVE, environment

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.session import start_session
from barnabas.spark.session import check_java


def main() -> None:
    try:
        check_java()
    except BarnabasError as error:
        sys.exit(f"no archive of Spark's classes: {error}")
    ARCHIVE.unlink(missing_ok=True)
    beside = ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ |= environment(f"-XX:ArchiveClassesAtExit={beside}")
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session("archive", Path(folder), "local[2]", {}, Path(folder, "log"))
        use(spark, Path(folder))
        process = spark.sparkContext._gateway.proc
        spark.stop()
        process.communicate()  # a JVM ends when its stdin does; one that is killed writes no archive
    beside.replace(ARCHIVE)


def use(spark: SparkSession, folder: Path) -> None:
    """Run a batch and a stream: files, Arrow, SQL, state in RocksDB, a checkpoint."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    path = str(folder / "rows")
    spark.range(100).selectExpr("id", "id % 7 AS key", "current_timestamp() AS at").write.parquet(path)
    rows = spark.read.parquet(path)
    last = F.to_json(F.struct(F.max("at")))
    rows.mapInArrow(same, rows.schema).groupBy("key").agg(F.count("*"), last).collect()
    stream = spark.readStream.schema(rows.schema).parquet(path).withWatermark("at", "1 minute")
    windows = stream.join(rows.select("key").distinct(), "key").groupBy(F.window("at", "1 minute"), "key")
    query = (
        windows.count()
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("update")
        .foreachBatch(lambda batch, number: batch.collect())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
