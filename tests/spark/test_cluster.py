"""A pipeline on a real cluster: Spark standalone, with a master and two workers as separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.spark.committed import committed_values, last_stable_offset
from tests.spark.standalone import StandaloneCluster, wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow"
    ),
]

ROWS = 20_000
PIPELINE = """
from barnabas.pipelines import sink, source
from pyspark.sql import functions as F

@source(topic="{source}", format="text", options={{"maxOffsetsPerTrigger": "1000", "minPartitions": "2"}})
def numbers(rows):
    return rows

@sink(topic="{target}", format="text", delivery="exactly-once")
def copy(numbers):
    return numbers.select(F.upper("value").alias("value"))
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    cluster = StandaloneCluster(tmp_path, workers=2)
    yield cluster
    cluster.stop()


def test_a_pipeline_whose_worker_is_killed_under_it_writes_each_row_once(
    cluster: StandaloneCluster,
    servers: str,
    make_topic: Callable[..., str],
    feed: Callable[..., None],
    tmp_path: Path,
) -> None:
    source, target = make_topic(2), make_topic(1)
    for partition in range(2):
        feed(source, (f"row {number}" for number in range(partition, ROWS, 2)), partition)
    file = tmp_path / "copy.py"
    file.write_text(PIPELINE.format(source=source, target=target))
    with (tmp_path / "pipeline.err").open("wb") as log:
        pipeline = subprocess.Popen(
            [
                *(sys.executable, "-m", "barnabas.cli", "pipeline", "run", str(file), "--once"),
                *("--bootstrap-server", servers, "--master", cluster.url),
                *("--conf", "spark.executor.memory=512m"),
            ],
            stderr=log,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def has_begun() -> bool:
        assert pipeline.poll() is None, "it ended before the worker was killed"
        return last_stable_offset(servers, target) > ROWS / 10

    def seen() -> str:
        """Return the progress as text, to distinguish a missing executor, a hanging batch and a retry."""
        batches = {
            kind: len(list((tmp_path / ".barnabas" / "copy").glob(f"checkpoints/copy/{kind}/[0-9]*")))
            for kind in ("offsets", "commits")
        }
        executors = [cluster.executors(worker) for worker in range(2)]
        rows = last_stable_offset(servers, target)
        return f"{rows} rows, batches {batches}, executors by worker {executors}; the logs follow"

    try:
        wait_for("a tenth of the rows in the target topic", has_begun, seen)
        assert [cluster.executors(worker) for worker in range(2)] == [1, 1]
        cluster.kill_worker(0)
        assert last_stable_offset(servers, target) < ROWS, "it was done before"
        assert pipeline.wait(400) == 0
    finally:
        pipeline.kill()
        pipeline.wait()
        # shown when the test fails: what the pipeline said, Spark's driver and its cluster
        print((tmp_path / "pipeline.err").read_text())
        spark_log = tmp_path / ".barnabas" / "copy" / "spark.log"
        print(spark_log.read_text()[-10_000:] if spark_log.exists() else "Spark's log is not there")
        for name in ("master", "worker-0", "worker-1"):
            print(name, cluster.log(name)[-3_000:])
    assert "which every machine of the cluster must see" in (tmp_path / "pipeline.err").read_text()
    assert committed_values(servers, target) == sorted(f"ROW {number}" for number in range(ROWS))
