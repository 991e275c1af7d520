"""Writes static rows, with the interface of a streaming query, so that the supervisor can run both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from pyspark import InheritableThread
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from barnabas.base.types import JsonObject
from barnabas.pipelines.status import ROWS_WRITTEN

_CANCEL_AGAIN_S = 0.1


@dataclass(frozen=True)
class _Progress:
    json: str


class BatchRun:
    """Writes the rows of a DataFrame that is not a stream, once, in a thread that the constructor starts.

    Args:
        rows: the rows to write.
        prepare: the constructor calls it once, with a DataFrame that has the rows of `rows` and also counts
            them. `prepare` returns a function that writes this DataFrame. The thread calls that function.
    """

    def __init__(self, rows: DataFrame, prepare: Callable[[DataFrame], Callable[[], None]]) -> None:
        self._spark = rows.sparkSession
        self._counted = Observation()
        self._write = prepare(rows.observe(self._counted, F.count(F.lit(1)).alias(ROWS_WRITTEN)))
        self._error: Exception | None = None
        self._group = f"barnabas-{uuid4()}"  # by which Spark finds its jobs
        self.lastProgress: _Progress | None = None
        self._thread = InheritableThread(target=self._run, session=self._spark)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return bool(self._thread.is_alive())

    @property
    def recentProgress(self) -> list[_Progress]:
        return [self.lastProgress] if self.lastProgress else []

    @property
    def status(self) -> JsonObject:
        return {"isTriggerActive": self.isActive, "isDataAvailable": self.isActive}

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        """Cancel the write's Spark jobs again and again until its thread has ended.

        One cancellation is not enough, because it has no effect between two jobs.
        """
        while self._thread.is_alive():
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._thread.join(_CANCEL_AGAIN_S)

    def _run(self) -> None:
        began, started = time.monotonic(), datetime.now(UTC)
        try:
            _make_active(self._spark)
            self._spark.sparkContext.setJobGroup(self._group, "", interruptOnCancel=True)
            self._write()
        except Exception as error:
            self._error = error
            return
        took = round((time.monotonic() - began) * 1000)
        progress = {
            "timestamp": started.isoformat(timespec="milliseconds"),
            "batchId": 0,
            "observedMetrics": {ROWS_WRITTEN: self._counted.get},
            "durationMs": {"triggerExecution": took},
            "sources": [],
        }
        self.lastProgress = _Progress(json.dumps(progress))


def _make_active(spark: SparkSession) -> None:
    """Make the session active in this thread. Spark finds the data source through the active session."""
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
