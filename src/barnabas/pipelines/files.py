"""Checks and creates folders of checkpoints and outputs, by a path or a Hadoop URI."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def exists(spark: SparkSession, url: str) -> bool:
    """Whether the file or folder `url` exists. `url` is a path or a Hadoop URI."""
    path, files = _open(spark, url)
    return bool(files.exists(path))


def has_files(spark: SparkSession, folder: str) -> bool:
    """Whether the folder exists and is not empty. `folder` is a path or a Hadoop URI."""
    path, files = _open(spark, folder)
    return bool(files.exists(path) and len(files.listStatus(path)))


def make_folder(spark: SparkSession, folder: str) -> None:
    """Create a folder and its parents, if they do not exist. `folder` is a path or a Hadoop URI."""
    path, files = _open(spark, folder)
    files.mkdirs(path)


def _open(spark: SparkSession, url: str) -> tuple[Any, Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(url)
    return path, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
