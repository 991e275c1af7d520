"""Spark's Python processes find the installed PySpark, and everything else on their path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from barnabas.spark import worker_python as tested
from barnabas.spark.worker_python import worker_python

INSTALLED = Path(pyspark.__file__).resolve().parent


def test_spark_zips_leave_the_path_and_all_else_stays(tmp_path: Path) -> None:
    mine = [str(tmp_path / "a folder"), str(tmp_path / "*")]
    zips = [
        str(INSTALLED / "python/lib/pyspark.zip"),
        str(INSTALLED / "python/lib/py4j-0.10.9.9-src.zip"),
        str(INSTALLED / "jars/spark-core_2.13-4.3.0.jar"),
    ]
    path = os.pathsep.join([*zips[:2], mine[0], zips[2], mine[1]])
    shown = "import json, os, sys; print(json.dumps([os.environ['PYTHONPATH'], sys.path, sys.argv[1:]]))"
    command = [worker_python(tmp_path / "pipeline's folder"), "-c", shown, "an argument", "*"]
    environment = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    kept, found, arguments = json.loads(said)
    assert kept == os.pathsep.join(mine)
    assert set(mine) <= set(found) and not set(zips) & set(found)
    assert arguments == ["an argument", "*"]


def test_pyspark_is_then_the_installed_one(tmp_path: Path) -> None:
    show = "import pyspark, sys; print(pyspark.__file__, sys.prefix)"
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED / "python/lib/pyspark.zip")}
    command = [worker_python(tmp_path), "-c", show]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    file, prefix = said.split()
    assert Path(file).resolve().parent == INSTALLED
    assert prefix == sys.prefix


def test_where_no_script_can_be_executed_the_interpreter_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK)  # as on a noexec mount
    assert worker_python(tmp_path) == sys.executable


def test_another_spark_keeps_its_own_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_find_spark_home", lambda: str(tmp_path))
    assert worker_python(tmp_path) == sys.executable
    assert list(tmp_path.iterdir()) == []
