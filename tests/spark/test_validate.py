"""`barnabas pipeline validate`: the errors that it finds before a run, and folders that remember batches."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import PipelineRunner, supervise

from barnabas.pipelines import validate
from barnabas.pipelines.build import Run
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.read import read_pipeline
from barnabas.pipelines.validate import check_topics

SOURCE = """
@source(topic="{topic}", format="json", schema="id BIGINT, at TIMESTAMP")
def orders(rows):
    return rows
"""

REFUSED = {
    "a count that never ends": (
        '@sink(topic="out")\ndef counted(orders):\n    return orders.groupBy("id").count()\n',
        r"shop\.py:\d+: counted: .*watermark",
    ),
    "a key that is not there": (
        '@sink(topic="out", key="name")\ndef keyed(orders):\n    return orders\n',
        r"shop\.py:\d+: keyed: option key=name is not allowed: the columns are id, at",
    ),
    "sorting a stream": (
        '@sink(console=True)\ndef sorted_(orders):\n    return orders.orderBy("id")\n',
        r"shop\.py:\d+: sorted_: .*[Ss]orting",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_spark_would_refuse_at_the_start_is_refused_without_a_job(
    spark: SparkSession, pipeline: PipelineRunner, case: str
) -> None:
    sink, words = REFUSED[case]
    (query,) = pipeline.queries(SOURCE.format(topic="none-such") + sink).values()
    with pytest.raises(PipelineError, match=words):
        query.check()


OPTIONS = {
    "of a source": (
        '@source(topic="t", options={"maxOffsetPerTrigger": "5"})\ndef a(rows):\n    return rows\n'
        "@sink(console=True)\ndef z(a):\n    return a\n",
        r"shop\.py:\d+: source a: option maxoffsetpertrigger=5 is not allowed: did you mean maxOffsetsPer",
    ),
    "of a sink": (
        SOURCE.format(topic="t")
        + '@sink(topic="out", options={"topik": "x"})\ndef b(orders):\n    return orders\n',
        r"shop\.py:\d+: b: option topik=x is not allowed: did you mean topic\?",
    ),
    "of SQL that is none": (
        SOURCE.format(topic="t")
        + '@sink(topic="out")\ndef c(orders):\n    return orders.selectExpr("id id id")\n',
        r"shop\.py:\d+: sink c: Syntax error at or near 'id'.* \(line 1, pos \d+\)",
    ),
}


WRONG_COLUMN = """/*
[source.orders]
files = "{folder}/orders"
format = "json"
schema = "id BIGINT, price DOUBLE"

[sink.dear]
from = "dear"
console = true
*/
CREATE TEMPORARY VIEW dear AS SELECT id, prise FROM orders;
"""


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_wrong_column_prints_the_error_for_people_and_no_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    file = tmp_path / "shop.sql"
    file.write_text(WRONG_COLUMN.format(folder=tmp_path))
    command = [sys.executable, "-m", "barnabas.cli", "pipeline", "validate", str(file), "--offline"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {file}:11: view dear: A column, variable, or function parameter"), line
    assert "`prise` cannot be resolved. Did you mean" in line


@pytest.mark.parametrize("case", OPTIONS)
def test_a_slip_in_an_option_is_told_before_a_query_starts(pipeline: PipelineRunner, case: str) -> None:
    text, words = OPTIONS[case]
    with pytest.raises(PipelineError, match=words):
        for query in pipeline.queries(text).values():
            query.check()


def test_what_spark_takes_passes(pipeline: PipelineRunner) -> None:
    sinks = (
        '@sink(topic="out", mode="complete")\ndef a(orders):\n    return orders.groupBy("id").count()\n'
        '@sink(topic="out", mode="update")\ndef b(orders):\n    return orders.groupBy("id").count()\n'
        '@sink(parquet="archive")\ndef c(orders):\n    return orders\n'
    )
    for query in pipeline.queries(SOURCE.format(topic="none-such") + sinks).values():
        query.check()


def test_topics_that_lack_are_named(servers: str, make_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = make_topic()
    file = tmp_path / "shop.py"
    head = "from barnabas.pipelines import sink, source\n" + SOURCE.format(topic=topic)
    run = Run(servers, "", once=False)
    file.write_text(head + f'@sink(topic="{topic}")\ndef out(orders):\n    return orders\n')
    check_topics(read_pipeline(file), run)
    file.write_text(head + '@sink(topic="none-such")\ndef out(orders):\n    return orders\n')
    with pytest.raises(
        PipelineError, match=r"sink out: there is no topic none-such .*topics create none-such"
    ):
        check_topics(read_pipeline(file), run)


def test_brokers_that_do_not_answer_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "_PATIENCE_S", 0.2)
    file = tmp_path / "shop.py"
    file.write_text(
        "from barnabas.pipelines import sink, source\n"
        + SOURCE.format(topic="t")
        + '@sink(topic="t")\ndef out(orders):\n    return orders\n'
    )
    with pytest.raises(PipelineError, match=r"127\.0\.0\.1:1: .*; without them, use --offline"):
        check_topics(read_pipeline(file), Run("127.0.0.1:1", "", once=False))


def test_a_query_without_a_checkpoint_does_not_write_to_a_folder_that_would_ignore_its_batches(
    make_topic: Callable[..., str], feed: Any, pipeline: PipelineRunner, tmp_path: Path
) -> None:
    topic = make_topic()
    output = tmp_path / "kept"
    text = f"""
@source(topic="{topic}", format="text")
def lines(rows):
    return rows

@sink(parquet="{output}")
def kept(lines):
    return lines
"""
    feed(topic, range(3))
    pipeline(text)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(PipelineError, match="kept remembers the batches written there"):
        supervise(pipeline.queries(text)["kept"])
    output.rename(tmp_path / "old")
    pipeline(text)
    assert pyarrow.parquet.read_table(output)["value"].to_pylist() == ["0", "1", "2"]
