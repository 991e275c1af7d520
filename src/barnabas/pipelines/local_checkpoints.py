"""Writes checkpoints on a local disk without starting a process for each file.

By default, Spark renames a file with Hadoop's FileContext. On a local disk, FileContext starts the program
``stat`` for this. Hadoop's FileSystem only calls rename(2), which is also atomic. But for each file,
FileSystem writes and renames a second file, with a checksum. If the process is killed between the two
renames, the checksum does not fit the file. So this module makes Spark use FileSystem without checksum files.
Spark has its own checksums of checkpoint files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from barnabas.pipelines.model import Pipeline

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BY_RENAME = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def settings_for(pipeline: Pipeline, master: str, checkpoints: str) -> dict[str, str]:
    """Return the Spark setting that makes checkpoints use FileSystem, if it is safe; an empty dict if not.

    `checkpoints` is the path or the URI of the folder of all checkpoints. The setting is safe on POSIX with a
    `master` of one JVM (local, local[N]), if this folder is on a local disk. The folders of Parquet sinks
    must be local too, because Spark writes the list of their files like a checkpoint.

    The result is also empty if `pipeline` is not complete. Then its Python file was read only up to the first
    line that needs Spark, so some sinks are unknown.
    """
    if not pipeline.complete:
        return {}
    outputs = (sink.options.parquet for sink in pipeline.sinks)
    # not local-cluster: its executors are JVMs of their own, which prepare() does not reach
    one_jvm = master == "local" or master.startswith("local[")
    local = os.name == "posix" and one_jvm and _all_local([checkpoints, *outputs])
    return {MANAGER: BY_RENAME} if local else {}


def prepare(spark: SparkSession) -> None:
    """Turn off Hadoop's checksum files in Spark's JVM, if the setting of `settings_for` is in effect."""
    if spark.conf.get(MANAGER, None) == BY_RENAME:
        disk = spark._jvm.java.net.URI("file:///")
        spark._jvm.org.apache.hadoop.fs.FileSystem.get(
            disk, spark._jsc.hadoopConfiguration()
        ).setWriteChecksum(False)


def _all_local(urls: Iterable[str]) -> bool:
    return all(urlsplit(url).scheme in ("", "file") for url in urls)
