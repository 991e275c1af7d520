"""The status of a running pipeline: one JSON file, replaced about once a second.

The file remains after the pipeline has ended, and needs no access control, unlike a port. The lock on the
folder (`barnabas.pipelines.folder`) shows whether the pipeline runs, because a killed process does not keep a
lock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.lag import lag_of
from barnabas.spark.position import offsets_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The name of Spark's observed metric that counts the rows that reach a sink.
ROWS_WRITTEN = "rows_written"
#: The name of Spark's observed metrics of rejected records: their number (`rows`), and a `reason`.
ROWS_REJECTED = "rows_rejected"


@dataclass
class PartitionLag:
    """A query's position in a partition.

    `offset` is the next offset that the query reads. `end` is the partition's latest offset, as Spark last
    reported it. `lag` is the number of offsets between them.
    """

    topic: str
    partition: int
    offset: int
    end: int
    lag: int


@dataclass
class QueryStatus:
    """A query and its last finished batch.

    Rates are rows a second, sizes bytes, and times ISO 8601 in UTC. The suffix ``_ms`` means milliseconds,
    and ``_s`` seconds. A value that Spark has not reported is None.
    """

    query: str
    state: str
    rows_read: int | None = None  # since the pipeline started; None where Spark does not count them
    rows_written: int = 0  # rows given to the sink since the pipeline started
    rows_rejected: int = 0  # those of them that the sink has rejected: they are in its dead-letter topic
    last_rejection: str | None = None  # why
    batch: int | None = None
    batch_ms: int | None = None
    progress_at: str | None = None  # when the last finished batch ended
    busy_s: int | None = None  # for how long it has been at the present batch; None while it waits for rows
    input_rows_per_second: float | None = None
    processed_rows_per_second: float | None = None
    watermark: str | None = None
    lag: int | None = None
    partitions: list[PartitionLag] = field(default_factory=list)
    state_rows: int | None = None
    state_bytes: int | None = None
    dropped_late_rows: int | None = None
    restarts: int = 0
    last_error: str | None = None
    last_error_at: str | None = None
    recovered_at: str | None = None  # when the first batch after the last error ended

    def count(self, progress: Mapping[str, Any]) -> None:
        """Add the rows of a batch to the counts. `progress` is Spark's report of the batch.

        Call this once for each batch.
        """
        if "numInputRows" in progress:
            self.rows_read = (self.rows_read or 0) + progress["numInputRows"]
        observed = progress.get("observedMetrics", {})
        self.rows_written += observed.get(ROWS_WRITTEN, {}).get(ROWS_WRITTEN, 0)
        rejected = observed.get(ROWS_REJECTED, {})
        self.rows_rejected += rejected.get("rows", 0)
        self.last_rejection = rejected.get("reason") or self.last_rejection

    def update(self, progress: Mapping[str, Any]) -> None:
        """Set the batch, its rates, the lag and the state sizes. `progress` is Spark's report of a batch."""
        self.batch = progress["batchId"]
        self.batch_ms = progress.get("durationMs", {}).get("triggerExecution")
        self.input_rows_per_second = _rate(progress.get("inputRowsPerSecond"))
        self.processed_rows_per_second = _rate(progress.get("processedRowsPerSecond"))
        self.watermark = progress.get("eventTime", {}).get("watermark")
        lags = [each for source in progress["sources"] for each in _lags(source)]
        if lags:
            self.partitions = lags
            self.lag = sum(each.lag for each in lags)
        operators = progress.get("stateOperators", [])
        if operators:
            self.state_rows = sum(each["numRowsTotal"] for each in operators)
            self.state_bytes = sum(each["memoryUsedBytes"] for each in operators)
            self.dropped_late_rows = sum(each.get("numRowsDroppedByWatermark", 0) for each in operators)


@dataclass
class PipelineStatus:
    """The status of a pipeline and its queries, at the time `updated`. Times are ISO 8601 in UTC."""

    pipeline: str
    file: str
    master: str
    pid: int
    state: str
    started: str
    updated: str
    queries: list[QueryStatus]
    host: str = ""
    alerts: list[str] = field(default_factory=list)  # present alerts, in sentences

    def write(self, path: Path) -> None:
        """Write the status to `path`. One step replaces the file, so readers never see half of a status."""
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        beside.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the status in the file `path`; None if the file does not exist yet.

        Raises ValueError, TypeError or KeyError if the file has no status.
        """
        try:
            return cls.of(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Make a status from `found`, a result of `asdict` for a status. Unknown fields are ignored.

        Raises:
            TypeError, KeyError: `found` is not a status.
        """
        queries = [
            QueryStatus(
                **{**_known(QueryStatus, query), "partitions": [PartitionLag(**each) for each in partitions]}
            )
            for query in found["queries"]
            for partitions in [query["partitions"]]
        ]
        return cls(**{**_known(cls, found), "queries": queries})


def rejected_words(count: int) -> str:
    """Return a sentence that says how many rows a sink has rejected."""
    return f"the sink has rejected {count:,} row{'s' * (count != 1)}, now in its dead-letter topic"


def _known(kind: type, found: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in found.items() if name in names}


def counted(rows: DataFrame) -> DataFrame:
    """Return `rows`, with an observation by which Spark counts them.

    In Spark's progress report, the observed metric `ROWS_WRITTEN` is the count of each batch.
    """
    from pyspark.sql import functions as F

    return rows.observe(ROWS_WRITTEN, F.count(F.lit(1)).alias(ROWS_WRITTEN))


def _lags(source: Mapping[str, Any]) -> list[PartitionLag]:
    """Return the lag of each partition of a topic source, from Spark's report; empty for other sources."""
    offsets = source.get("endOffset")
    if not isinstance(offsets, dict) or not all(isinstance(each, dict) for each in offsets.values()):
        return []
    read = offsets_of(offsets)
    ends = read | offsets_of(source.get("latestOffset") or {})
    lags = lag_of(ends, read)
    return [PartitionLag(*tp, offset, ends[tp], lags[tp]) for tp, offset in sorted(read.items())]


def _rate(value: float | None) -> float | None:
    """Return the rate, rounded to tenths; None if it is missing, NaN or infinite.

    Spark reports NaN or infinity for a batch that took no time.
    """
    return round(value, 1) if value is not None and math.isfinite(value) else None
