"""Runs a pipeline file from its first line to a clean stop."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from barnabas.pipelines import local_checkpoints
from barnabas.pipelines.alerts import Alert, LagAlert, StuckAlert
from barnabas.pipelines.build import Run, build, client_settings
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.folder import Folder
from barnabas.pipelines.metrics import MetricsServer
from barnabas.pipelines.model import Pipeline
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.session import SPARK_FAILS, answers, start_session
from barnabas.pipelines.status import PipelineStatus
from barnabas.pipelines.status_topic import StatusTopic
from barnabas.pipelines.supervisor import Supervisor
from barnabas.spark.session import check_java

#: The seconds between two checks of the queries. When they stop, a check must fall between two batches.
_LOOK_S = 0.2
_LOOK_CLOSELY_S = 0.01
#: How often the status is written, in seconds.
_STATUS_S = 1.0

_RUNNING = "running"
_DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(frozen=True)
class Choices:
    """The command-line settings of one run. They override the settings in the pipeline's file.

    For a setting that is empty or None, the pipeline's file or the default applies.
    """

    #: the URL of Spark's master
    master: str = "local[*]"
    #: whether the run ends when all present records are read
    once: bool = False
    bootstrap: str = ""
    folder: Path | None = None
    spark: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    #: a file of client settings
    config: str = ""
    #: HOST:PORT of the metrics server; empty for none
    metrics: str = ""


@dataclass(frozen=True)
class Observer:
    """Functions that a run calls: `say` with a sentence for each event, `show` with the status.

    `show` is called about once a second.
    """

    say: Callable[[str], None]
    show: Callable[[PipelineStatus], None] = lambda status: None


def run_pipeline(path: Path, choices: Choices, observer: Observer) -> PipelineStatus:
    """Run the pipeline file `path`, and return its last status.

    The pipeline runs until SIGTERM or SIGINT; with `choices.once`, until all present records are read. The
    first signal stops each query at the end of its batch. The second signal stops all queries at once.
    `observer` receives each event, and the status about once a second.

    Raises:
        PipelineError: the file has an error, Spark does not start or dies, or a query has failed permanently.
        JavaMissingError: Spark cannot find Java, or its version is too old.
    """
    check_java()
    pipeline = read_pipeline(path, choices.parameters)
    folder = Folder.of(pipeline, choices.folder)
    checkpoints = run_of(pipeline, folder, choices).checkpoints
    settings = {
        **local_checkpoints.settings_for(pipeline, choices.master, checkpoints),
        **pipeline.options.spark,
        **choices.spark,
    }
    pipeline.check_installed(settings)
    with folder.held():
        observer.say(f"{pipeline.name}: starting Spark on {choices.master}; its log is {folder.log}")
        if not (choices.master.startswith("local") or pipeline.options.checkpoints):
            observer.say(
                f"{pipeline.name}: its checkpoints are in {folder.checkpoints}, which every machine of the "
                "cluster must see; else set checkpoints to a folder that they all do"
            )
        spark = start_session(pipeline.name, folder.path, choices.master, settings, folder.log)
        try:
            local_checkpoints.prepare(spark)
            with _signals() as stop:
                queries = build(spark, _whole(pipeline), run_of(pipeline, folder, choices))
                supervisor = Supervisor(queries, pipeline.options.restarts, time.monotonic, observer.say)
                status = _status(pipeline, choices, supervisor)
                with _outlets(pipeline, choices, folder, observer) as outlets:
                    _supervise(supervisor, status, outlets, observer, stop)
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
    """Return the complete pipeline. If it was read only in part, read its file again, now that Spark runs.

    Raises:
        PipelineError: the file has an error, or sets options of the pipeline after its first use of Spark.
    """
    if pipeline.complete:
        return pipeline
    again = read_pipeline(pipeline.path, pipeline.parameters.given)
    if again.options != pipeline.options:
        raise PipelineError(f"{pipeline.path}: pipeline(...) comes too late: move it to the top of the file")
    return again


def run_of(pipeline: Pipeline, folder: Folder, choices: Choices) -> Run:
    """Return the settings of the run. `choices` overrides the pipeline's file.

    The checkpoints are in `folder`, unless the pipeline's option checkpoints names another folder.
    """
    options = pipeline.options
    config = choices.config or options.config
    bootstrap = choices.bootstrap or options.bootstrap or ("" if config else _DEFAULT_BOOTSTRAP)
    return Run(bootstrap, options.checkpoints or folder.checkpoints.as_uri(), choices.once, config)


def _supervise(
    supervisor: Supervisor, status: PipelineStatus, outlets: _Outlets, observer: Observer, stop: _Signals
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
            outlets.publish(status)
        time.sleep(_LOOK_CLOSELY_S if stop.count or supervisor.failed else _LOOK_S)
    status.state = "failed" if supervisor.failed else "stopped" if stop.count else "done"
    outlets.publish(status)


def _status(pipeline: Pipeline, choices: Choices, supervisor: Supervisor) -> PipelineStatus:
    now = _now()
    file = str(pipeline.path.absolute())
    queries = supervisor.statuses
    host = socket.gethostname()
    return PipelineStatus(pipeline.name, file, choices.master, os.getpid(), _RUNNING, now, now, queries, host)


@dataclass(frozen=True)
class _Outlets:
    """Publishes the status: in the folder, to the observer and, if configured, to a topic and Prometheus."""

    folder: Folder
    observer: Observer
    alerts: Sequence[Alert]
    topic: StatusTopic | None
    server: MetricsServer | None

    def publish(self, status: PipelineStatus) -> None:
        status.updated = _now()
        status.alerts = [words for alert in self.alerts for words in alert.look(status.queries)]
        status.write(self.folder.status)
        self.observer.show(status)
        if self.topic is not None:
            self.topic.publish(status)
        if self.server is not None:
            self.server.show(status)


@contextmanager
def _outlets(pipeline: Pipeline, choices: Choices, folder: Folder, observer: Observer) -> Iterator[_Outlets]:
    options = pipeline.options
    alerts = (
        LagAlert(options.alert_lag, options.alert_after_s, time.monotonic, observer.say),
        StuckAlert(options.alert_stuck_s, observer.say),
    )
    with ExitStack() as open_:
        topic = server = None
        if choices.metrics:
            server = MetricsServer(choices.metrics)
            open_.callback(server.close)
            observer.say(f"{pipeline.name}: metrics at {server.url}/metrics")
        if options.status_topic:
            client = client_settings(pipeline, run_of(pipeline, folder, choices))
            topic = StatusTopic(options.status_topic, client, observer.say)
            open_.callback(topic.close)
        yield _Outlets(folder, observer, alerts, topic, server)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Signals:
    """Counts the signals that stop the process."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, number: int, frame: object) -> None:
        self.count += 1


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Count SIGTERM and SIGINT within this context.

    This replaces PySpark's signal handler, which would cancel all Spark jobs.
    """
    counted = _Signals()
    before = {number: signal.signal(number, counted) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield counted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
