"""`barnabas pipeline run` in practice: beside the broker, stopped by a signal, killed, and continued."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.committed import committed_values
from tests.spark.pipeline_process import PipelineProcess
from tests.spark.processes import TASKS, kill, workers_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 50_000

PIPELINE = """
from barnabas.pipelines import pipeline, sink, source

pipeline(
    name="copying",
    kafka={{"client.id": "copying"}},
    spark={{"spark.sql.streaming.numRecentProgressUpdates": "5"}},
    checkpoints="{folder}/checkpoints",
    restarts=3,
)

@source(topic="{source}", format="text", options={{"maxOffsetsPerTrigger": "1000"}})
def lines(rows):
    return rows

@sink(topic="{sink}", format="text", delivery="exactly-once")
def copy(lines):
    return lines
"""


@pytest.fixture
def copying(servers: str, tmp_path: Path) -> Iterator[PipelineProcess]:
    process = PipelineProcess(tmp_path / "copy.py", "copying", servers)
    yield process
    process.kill()


def test_a_pipeline_goes_on_after_kills_and_finishes_its_batch_when_stopped(
    servers: str, make_topic: Callable[..., str], feed: Any, copying: PipelineProcess, tmp_path: Path
) -> None:
    source, sink = make_topic(), make_topic()
    (tmp_path / "copy.py").write_text(PIPELINE.format(source=source, sink=sink, folder=tmp_path.as_uri()))
    feed(source, range(ROWS))

    copying.start()
    copying.await_query(rows_read=1000)
    while copying.await_query()["restarts"] == 0:
        for worker in workers_of(copying.pid, TASKS):
            kill(worker)
        time.sleep(0.5)
    assert "copy failed, trying again in 1 s: " in copying.said
    assert copying.await_query(rows_read=3000)["last_error"]
    copying.kill()
    assert copying.status()["state"] == "killed"

    copying.start()
    copying.await_query(rows_read=1000)
    status = copying.status()
    assert (status["state"], status["queries"][0]["state"]) == ("running", "running")
    copying.stop()
    assert copying.wait() == 0, copying.said
    assert "stopping when the batches under way are done" in copying.said
    status = copying.status()
    assert (status["state"], status["queries"][0]["state"]) == ("stopped", "stopped")
    partition = status["queries"][0]["partitions"][0]
    assert (partition["topic"], partition["partition"], partition["end"]) == (source, 0, ROWS)
    done = partition["offset"]
    assert partition["lag"] == ROWS - done > 0
    # what is written is what has been counted: the batch under way was neither cut short nor left uncounted
    assert committed_values(servers, sink) == sorted(map(str, range(done)))
    assert (tmp_path / "checkpoints" / "copy" / "offsets").is_dir()
    # no file that is written in two steps, of which a kill could leave one
    assert not list((tmp_path / "checkpoints").rglob("*.crc"))
