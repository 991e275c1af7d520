"""Keeps a pipeline's queries running: it starts, restarts and cleanly stops them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.pipelines.batch import BatchRun
from barnabas.pipelines.build import Query
from barnabas.pipelines.errors import PipelineError, explain
from barnabas.pipelines.status import QueryStatus, rejected_words
from barnabas.spark.dead_letters import TooManyRejectedError
from barnabas.spark.exactly_once import ReplayError
from barnabas.spark.open_ranges import DataLossError

#: Seconds before the first restart of a failed query. Each further wait is twice as long.
FIRST_WAIT_S = 1.0
#: Longest time before a restart, in seconds.
MAX_WAIT_S = 60.0

#: The longest time that the start of one query delays the start of the next, in seconds.
MAX_START_S = 60.0

#: Least time between two messages about rejected rows of a query, in seconds.
REJECTIONS_TOLD_S = 60.0

#: Errors that no restart fixes: a wrong option, a record that does not parse, a batch whose rows have changed
#: since it was written, records that are gone, too many rejected rows. The text of Spark's error contains the
#: full name of the Python error.
_LASTING = (
    *(
        f"{error.__module__}.{error.__qualname__}: "
        for error in (ConfigError, ReplayError, DataLossError, TooManyRejectedError)
    ),
    "[USER_RAISED_EXCEPTION]",
)

#: Spark waits ten seconds for a Python process that it has started. On a busy machine that is too short,
#: which says nothing about the query: such a failure does not count towards the limit of restarts.
_STARVED = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect",
)

STARTING, RUNNING, WAITING = "starting", "running", "waiting"
DONE, STOPPED, FAILED = "done", "stopped", "failed"


@dataclass
class _Watched:
    query: Query
    status: QueryStatus
    handle: Any = None  # a StreamingQuery
    started_at: float = 0.0
    failures: int = 0  # in a row, which the wait grows with
    counted: int = 0  # those of them that count towards the limit of restarts
    retry_at: float = 0.0
    seen: str = ""
    busy_since: float | None = None
    rejections_told: int = 0
    rejections_told_at: float = float("-inf")


class Supervisor:
    """Starts, checks and restarts queries. Each call of `look` checks them once.

    Args:
        queries: queries that are not started yet.
        restarts: largest number of restarts of a query in a row.
        clock: returns seconds, for the time between restarts.
        say: called with a sentence for each event.
    """

    def __init__(
        self, queries: list[Query], restarts: int, clock: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        self._watched = [_Watched(query, QueryStatus(query.name, WAITING)) for query in queries]
        self._restarts = restarts
        self._clock = clock
        self._say = say
        self._stopping = False

    @property
    def statuses(self) -> list[QueryStatus]:
        return [each.status for each in self._watched]

    @property
    def finished(self) -> bool:
        return all(each.status.state in (DONE, STOPPED, FAILED) for each in self._watched)

    @property
    def failed(self) -> QueryStatus | None:
        return next((each.status for each in self._watched if each.status.state == FAILED), None)

    def stop(self) -> None:
        """Let later calls of `look` stop each query at the end of its batch."""
        self._stopping = True

    def stop_now(self) -> None:
        """Stop every query at once. The next run repeats the present batches."""
        for each in self._watched:
            if each.status.state in (STARTING, RUNNING):
                each.handle.stop()
            if each.status.state in (STARTING, RUNNING, WAITING):
                each.status.state = STOPPED

    def look(self) -> None:
        """Check each query, and start, restart or stop it as needed.

        While a query runs, also refresh the pipeline's static sources at the intervals of their option
        refresh (`Lookup.look`).

        Only one query starts at a time. For each query, Spark starts a Python process that plans the batches.
        This takes about two seconds of CPU time, and Spark gives up on a process that starts too slowly.

        Raises:
            PipelineError: Spark rejects a query at its first start; the running queries are stopped.
        """
        for each in self._watched:
            if each.status.state in (STARTING, RUNNING):
                self._look_at(each)
                for lookup in each.query.lookups:
                    lookup.look(self._say)
        for each in self._watched:
            if each.status.state == WAITING and self._stopping:
                each.status.state = STOPPED
            elif each.status.state == WAITING and self._clock() >= each.retry_at and not self._one_starts():
                self._start(each)

    def _one_starts(self) -> bool:
        return any(each.status.state == STARTING for each in self._watched)

    def _look_at(self, each: _Watched) -> None:
        # asked before its progress: what ends in between is then seen whole at the next look
        active = each.handle.isActive
        self._take_progress(each)
        self._measure(each, active)
        self._tell_rejections(each)
        if not active:
            error = each.handle.exception()
            if error is None:
                each.status.state = STOPPED if self._stopping else DONE
            else:
                self._on_failure(each, str(error), explain(error))
        elif self._stopping and not _in_batch(each.handle):
            each.handle.stop()
            self._take_progress(each)  # of a batch that ended since it was asked
            each.status.state = STOPPED
        elif _has_started(each.handle) or self._clock() - each.started_at >= MAX_START_S:
            each.status.state = RUNNING

    def _measure(self, each: _Watched, active: bool) -> None:
        """Set `busy_s` in the status of the query `each`.

        - If the query is a stream that processes a batch: the seconds since this method first saw that batch.
        - If the query is not active, waits for data, or writes static rows: None.

        `active` is whether the query is active.
        """
        if not active or isinstance(each.handle, BatchRun) or not _is_busy(each.handle):
            each.busy_since = each.status.busy_s = None
            return
        if each.busy_since is None:
            each.busy_since = self._clock()
        each.status.busy_s = int(self._clock() - each.busy_since)

    def _take_progress(self, each: _Watched) -> None:
        """Update the status from Spark's newest progress report and from missed earlier reports."""
        last = each.handle.lastProgress
        if last is None or (found := json.loads(last.json))["timestamp"] <= each.seen:
            return
        next_in_line = each.status.batch is not None and found["batchId"] <= each.status.batch + 1
        reports = [found] if next_in_line else [json.loads(one.json) for one in each.handle.recentProgress]
        for one in reports:
            if one["timestamp"] > each.seen:
                each.status.count(one)
        if each.query.written is not None:
            each.status.rows_written = each.query.written()
        for sink in each.query.rejected:
            each.status.last_rejection = sink.reason or each.status.last_rejection
        each.status.rows_rejected = (
            sum(sink.rows for sink in each.query.rejected) or each.status.rows_rejected
        )
        each.seen = found["timestamp"]
        each.status.update(found)
        each.failures = each.counted = 0
        each.busy_since = None  # what it is at now is another batch
        each.status.progress_at = _now()
        if each.status.last_error is not None and each.status.recovered_at is None:
            each.status.recovered_at = _now()

    def _tell_rejections(self, each: _Watched) -> None:
        status, now = each.status, self._clock()
        news = status.rows_rejected - each.rejections_told
        if news > 0 and now - each.rejections_told_at >= REJECTIONS_TOLD_S:
            each.rejections_told, each.rejections_told_at = status.rows_rejected, now
            self._say(
                f"{status.query}: {rejected_words(news)}, the last one because of: {status.last_rejection}"
            )

    def _on_failure(self, each: _Watched, text: str, why: str) -> None:
        status = each.status
        status.last_error = why
        status.last_error_at, status.recovered_at = _now(), None
        each.failures += 1
        each.counted += not any(mark in text for mark in _STARVED)
        if self._stopping:
            status.state = STOPPED
        elif each.counted > self._restarts or any(mark in text for mark in _LASTING):
            status.state = FAILED
            self._say(f"{status.query} failed: {why}")
            self.stop()
        else:
            wait = min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** (each.failures - 1))
            each.retry_at = self._clock() + wait
            status.state = WAITING
            self._say(f"{status.query} failed, trying again in {wait:.0f} s: {why}")

    def _start(self, each: _Watched) -> None:
        first = each.handle is None
        each.status.restarts += not first
        try:
            each.handle = each.query.start()
        except PipelineError as error:
            if first and not each.failures:
                self.stop_now()
                raise
            self._on_failure(each, "", str(error))
        else:
            each.started_at = self._clock()
            each.status.state = RUNNING if _has_started(each.handle) else STARTING


def _has_started(handle: Any) -> bool:
    """Whether the query has started: it has finished a batch, writes a batch, or waits for records."""
    status = handle.status
    waits = str(status.get("message", "")).startswith("Waiting")
    return bool(handle.lastProgress is not None or status["isDataAvailable"] or waits)


def _is_busy(handle: Any) -> bool:
    """Whether the query writes or plans a batch. Between batches, the status message begins with Waiting."""
    status = handle.status
    waits = str(status.get("message", "")).startswith("Waiting")
    return bool(status["isDataAvailable"] or (status["isTriggerActive"] and not waits))


def _in_batch(handle: Any) -> bool:
    """Whether the query writes a batch now. Between two batches, the supervisor can stop the query."""
    status = handle.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
