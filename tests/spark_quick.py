"""Options with which each JVM of Spark in the tests takes a third of its CPU time.

They select the first compiler and the simplest garbage collector. They do not verify classes, and they avoid
full collections at each load of classes. Spark compiles no stage and no expression, because a test has few
rows. Tests with the fixture `compiled` are the exception. A stream that has no new records looks for some ten
times a second, where Spark does it a hundred times. `tests/spark_archive.py` writes an archive of Spark's
classes. A JVM takes them from the archive if it is there.

An environment variable gives the options to every JVM that a test or its child starts. The options that
Barnabas or a test chooses come later, and override them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Spark's classes as a JVM holds them in memory. A JVM of another version, or with other jars, ignores it.
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-XX:MetaspaceSize=256m",
    "-XX:ReservedCodeCacheSize=240m",  # the default of one compiler, 48 MB, is full after some dozen tests
    "-Xlog:disable",  # an archive that does not fit is no news
    "-Xlog:all=error:stderr",
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.ui.enabled=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    "-Dspark.sql.streaming.pollingDelay=100ms",
)


def quicken() -> None:
    """Give the options to each JVM of Spark that this process or its children start from now on."""
    os.environ |= environment()


def environment(*more: str) -> dict[str, str]:
    """Return the environment variable with the options, and with `more` options of a JVM."""
    archive = [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []
    return {"SPARK_SUBMIT_OPTS": " ".join([*_OPTIONS, *archive, *more])}
