"""A query that hangs in a batch: its state, the batch's age, the metric and the alert show it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.pipeline_run import PipelineRunner

from barnabas.cli.pipeline.table import print_status
from barnabas.pipelines.alerts import StuckAlert
from barnabas.pipelines.metrics import exposition
from barnabas.pipelines.status import PipelineStatus, QueryStatus
from barnabas.pipelines.supervisor import Supervisor

PIPELINE = """
import time
from pathlib import Path

@source(topic="{source}", format="text")
def lines(rows):
    return rows

@F.udf("string")
def wait_at_gate(value):
    if value == "hang":
        Path("{gate}.reached").touch()
        while not Path("{gate}").exists():
            time.sleep(0.02)
    return value

@sink(topic="{sink}", format="text")
def copy(lines):
    return lines.select(wait_at_gate("value").alias("value"))
"""


def test_a_query_that_hangs_in_a_batch_does_not_look_healthy(
    pipeline: PipelineRunner,
    make_topic: Callable[..., str],
    feed: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, sink, gate = make_topic(), make_topic(), tmp_path / "gate"
    said: list[str] = []
    passed = [0.0]  # seconds beside those that really pass
    text = PIPELINE.format(source=source, sink=sink, gate=gate)
    (query,) = pipeline.queries(text, once=False).values()
    supervisor = Supervisor([query], 10, lambda: time.monotonic() + passed[0], said.append)
    alert = StuckAlert(600, said.append)

    def await_that(reached: Callable[[QueryStatus], bool]) -> QueryStatus:
        deadline = time.monotonic() + 120
        while True:
            supervisor.look()
            (status,) = supervisor.statuses
            if reached(status):
                return status
            assert time.monotonic() < deadline, status
            time.sleep(0.05)

    try:
        feed(source, ["fine"])
        healthy = await_that(lambda status: status.rows_written == 1 and status.busy_s is None)
        assert alert.look([healthy]) == []
        feed(source, ["hang"])
        await_that(lambda status: Path(f"{gate}.reached").exists() and status.busy_s is not None)

        passed[0] = 26 * 3600
        hanging = await_that(lambda status: True)
        assert (hanging.state, hanging.lag, hanging.rows_written) == ("running", 0, 1), "as if healthy"
        assert 26 * 3600 <= (hanging.busy_s or 0) < 27 * 3600
        alerts = alert.look([hanging])
        batch = (hanging.batch or 0) + 1
        assert alerts == [f"copy has been at batch {batch} for 26 h"]
        assert said[-1] == f"alert: {alerts[0]}"
        shown = whole(hanging, alerts)
        metrics = dict(line.rsplit(" ", 1) for line in exposition(shown) if not line.startswith("#"))
        labels = '{pipeline="shop",query="copy"}'
        assert float(metrics[f"barnabas_pipeline_batch_running_seconds{labels}"]) == hanging.busy_s
        assert float(metrics['barnabas_pipeline_alerts{pipeline="shop"}']) == 1
        print_status(shown)
        printed = capsys.readouterr().out
        assert f"  alert: {alerts[0]}\n" in printed
        assert f"  {alerts[0]}, the one before ended at {healthy.progress_at}\n" in printed

        gate.touch()
        after = await_that(lambda status: status.rows_written == 2 and status.busy_s is None)
        assert alert.look([after]) == []
        assert said[-1] == "copy has gone on"
    finally:
        gate.touch()
        supervisor.stop_now()


def whole(query: QueryStatus, alerts: list[str]) -> PipelineStatus:
    now = "2026-03-01T10:00:00+00:00"
    return PipelineStatus("shop", "shop.py", "local", 1, "running", now, now, [query], alerts=alerts)
