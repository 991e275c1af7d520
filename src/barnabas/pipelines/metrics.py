"""Serves a pipeline's status as Prometheus metrics over HTTP (`barnabas pipeline run --metrics`)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from operator import attrgetter

from barnabas.base.environment.network import SocketNetwork
from barnabas.base.errors import ConfigError
from barnabas.base.http_responder import Handler, Responder, parse_listener
from barnabas.base.metrics.declaration import Kind, Metric, Sample, written
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.status import PipelineStatus, QueryStatus

STATES = ("starting", "running", "waiting", "done", "stopped", "failed")

_QUERY = ("pipeline", "query")
_PARTITION = (*_QUERY, "topic", "partition")


def _gauge(name: str, help: str, labels: tuple[str, ...] = _QUERY) -> Metric:
    return Metric(f"barnabas_pipeline_{name}", Kind.GAUGE, labels, help)


def _counter(name: str, help: str) -> Metric:
    return Metric(f"barnabas_pipeline_{name}_total", Kind.COUNTER, _QUERY, help)


#: Metrics whose names are the names of fields in a query's status.
_COUNTED = {
    "rows_read": "Rows read since the pipeline started.",
    "rows_written": "Rows given to the sink since the pipeline started.",
    "rows_rejected": "Rows that sinks have rejected, and that are in dead-letter topics.",
    "restarts": "Restarts of the query after a failure.",
}
_MEASURED = {
    "batch": "The number of the last finished batch.",
    "input_rows_per_second": "The rate at which rows arrived for the last batch.",
    "processed_rows_per_second": "The rate at which the last batch was processed.",
    "lag": "Records that the query has not read yet, in all partitions.",
    "state_rows": "Rows in the query's state.",
    "state_bytes": "Memory that the query's state takes.",
    "dropped_late_rows": "Rows of the last batch that came after the watermark.",
}

#: The metrics of a query with the functions that read them; None makes no sample.
OF_QUERIES: tuple[tuple[Metric, Callable[[QueryStatus], float | None]], ...] = (
    *((_counter(name, help), attrgetter(name)) for name, help in _COUNTED.items()),
    *((_gauge(name, help), attrgetter(name)) for name, help in _MEASURED.items()),
    (
        _gauge("batch_seconds", "The duration of the last finished batch."),
        lambda q: None if q.batch_ms is None else q.batch_ms / 1000,
    ),
    (
        _gauge("batch_running_seconds", "The time since the present batch began; 0: the query waits."),
        lambda q: q.busy_s or 0,
    ),
    (
        _gauge("progress_seconds", "When the last finished batch ended, in seconds since 1970."),
        lambda q: _seconds(q.progress_at),
    ),
    (
        _gauge("max_offsets_behind_latest", "The lag of the partition that is furthest behind."),
        lambda q: max(_lags(q), default=None),
    ),
    (
        _gauge("avg_offsets_behind_latest", "The average lag of a partition."),
        lambda q: sum(_lags(q)) / len(_lags(q)) if _lags(q) else None,
    ),
    (
        _gauge("min_offsets_behind_latest", "The lag of the partition that is least behind."),
        lambda q: min(_lags(q), default=None),
    ),
    (
        _gauge("watermark_seconds", "The watermark, in seconds since 1970."),
        lambda q: _seconds(q.watermark),
    ),
)
STATE = _gauge("query_state", "1 for the state that the query is in, 0 for the others.", (*_QUERY, "state"))
PARTITION_LAG = _gauge("partition_lag", "Records of a partition that the query has not read yet.", _PARTITION)
ALERTS = _gauge("alerts", "Active alerts (alert_lag, alert_stuck).", ("pipeline",))
UPDATED = _gauge("updated_seconds", "The time of the last status, in seconds since 1970.", ("pipeline",))

METRICS = (*(metric for metric, _ in OF_QUERIES), STATE, PARTITION_LAG, ALERTS, UPDATED)


def exposition(status: PipelineStatus) -> Iterator[str]:
    """Yield the status in Prometheus' text format, in pieces."""
    name = status.pipeline
    for metric, read in OF_QUERIES:
        yield from written(metric, _samples(name, status.queries, read))
    yield from written(
        STATE,
        (
            ((name, query.query, state), float(query.state == state))
            for query in status.queries
            for state in STATES
        ),
    )
    yield from written(
        PARTITION_LAG,
        (
            ((name, query.query, each.topic, str(each.partition)), float(each.lag))
            for query in status.queries
            for each in query.partitions
        ),
    )
    yield from written(ALERTS, [((name,), float(len(status.alerts)))])
    yield from written(UPDATED, [((name,), datetime.fromisoformat(status.updated).timestamp())])


def _samples(
    name: str, queries: Iterable[QueryStatus], read: Callable[[QueryStatus], float | None]
) -> Iterator[Sample]:
    for query in queries:
        if (value := read(query)) is not None:
            yield (name, query.query), float(value)


def _seconds(at: str | None) -> float | None:
    return datetime.fromisoformat(at).timestamp() if at else None


def _lags(query: QueryStatus) -> list[int]:
    return [each.lag for each in query.partitions]


class MetricsServer:
    """Serves ``/metrics`` and ``/healthz`` in its own thread. `show` sets the status that is served."""

    def __init__(self, listener: str) -> None:
        """Bind the address `listener` (HOST:PORT), and start the server's thread.

        Raises:
            PipelineError: the address is invalid or cannot be bound.
        """
        try:
            self._responder = Responder(*parse_listener(listener), SocketNetwork())
            self._responder.bind()
        except ConfigError as error:
            raise PipelineError(str(error).replace("barnabas.metrics.listener", "--metrics")) from None
        self._text = ""
        self._healthy = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return self._responder.url

    def show(self, status: PipelineStatus) -> None:
        """Replace the status that the server returns. If a query has failed, ``/healthz`` answers 503."""
        self._text = "".join(exposition(status))
        self._healthy = not any(query.state == "failed" for query in status.queries)

    def close(self) -> None:
        """Stop serving and close the address."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        handlers: dict[str, Handler] = {"/metrics": self._metrics, "/healthz": self._health}
        self._loop.run_until_complete(self._responder.start(handlers))
        self._loop.run_forever()
        self._loop.run_until_complete(self._responder.stop())
        self._loop.close()

    async def _metrics(self) -> AsyncIterator[str]:
        yield self._text

    def _health(self) -> tuple[int, str]:
        return (200, "ok") if self._healthy else (503, "a query has failed, or none has started yet")
