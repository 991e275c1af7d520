"""Folders of checkpoints and outputs, by a path or a URI of Hadoop."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def exists(spark: SparkSession, place: str) -> bool:
    """Whether there is such a file or folder."""
    path, files = _open(spark, place)
    return bool(files.exists(path))


def has_files(spark: SparkSession, folder: str) -> bool:
    """Whether there is such a folder, and something in it."""
    path, files = _open(spark, folder)
    return bool(files.exists(path) and len(files.listStatus(path)))


def make_folder(spark: SparkSession, folder: str) -> None:
    """Make a folder, and those above it, if they do not exist."""
    path, files = _open(spark, folder)
    files.mkdirs(path)


def _open(spark: SparkSession, place: str) -> tuple[Any, Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
