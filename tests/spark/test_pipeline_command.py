"""`barnabas pipeline run` as it is used: beside the broker, stopped by a signal, gone on with later."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]

PIPELINE = """
from barnabas.pipelines import sink, source

@source(topic="{source}", format="text", options={{"maxOffsetsPerTrigger": "1000"}})
def lines(rows):
    return rows

@sink(topic="{sink}", format="text")
def copy(lines):
    return lines
"""


class Running:
    """A pipeline in a process of its own."""

    def __init__(self, file: Path, servers: str) -> None:
        self._command = [sys.executable, "-m", "barnabas.cli", "pipeline"]
        self._file = file
        self._servers = servers
        self._log = file.with_suffix(".err")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        chosen = ["--bootstrap-server", self._servers, "--master", "local[1]", *arguments]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*self._command, "run", str(self._file), *chosen], stderr=log)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(200)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def status(self) -> dict[str, Any]:
        command = [*self._command, "status", str(self._file), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"queries": [{"rows": 0}]}

    def await_rows(self, count: int) -> dict[str, Any]:
        """The status once this many rows have been read."""
        assert self.process is not None
        while (status := self.status())["queries"][0]["rows"] < count:
            assert self.process.poll() is None, self.said
            time.sleep(0.5)
        return status


@pytest.fixture
def running(servers: str, tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "copy.py", servers)
    yield running
    if running.process is not None and running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def copied(servers: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([ClientPartition(topic, 0, 0)])
    found: list[int] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(int(message.value()))
    consumer.close()
    return found


def test_a_pipeline_stopped_by_sigterm_finishes_its_batch_and_the_next_run_goes_on(
    servers: str, make_topic: Callable[..., str], feed: Any, running: Running, tmp_path: Path
) -> None:
    source, sink = make_topic(), make_topic()
    (tmp_path / "copy.py").write_text(PIPELINE.format(source=source, sink=sink))
    feed(source, range(20_000))
    running.start()
    status = running.await_rows(1000)
    assert (status["state"], status["queries"][0]["state"]) == ("running", "running")
    partition = status["queries"][0]["partitions"][0]
    assert (partition["topic"], partition["partition"], partition["end"]) == (source, 0, 20_000)
    assert partition["lag"] == 20_000 - partition["offset"] > 0
    assert running.process is not None
    running.process.send_signal(signal.SIGTERM)
    assert running.wait() == 0, running.said
    assert "stopping when the batches under way are done" in running.said
    status = running.status()
    assert (status["state"], status["queries"][0]["state"]) == ("stopped", "stopped")
    # what is written is what has been counted: the batch under way was neither cut short nor left uncounted
    assert copied(servers, sink) == list(range(status["queries"][0]["rows"]))

    running.start("--once")
    assert running.wait() == 0, running.said
    assert copied(servers, sink) == list(range(20_000))
    assert running.status()["state"] == "done"
