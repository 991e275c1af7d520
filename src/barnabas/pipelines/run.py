"""Runs a pipeline file from its first line to a clean stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from barnabas.pipelines.build import Run, build
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.folder import Folder
from barnabas.pipelines.model import Pipeline
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.session import SPARK_FAILS, answers, start_session
from barnabas.pipelines.status import PipelineStatus
from barnabas.pipelines.supervisor import Supervisor
from barnabas.spark.session import check_java

#: How often the queries are looked at, in seconds; on stopping so often that it falls between two batches.
_LOOK_S = 0.2
_LOOK_CLOSELY_S = 0.01
#: How often the status is written, in seconds.
_STATUS_S = 1.0

_RUNNING = "running"
_DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(frozen=True)
class Choices:
    """What is chosen when a pipeline is started; what is not goes by the file."""

    master: str = "local[*]"
    once: bool = False
    bootstrap: str = ""
    folder: Path | None = None
    spark: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Observer:
    """Who is told of a run: events in words, and the status about once a second."""

    say: Callable[[str], None]
    show: Callable[[PipelineStatus], None] = lambda status: None


def run_pipeline(path: Path, choices: Choices, observer: Observer) -> PipelineStatus:
    """Run until all is read (`once`), or until SIGTERM or SIGINT; the last status.

    The first signal stops each query when its batch is done, a second one at once.

    Raises:
        PipelineError: the file is wrong, Spark does not start or dies, or a query has failed for good.
    """
    check_java()
    pipeline = read_pipeline(path, choices.parameters)
    folder = Folder.of(pipeline, choices.folder)
    with folder.held():
        observer.say(f"{pipeline.name}: starting Spark on {choices.master}; its log is {folder.log}")
        if not (choices.master.startswith("local") or pipeline.options.checkpoints):
            observer.say(
                f"{pipeline.name}: its checkpoints are in {folder.checkpoints}, which every machine of the "
                "cluster must see; else set checkpoints to a folder that they all do"
            )
        settings = {**pipeline.options.spark, **choices.spark}
        spark = start_session(pipeline.name, folder.path, choices.master, settings, folder.log)
        try:
            with _signals() as stop:
                queries = build(spark, _whole(pipeline), _run(pipeline, folder, choices))
                supervisor = Supervisor(queries, pipeline.options.restarts, time.monotonic, observer.say)
                status = _status(pipeline, choices, supervisor)
                _supervise(supervisor, status, folder, observer, stop)
        except SPARK_FAILS as error:
            if answers(spark):
                raise
            raise PipelineError(f"Spark's JVM ended unexpectedly; its log is {folder.log}") from error
        finally:
            with suppress(*SPARK_FAILS):
                spark.stop()
    if supervisor.failed:
        raise PipelineError(f"{supervisor.failed.query} failed: {supervisor.failed.last_error}")
    return status


def _whole(pipeline: Pipeline) -> Pipeline:
    """A file that needs Spark while it is read is read again, now that Spark is there."""
    if pipeline.complete:
        return pipeline
    again = read_pipeline(pipeline.path, pipeline.parameters.given)
    if again.options != pipeline.options:
        raise PipelineError(f"{pipeline.path}: pipeline(...) comes too late: move it to the top of the file")
    return again


def _run(pipeline: Pipeline, folder: Folder, choices: Choices) -> Run:
    bootstrap = choices.bootstrap or pipeline.options.bootstrap or _DEFAULT_BOOTSTRAP
    return Run(bootstrap, pipeline.options.checkpoints or folder.checkpoints.as_uri(), choices.once)


def _supervise(
    supervisor: Supervisor, status: PipelineStatus, folder: Folder, observer: Observer, stop: _Signals
) -> None:
    shown = 0.0
    while not supervisor.finished:
        if stop.count == 1 and status.state == _RUNNING:
            observer.say("stopping when the batches under way are done; once more to stop at once")
            status.state = "stopping"
            supervisor.stop()
        elif stop.count > 1:
            supervisor.stop_now()
        supervisor.look()
        if time.monotonic() - shown >= _STATUS_S:
            shown = time.monotonic()
            _publish(status, folder, observer)
        time.sleep(_LOOK_CLOSELY_S if stop.count or supervisor.failed else _LOOK_S)
    status.state = "failed" if supervisor.failed else "stopped" if stop.count else "done"
    _publish(status, folder, observer)


def _status(pipeline: Pipeline, choices: Choices, supervisor: Supervisor) -> PipelineStatus:
    now = _now()
    file = str(pipeline.path.absolute())
    queries = supervisor.statuses
    return PipelineStatus(pipeline.name, file, choices.master, os.getpid(), _RUNNING, now, now, queries)


def _publish(status: PipelineStatus, folder: Folder, observer: Observer) -> None:
    status.updated = _now()
    status.write(folder.status)
    observer.show(status)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Signals:
    """How often the process was told to stop."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, number: int, frame: object) -> None:
        self.count += 1


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Count SIGTERM and SIGINT from here on; PySpark has set a handler of its own that would end its jobs."""
    counted = _Signals()
    before = {number: signal.signal(number, counted) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield counted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
