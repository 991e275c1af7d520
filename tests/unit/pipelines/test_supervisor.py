"""Queries that fail, restart, end and are stopped, with a clock of the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipelines.build import Query
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.sink_letters import Rejections
from barnabas.pipelines.supervisor import Supervisor

UNREACHABLE = "org.apache.spark.SparkException: Job aborted\nbarnabas.spark.fetch.ReadTimeoutError: no answer"


IDLE = {"isTriggerActive": False, "isDataAvailable": False}
SET_UP = {**IDLE, "message": "Getting offsets from barnabas"}
WAITS = {**IDLE, "message": "Waiting for data to arrive"}


class Handle:
    """The visible state of a streaming query."""

    def __init__(self) -> None:
        self.isActive = True
        self.failure: str | None = None
        self.status = WAITS
        self.recentProgress: list[Any] = []
        self.stopped_in_batch: bool | None = None

    @property
    def lastProgress(self) -> Any:
        return self.recentProgress[-1] if self.recentProgress else None

    def exception(self) -> Exception | None:
        return None if self.failure is None else RuntimeError(self.failure)

    def fail(self, why: str = UNREACHABLE) -> None:
        self.isActive, self.failure = False, why

    def batch(self, number: int, rows: int, written: int = 0) -> None:
        report = {
            "batchId": number,
            "timestamp": f"2026-01-01T00:00:{number:02}Z",
            "numInputRows": rows,
            "observedMetrics": {"rows_written": {"rows_written": written}},
            "durationMs": {"triggerExecution": 250},
            "inputRowsPerSecond": 10.04,
            "processedRowsPerSecond": float("nan"),
            "sources": [
                {"endOffset": {"t": {"0": 5, "1": 7}}, "latestOffset": {"t": {"0": 9, "1": 7}}},
                {"endOffset": {"logOffset": 3}, "latestOffset": None},
            ],
            "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 1}],
        }
        self.recentProgress.append(SimpleNamespace(json=json.dumps(report)))

    def stop(self) -> None:
        self.stopped_in_batch = self.status["isDataAvailable"]
        self.isActive = False


class Scene:
    """One query with a supervisor."""

    def __init__(self, restarts: int = 10) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []
        self.said: list[str] = []
        self.refusal: str | None = None
        self.supervisor = Supervisor([Query("q", self._start)], restarts, lambda: self.now, self.said.append)
        self.supervisor.look()

    def _start(self) -> Any:
        if self.refusal is not None:
            raise PipelineError(self.refusal)
        self.handles.append(Handle())
        return self.handles[-1]

    @property
    def handle(self) -> Handle:
        return self.handles[-1]

    @property
    def status(self) -> Any:
        return self.supervisor.statuses[0]

    def look(self, after: float = 0.0) -> str:
        self.now += after
        self.supervisor.look()
        state: str = self.status.state
        return state


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_failed_query_is_started_again_after_waits_that_grow(scene: Scene) -> None:
    waits = []
    for _ in range(8):
        scene.handle.fail()
        assert scene.look() == "waiting"
        started = len(scene.handles)
        waited = 0.0
        while len(scene.handles) == started:
            waited += 0.5
            scene.look(after=0.5)
        waits.append(waited)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert scene.status.restarts == 8
    assert scene.said[0] == "q failed, trying again in 1 s: no answer"
    assert scene.status.last_error == "no answer"


def test_a_batch_that_succeeds_makes_the_waits_short_again(scene: Scene) -> None:
    for number in range(3):
        scene.handle.batch(number, 1)
        scene.look()
        scene.handle.fail()
        scene.look()
        assert scene.look(after=1.0) == "running"


def test_a_query_that_fails_too_often_in_a_row_ends_the_pipeline() -> None:
    scene = Scene(restarts=1)
    scene.handle.fail()
    scene.look()
    scene.look(after=1.0)
    scene.handle.fail()
    assert scene.look() == "failed"
    assert scene.supervisor.finished
    assert scene.supervisor.failed is scene.status
    assert scene.said[-1] == "q failed: no answer"


@pytest.mark.parametrize(
    "why",
    [
        "barnabas.base.errors.ConfigError: option topik=t is not allowed: did you mean topic?",
        "a.SparkException: [USER_RAISED_EXCEPTION] t-0 offset 3 does not parse SQLSTATE: P0001",
        "barnabas.spark.sink_progress.ReplayError: task 0 was written with 3 rows and now has 4",
        "barnabas.spark.open_ranges.DataLossError: t-0: offsets 3 to 4 are gone",
        "barnabas.spark.dead_letters.TooManyRejectedError: more than 100 rows of one batch",
    ],
)
def test_what_would_fail_again_is_not_tried_again(scene: Scene, why: str) -> None:
    scene.handle.fail(why)
    assert scene.look() == "failed"
    assert scene.status.last_error in (
        "option topik=t is not allowed: did you mean topic?",
        "t-0 offset 3 does not parse",
        "task 0 was written with 3 rows and now has 4",
        "t-0: offsets 3 to 4 are gone",
        "more than 100 rows of one batch",
    )


def test_a_restart_that_spark_refuses_counts_as_a_failure(scene: Scene) -> None:
    scene.handle.fail()
    scene.look()
    scene.refusal = "p.py:3: q: no"
    assert scene.look(after=1.0) == "waiting"
    assert scene.status.last_error == "p.py:3: q: no"
    scene.refusal = None
    assert scene.look(after=2.0) == "running"


def test_a_stop_waits_for_the_batch_under_way(scene: Scene) -> None:
    scene.handle.status = {"isTriggerActive": True, "isDataAvailable": True}
    scene.supervisor.stop()
    assert scene.look() == "running"
    scene.handle.status = {"isTriggerActive": True, "isDataAvailable": False}
    assert scene.look() == "stopped"
    assert scene.handle.stopped_in_batch is False


def test_a_stop_does_not_wait_for_a_query_that_waits_to_be_started_again(scene: Scene) -> None:
    scene.handle.fail()
    scene.look()
    scene.supervisor.stop()
    assert scene.look() == "stopped"


def test_a_stop_at_once_does_not_wait(scene: Scene) -> None:
    scene.handle.status = {"isTriggerActive": True, "isDataAvailable": True}
    scene.supervisor.stop_now()
    assert scene.look() == "stopped"


def test_a_query_that_has_read_all_is_done(scene: Scene) -> None:
    scene.handle.batch(0, 5)
    scene.handle.isActive = False
    assert scene.look() == "done"
    assert scene.status.rows_read == 5


def test_rows_are_counted_through_batches_that_no_look_saw_and_through_restarts(scene: Scene) -> None:
    look: Callable[[], str] = scene.look
    for number in range(3):
        scene.handle.batch(number, 10, written=2)
    look()
    scene.handle.batch(3, 1)
    look()
    scene.handle.batch(4, 1)
    scene.handle.batch(5, 1)
    look()
    look()
    assert (scene.status.rows_read, scene.status.rows_written) == (33, 6)
    scene.handle.fail()
    look()
    scene.look(after=1.0)
    scene.handle.batch(6, 4, written=1)
    look()
    assert (scene.status.rows_read, scene.status.rows_written) == (37, 7)


def test_the_status_tells_of_the_last_batch(scene: Scene) -> None:
    scene.handle.batch(7, 2)
    scene.look()
    status = scene.status
    assert (status.batch, status.batch_ms, status.lag) == (7, 250, 4)
    assert (status.input_rows_per_second, status.processed_rows_per_second) == (10.0, None)
    assert [(each.topic, each.partition, each.offset, each.end, each.lag) for each in status.partitions] == [
        ("t", 0, 5, 9, 4),
        ("t", 1, 7, 7, 0),
    ]
    assert (status.state_rows, status.state_bytes, status.dropped_late_rows) == (3, 100, 1)


def test_a_pipeline_of_which_spark_refuses_a_query_stops_those_it_has_started() -> None:
    running = Handle()

    def refuse() -> Any:
        raise PipelineError("p.py:1: no")

    queries = [Query("a", lambda: running), Query("b", refuse)]  # type: ignore[arg-type,return-value]
    supervisor = Supervisor(queries, 0, lambda: 0.0, print)
    with pytest.raises(PipelineError, match=r"p\.py:1: no"):
        supervisor.look()
        supervisor.look()
    assert not running.isActive
    assert supervisor.finished


class Many:
    """Several queries with a supervisor, whose Spark needs long to start them."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []
        queries = [Query(f"q{number}", self._start) for number in range(count)]
        self.supervisor = Supervisor(queries, 10, lambda: self.now, print)

    def _start(self) -> Any:
        self.handles.append(Handle())
        self.handles[-1].status = SET_UP
        return self.handles[-1]

    def states(self) -> list[str]:
        self.supervisor.look()
        return [status.state for status in self.supervisor.statuses]


def test_queries_start_one_after_the_other() -> None:
    many = Many(3)
    assert many.states() == ["starting", "waiting", "waiting"]
    assert many.states() == ["starting", "waiting", "waiting"]
    many.handles[0].status = WAITS
    assert many.states() == ["running", "starting", "waiting"]
    many.handles[1].batch(0, 1)
    assert many.states() == ["running", "running", "starting"]
    many.supervisor.stop_now()
    assert many.states() == ["stopped"] * 3


def test_a_query_that_fails_at_its_start_lets_the_next_one_start() -> None:
    many = Many(2)
    many.states()
    many.handles[0].fail()
    assert many.states() == ["waiting", "starting"]
    many.now = 5.0
    assert many.states() == ["waiting", "starting"]  # a restart waits for its turn, too
    many.handles[1].status = WAITS
    assert many.states() == ["starting", "running"]


def test_a_query_that_never_gets_ready_does_not_keep_the_others_from_starting() -> None:
    many = Many(2)
    many.states()
    many.now = 60.0
    assert many.states() == ["running", "starting"]


@pytest.mark.parametrize(
    "why",
    [
        "org.apache.spark.SparkException: Python worker failed to connect back.",
        "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
    ],
)
def test_a_machine_too_busy_to_start_python_does_not_use_up_the_restarts(why: str) -> None:
    scene = Scene(restarts=1)
    for _ in range(5):
        scene.handle.fail(why)
        assert scene.look() == "waiting"
        assert scene.look(after=60.0) == "running"
    scene.handle.fail()
    assert scene.look() == "waiting"
    scene.look(after=60.0)
    scene.handle.fail()
    assert scene.look() == "failed"


def test_an_error_is_cured_by_the_first_batch_after_it(scene: Scene) -> None:
    scene.handle.fail()
    scene.look()
    scene.look(after=1.0)
    assert (scene.status.last_error, scene.status.recovered_at) == ("no answer", None)
    scene.handle.batch(1, 1)
    scene.look()
    assert scene.status.recovered_at is not None
    scene.handle.fail()
    scene.look()
    assert scene.status.recovered_at is None


def test_the_age_of_a_batch_grows_until_the_next_one_ends(scene: Scene) -> None:
    """Within a batch, Spark reports nothing: neither the state nor the lag shows a hanging batch."""
    scene.look(after=100)
    assert scene.status.busy_s is None  # it waits for rows
    scene.handle.status = {"isTriggerActive": True, "isDataAvailable": True, "message": "Processing new data"}
    scene.look()
    scene.look(after=3600)
    assert (scene.status.state, scene.status.busy_s) == ("running", 3600)
    scene.handle.batch(0, 1)
    scene.look(after=10)
    assert scene.status.busy_s == 0
    assert scene.status.progress_at is not None
    scene.handle.status = {"isTriggerActive": True, "isDataAvailable": False, "message": "Getting offsets"}
    scene.look(after=60)
    assert scene.status.busy_s == 60  # brokers that do not answer hold it up, too
    scene.handle.status = WAITS
    scene.look(after=1)
    assert scene.status.busy_s is None


def test_rejected_rows_are_counted_and_told_of_once_a_minute_at_most(scene: Scene) -> None:
    def reject(number: int, rows: int, reason: str) -> None:
        scene.handle.batch(number, 5, written=5)
        report = json.loads(scene.handle.recentProgress[-1].json)
        report["observedMetrics"]["rows_rejected"] = {"rows": rows, "reason": reason if rows else None}
        scene.handle.recentProgress[-1] = SimpleNamespace(json=json.dumps(report))
        scene.look(after=1.0)

    reject(0, 1, "too large")
    reject(1, 0, "")
    assert (scene.status.rows_rejected, scene.status.last_rejection) == (1, "too large")
    reject(2, 2, "no key")
    assert (scene.status.rows_rejected, scene.status.rows_written) == (3, 15)
    told = [words for words in scene.said if "rejected" in words]
    assert told == [
        "q: the sink has rejected 1 row, now in its dead-letter topic, the last one because of: too large"
    ]
    scene.look(after=60.0)
    scene.look(after=60.0)
    assert [words for words in scene.said if "rejected" in words][1:] == [
        "q: the sink has rejected 2 rows, now in its dead-letter topic, the last one because of: no key"
    ]


def test_rows_that_tables_reject_are_counted_as_their_sinks_count_them() -> None:
    scene = Scene()
    sinks = [Rejections("a"), Rejections("b")]
    supervisor = Supervisor(
        [Query("q", scene._start, rejected=sinks)], 0, lambda: scene.now, scene.said.append
    )
    supervisor.look()
    sinks[0].add(2, "too long")
    sinks[1].add(1, None)
    scene.handle.batch(0, 5)
    supervisor.look()
    (status,) = supervisor.statuses
    assert (status.rows_rejected, status.last_rejection) == (3, "too long")
