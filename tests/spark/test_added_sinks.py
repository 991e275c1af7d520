"""A sink of another package: the example in the documentation, which pip installs beside Barnabas."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import blocks_of
from tests.spark.pipeline_process import PipelineProcess

PAGE = Path(__file__).parents[2] / "docs" / "use" / "pipelines.md"
PACKAGE = ("pyproject.toml", "barnabas_sqlite.py")

PIPELINE = """
from barnabas.pipelines import sink, source

@source(topic="{source}", format="json", schema="id BIGINT, name STRING")
def sales(rows):
    return rows

@sink(sqlite="{database}", table="sales")
def table(sales):
    return sales
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Install the example package of the documentation with pip. Return its folder."""
    project, installed = tmp_path / "project", tmp_path / "installed"
    project.mkdir()
    for block in blocks_of(PAGE):
        if block.title in PACKAGE:
            (project / str(block.title)).write_text(block.text)
    assert sorted(each.name for each in project.iterdir()) == sorted(PACKAGE)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(installed), str(project)], check=True)
    return installed


@pytest.mark.spark
def test_a_sink_of_another_package_writes_each_row_once(
    package: Path,
    servers: str,
    make_topic: Callable[..., str],
    feed: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, database = make_topic(), tmp_path / "shop.db"
    file = tmp_path / "to_sqlite.py"
    file.write_text(PIPELINE.format(source=topic, database=database))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE sales (id INTEGER, name TEXT CHECK (name <> 'refused'))")
    monkeypatch.setenv("PYTHONPATH", str(package))
    process = PipelineProcess(file, "to_sqlite", servers)

    def run(*rows: str) -> int:
        feed(topic, rows)
        process.start("--once")
        return process.wait()

    try:
        assert run('{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}') == 0, process.said
        assert run('{"id": 3, "name": "c"}') == 0, process.said
    finally:
        process.kill()
    with closing(sqlite3.connect(database)) as connection:
        assert sorted(connection.execute("SELECT id, name FROM sales")) == [(1, "a"), (2, "b"), (3, "c")]
        assert connection.execute("SELECT count(*), max(number) FROM batches").fetchone() == (1, 1)
