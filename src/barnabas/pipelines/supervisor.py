"""Keeps a pipeline's queries running: starts them, starts again what fails, stops between two batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from barnabas.pipelines.build import Query
from barnabas.pipelines.errors import PipelineError, explain
from barnabas.pipelines.status import QueryStatus

#: How long a failed query waits before it is started again, in seconds: twice as long each time, up to ...
FIRST_WAIT_S = 1.0
#: ... this.
LONGEST_WAIT_S = 60.0

#: What will fail again however often it is tried: a wrong option, a record that does not parse, other rows
#: than were written.
_LASTING = ("errors.ConfigError: ", "[USER_RAISED_EXCEPTION]", "exactly_once.ReplayError: ")

RUNNING, WAITING, DONE, STOPPED, FAILED = "running", "waiting", "done", "stopped", "failed"


@dataclass
class _Watched:
    query: Query
    status: QueryStatus
    handle: Any = None  # a StreamingQuery
    failures: int = 0
    retry_at: float = 0.0
    seen: str = ""


class Supervisor:
    """Looks after queries each time it is told to `look`; `clock` gives seconds, for the back-off."""

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

    def start(self) -> None:
        """Start every query.

        Raises:
            PipelineError: Spark refuses one; those already running are stopped.
        """
        try:
            for each in self._watched:
                self._start(each)
        except PipelineError:
            self.stop_now()
            raise

    def stop(self) -> None:
        """Stop each query once the batch it is at is done; `look` does it."""
        self._stopping = True

    def stop_now(self) -> None:
        """Stop every query, a batch under way too: it is done again when the pipeline is run again."""
        for each in self._watched:
            if each.status.state == RUNNING:
                each.handle.stop()
            if each.status.state in (RUNNING, WAITING):
                each.status.state = STOPPED

    def look(self) -> None:
        """See how each query is, and do what is due."""
        for each in self._watched:
            if each.status.state == RUNNING:
                self._look_at(each)
            elif each.status.state == WAITING:
                if self._stopping:
                    each.status.state = STOPPED
                elif self._clock() >= each.retry_at:
                    self._try_again(each)

    def _look_at(self, each: _Watched) -> None:
        # asked before its progress: what ends in between is then seen whole at the next look
        active = each.handle.isActive
        self._take_progress(each)
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

    def _take_progress(self, each: _Watched) -> None:
        """Take over what is reported since the last look; Spark's recent reports only when one was missed."""
        last = each.handle.lastProgress
        if last is None or (found := json.loads(last.json))["timestamp"] <= each.seen:
            return
        next_in_line = each.status.batch is not None and found["batchId"] <= each.status.batch + 1
        reports = [found] if next_in_line else [json.loads(one.json) for one in each.handle.recentProgress]
        each.status.rows += sum(one["numInputRows"] for one in reports if one["timestamp"] > each.seen)
        each.seen = found["timestamp"]
        each.status.take(found)
        each.failures = 0

    def _on_failure(self, each: _Watched, text: str, why: str) -> None:
        status = each.status
        status.last_error = why
        status.last_error_at = datetime.now(UTC).isoformat(timespec="seconds")
        each.failures += 1
        if self._stopping:
            status.state = STOPPED
        elif each.failures > self._restarts or any(mark in text for mark in _LASTING):
            status.state = FAILED
            self._say(f"{status.query} failed: {why}")
            self.stop()
        else:
            wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (each.failures - 1))
            each.retry_at = self._clock() + wait
            status.state = WAITING
            self._say(f"{status.query} failed, trying again in {wait:.0f} s: {why}")

    def _try_again(self, each: _Watched) -> None:
        each.status.restarts += 1
        try:
            self._start(each)
        except PipelineError as error:
            self._on_failure(each, "", str(error))

    def _start(self, each: _Watched) -> None:
        each.handle = each.query.start()
        each.status.state = RUNNING


def _in_batch(handle: Any) -> bool:
    """Whether the query writes just now; while it only looks for rows it can be stopped."""
    status = handle.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])
