"""Spark's Python workers: imports happen before the fork, and the garbage collector ignores their objects."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

from barnabas.spark.worker_heap import count_use

_USES = """
import gc, importlib.machinery, json, sys
sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec({main!r}, None)
from barnabas.spark.worker_heap import count_use
counts = []
for use in range(4):
    count_use()
    kept = [[] for _ in range(1_000)]
    counts.append(gc.get_freeze_count())
print(json.dumps(counts))
"""
_IMPORTS = """
import sys
from barnabas.spark.worker_daemon import import_for
import_for(sys.argv[1])
print(*(name for name in sys.modules if name.startswith("barnabas.") or name in ("pandas", sys.argv[1])))
"""


def _said(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_is_there_at_the_second_use_is_frozen_and_nothing_after_it() -> None:
    for main in ("pyspark.daemon", "barnabas.spark.worker_daemon"):
        first, second, *later = json.loads(_said(_USES.format(main=main)))
        assert first == 0
        assert second > 1_000
        assert all(second - 1_000 < each <= second for each in later), (second, later)  # some were freed


def test_nothing_is_frozen_in_a_process_that_spark_did_not_fork() -> None:
    assert json.loads(_said(_USES.format(main="a.job"))) == [0, 0, 0, 0]
    before = gc.get_freeze_count()
    for _ in range(4):
        count_use()
    assert gc.get_freeze_count() == before


def test_readers_and_writers_are_there_before_a_worker_is_forked() -> None:
    tasks = _said(_IMPORTS, "pyspark.worker").split()
    assert {"pyspark.worker", "barnabas.spark.stream_reader", "barnabas.spark.writer", "pandas"} <= set(tasks)


def test_what_cannot_be_imported_is_left_to_the_worker() -> None:
    assert "of.no.such.worker" not in _said(_IMPORTS, "of.no.such.worker").split()
