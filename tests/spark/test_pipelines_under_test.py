"""The pytest harness for pipelines: input and output rows, single steps, restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.errors import PipelineError

#: Spark lists no tables by interpreted expressions, as the harness asks.
pytestmark = pytest.mark.usefixtures("compiled")

SHOP = """
from barnabas.pipelines import parameter, pipeline, sink, source, step
from pyspark.sql import functions as F

LEAST = parameter("least", 100)

pipeline(bootstrap="none.invalid:9092", kafka={"security.protocol": "SSL", "client.id": "shop"})

@source(topic="orders", format="json", schema="id BIGINT NOT NULL, price DOUBLE", dead_letter="bad")
def orders(rows):
    return rows.withColumn("cents", (F.col("price") * 100).cast("long"))

@step
def dear_orders(orders):
    return orders.where(f"price >= {LEAST}")

@sink(topic="dear", key="id")
def dear(dear_orders):
    return dear_orders.select("id", "price")

@sink(parquet="/nowhere/archive")
def archive(orders):
    return orders.select("id", "cents")

@sink(console=True, mode="complete")
def totals(orders):
    return orders.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
"""

SQL = """/*
[source.orders]
topic = "orders"
format = "json"
schema = "id BIGINT, price DOUBLE"

[sink.dear]
from = "dear"
topic = "dear"
*/
CREATE TEMPORARY VIEW dear AS SELECT id FROM orders WHERE price > 10;
"""


def test_rows_go_through_a_pipeline_and_each_run_goes_on_from_the_last(
    barnabas_pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    shop = barnabas_pipeline(tmp_path / "shop.py", least="50")
    out = shop.run(orders=[{"id": 1, "price": 5}, ("key", {"id": 2, "price": 50}), "no order", {"price": 1}])
    assert out["dear"] == [{"id": 2, "price": 50.0}]
    assert sorted(row["id"] for row in out["archive"]) == [1, 2]
    assert out["orders.dead_letter"] == [b"no order", b'{"price": 1}']
    assert out["totals"] == [{"orders": 2, "cents": 5500}]

    again = shop.run(orders=[b'{"id": 3, "price": 70}'])
    assert again == {
        "orders.dead_letter": [],
        "dear": [{"id": 3, "price": 70.0}],
        "archive": [{"id": 3, "cents": 7000}],
        "totals": [{"orders": 3, "cents": 12500}],
    }
    assert not Path("/nowhere").exists()


def test_a_source_and_a_sink_that_share_a_dead_letter_topic_both_show_its_records(
    barnabas_pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    shared = SHOP.replace('topic="dear", key="id"', 'topic="dear", key="id", dead_letter="bad"')
    (tmp_path / "shop.py").write_text(shared)
    shop = barnabas_pipeline(tmp_path / "shop.py")
    for bad in ("no order", "no order either"):
        out = shop.run(orders=[bad])
        assert out["orders.dead_letter"] == out["dear.dead_letter"] == [bad.encode()]


def test_a_source_a_step_and_a_sink_are_tried_alone(
    barnabas_pipeline: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    shop = barnabas_pipeline(tmp_path / "shop.py")
    rows = [{"id": 1, "price": 100.0}, {"id": 2, "price": 99.0}, {"id": 3, "price": None}]
    assert shop.step("orders", rows=rows[:1]) == [{"id": 1, "price": 100.0, "cents": 10000}]
    assert shop.step("dear_orders", orders=rows) == rows[:1]
    assert shop.step("dear_orders", orders=[]) == []
    assert shop.step("dear", dear_orders=rows[:1]) == rows[:1]
    assert shop.step("totals", orders=[{"cents": 1}, {"cents": 2}]) == [{"orders": 2, "cents": 3}]


def test_a_view_of_sql_is_tried_alone(barnabas_pipeline: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text(SQL)
    shop = barnabas_pipeline(tmp_path / "shop.sql")
    for _ in range(2):
        assert shop.step("dear", orders=[{"id": 1, "price": 11.0}, {"id": 2, "price": 9.5}]) == [{"id": 1}]


def test_what_is_asked_wrongly_is_told(barnabas_pipeline: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    shop = barnabas_pipeline(tmp_path / "shop.py")
    with pytest.raises(PipelineError, match="there is no source order: choose from orders"):
        shop.run(order=[])
    with pytest.raises(
        PipelineError, match="there is no step dearest: choose from orders, dear_orders, dear"
    ):
        shop.step("dearest")
    with pytest.raises(PipelineError, match="dear_orders reads orders: give the rows of each"):
        shop.step("dear_orders")
    with pytest.raises(PipelineError, match="dear_orders: without rows its columns are not known"):
        shop.step("dear", dear_orders=[])
