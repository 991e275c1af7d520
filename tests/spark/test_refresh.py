"""Static sources that are joined with streams and read again: the offsets of a topic,
the files of a folder.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import PipelineRunner

from barnabas.pipelines import refresh as refresh_module
from barnabas.pipelines.refresh import Lookup, refresh
from barnabas.pipelines.supervisor import Supervisor


def test_what_is_read_again_is_as_before_until_it_is_refreshed(
    spark: SparkSession, servers: str, make_topic: Callable[..., str], feed: Any, tmp_path: Path
) -> None:
    topic = make_topic()
    feed(topic, ["a"])
    (tmp_path / "1.txt").write_text("a\n")
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    of_topic = spark.read.format("barnabas").options(**options).load().selectExpr("string(value) AS value")
    rows = of_topic.unionAll(spark.read.format("text").load(str(tmp_path)))

    def read() -> list[str]:
        # a query of its own on the same sources, as each batch of a stream is one
        return sorted(row.value for row in rows.select("value").collect())

    assert read() == ["a", "a"]
    feed(topic, ["b"])
    (tmp_path / "2.txt").write_text("b\n")
    assert read() == ["a", "a"]
    refresh(rows)
    assert read() == ["a", "a", "b", "b"]


def test_a_refresh_begins_when_it_is_due_and_its_failure_is_told_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, said, tried = [0.0], [], []
    go_on = threading.Event()

    def fail(rows: object) -> None:
        tried.append(rows)
        assert go_on.wait(60)
        raise ValueError("no answer")

    monkeypatch.setattr(refresh_module, "refresh", fail)
    lookup = Lookup("names", spark.range(1), 5.0, lambda: now[0])
    for now[0] in (0.0, 4.9):
        lookup.look(said.append)
    assert lookup._thread is None
    for now[0] in (5.0, 11.0):
        lookup.look(said.append)
    go_on.set()
    assert lookup._thread is not None
    lookup._thread.join(60)
    assert (len(tried), said) == (1, [])
    now[0] = 9.9
    lookup.look(said.append)
    lookup.look(said.append)
    assert said == ["source names cannot be read anew, going on with what was read: no answer"]


JOIN = """
@source(topic="{orders}", format="text")
def orders(rows):
    return rows.selectExpr("value AS id")

@source(topic="{names}", format="csv", schema="id STRING, name STRING", static=True, refresh="1 second")
def names(rows):
    return rows

@sink(topic="{out}", format="text")
def named(orders, names):
    return orders.join(names, "id", "left").selectExpr("concat(id, ' ', coalesce(name, '?')) AS value")
"""


@pytest.mark.skipif(not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow")
def test_a_stream_that_runs_is_joined_with_what_has_been_added_to_a_topic(
    pipeline: PipelineRunner, make_topic: Callable[..., str], feed: Any, servers: str
) -> None:
    from tests.spark.committed import committed_values

    orders, names, out = make_topic(), make_topic(), make_topic()
    feed(names, ["1,apple"])
    (query,) = pipeline.queries(JOIN.format(orders=orders, names=names, out=out), once=False).values()
    supervisor = Supervisor([query], 10, time.monotonic, print)

    def run_until(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not done():
            assert time.monotonic() < deadline, committed_values(servers, out)
            time.sleep(0.1)
            supervisor.look()

    try:
        feed(orders, ["1", "2"])
        run_until(lambda: len(committed_values(servers, out)) == 2)
        assert committed_values(servers, out) == ["1 apple", "2 ?"]
        feed(names, ["2,pear"])

        def sees_it() -> bool:
            feed(orders, ["2"])
            time.sleep(0.5)
            return "2 pear" in committed_values(servers, out)

        run_until(sees_it)
    finally:
        supervisor.stop_now()
