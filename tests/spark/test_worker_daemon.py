"""The Python workers of a pipeline on this machine are forked with their modules imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_JOB = """
import json, sys
from pathlib import Path
import pyarrow as pa
from barnabas.pipelines.session import start_session

def seen(batches):
    import gc, sys
    for batch in batches:
        main = sys.modules["__main__"].__spec__.name
        there = "barnabas.spark.writer" in sys.modules
        yield pa.RecordBatch.from_pylist([{"main": main, "there": there, "frozen": gc.get_freeze_count()}])

folder = Path(sys.argv[1])
spark = start_session("workers", folder, "local[1]", {}, folder / "spark.log")
try:
    rows = spark.range(1).mapInArrow(seen, "main string, there boolean, frozen long").collect()
    print(json.dumps(rows[0].asDict()))
finally:
    spark.stop()
"""


def test_workers_are_forked_with_what_they_need(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    command = [sys.executable, str(job), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    worker = json.loads(done.stdout.splitlines()[-1])
    assert worker["main"] == "barnabas.spark.worker_daemon"
    assert worker["there"]
    assert worker["frozen"] > 10_000
