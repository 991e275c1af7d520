"""Sources that are read and parsed once for several outputs, in one query, with each row once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message
from tests.spark.pipeline_run import PipelineRunner, supervise

from barnabas.pipelines import shared, sinks
from barnabas.pipelines.errors import PipelineError

MakeTopic = Callable[..., str]
Records = Callable[[str, int], list[Message]]

TEXT = """
@source(
    topic="{orders}", format="json", schema="id BIGINT NOT NULL, price DOUBLE", dead_letter="{bad}",
    shared=True,
)
def orders(rows):
    return rows.where("id < 100")

@step
def dear(orders):
    return orders.where("price > 10")

@sink(topic="{dear}", key="id", delivery="exactly-once")
def loud(dear):
    return dear.select("id", "_record.offset")

@sink(topic="{copy}", delivery="exactly-once")
def copy(orders):
    names = orders.sparkSession.createDataFrame([(1, "one"), (2, "two")], "id INT, name STRING")
    return orders.join(names, "id")

@sink(topic="{counts}", key="dear", mode="update")
def counts(orders):
    return orders.groupBy((F.col("price") > 10).alias("dear")).count()
"""

SQL = """/*
[source.orders]
topic = "{orders}"
format = "json"
schema = "id BIGINT NOT NULL, price DOUBLE"
dead_letter = "{bad}"
shared = true

[sink.loud]
from = "dear"
topic = "{dear}"
key = "id"
delivery = "exactly-once"

[sink.copy]
from = "orders"
topic = "{copy}"
delivery = "exactly-once"
*/
CREATE TEMPORARY VIEW dear AS SELECT id FROM orders WHERE price > 10;
"""

NAMES = ("orders", "bad", "dear", "copy", "counts")


@pytest.fixture
def topics(make_topic: MakeTopic) -> dict[str, str]:
    return {name: make_topic() for name in NAMES}


def values(found: list[Message]) -> list[Any]:
    return [json.loads(each.value() or b"") for each in found]


def test_one_query_writes_what_is_parsed_once_to_all_that_need_no_state(
    topics: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    text = TEXT.format(**topics)
    feed(topics["orders"], ['{"id": 1, "price": 5}', '{"id": 2, "price": 50}', '{"id": 700}', "no order"])
    made = pipeline.queries(text)
    assert list(made) == ["orders.shared", "counts"], "a count has state"
    (status,) = supervise(made["orders.shared"]).statuses
    assert (status.state, status.lag, status.rows_written) == ("done", 0, 1 + 1 + 2)
    supervise(made["counts"])
    assert values(records(topics["dear"], 1)) == [{"id": 2, "offset": 1}]
    assert sorted(each["name"] for each in values(records(topics["copy"], 2))) == ["one", "two"]
    assert sorted(each["count"] for each in values(records(topics["counts"], 2))) == [1, 1]
    letter = records(topics["bad"], 1)[0]
    assert letter.value() == b"no order"
    assert dict(letter.headers() or [])["__barnabas.errors.offset"] == b"3"


def test_an_output_that_fails_leaves_the_others_written_once(
    topics: dict[str, str],
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = TEXT.format(**topics)
    feed(topics["orders"], [f'{{"id": {number}, "price": {number * 10}}}' for number in range(4)])
    real, failures, plans = sinks.static_writer, list[str](), list[str]()

    def fails_once(rows: Any, options: Any, *rest: Any) -> Callable[[], None]:
        plans.append(rows._jdf.queryExecution().executedPlan().toString())
        write = real(rows, options, *rest)
        if options.topic == topics["copy"] and not failures:
            failures.append(options.topic)
            return lambda: 1 / 0  # type: ignore[return-value]
        return write

    monkeypatch.setattr(shared, "static_writer", fails_once)
    (status,) = supervise(pipeline.queries(text)["orders.shared"]).statuses
    assert status.state == "done"
    assert status.restarts > 0  # one more on a machine that is too busy to start Spark's processes in time
    assert status.rows_written == 2 + 2, "a batch that came again is counted once"
    assert plans
    assert all("InMemoryTableScan" in plan for plan in plans), "they are read from what is kept of the batch"
    feed(topics["orders"], ['{"id": 2, "price": 20}'])
    supervise(pipeline.queries(text)["orders.shared"])
    assert [each["id"] for each in values(records(topics["dear"], 3))] == [2, 3, 2]
    assert sorted(each["id"] for each in values(records(topics["copy"], 3))) == [1, 2, 2]


def test_views_of_sql_share_a_source_as_well(
    topics: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(topics["orders"], ['{"id": 1, "price": 5}', '{"id": 2, "price": 50}', "no order"])
    text = SQL.format(**topics)
    assert pipeline(text, "sql") == ["orders.shared"]
    feed(topics["orders"], ['{"id": 3, "price": 60}'])
    pipeline(text, "sql")
    assert values(records(topics["dear"], 2)) == [{"id": 2}, {"id": 3}]
    assert [each["id"] for each in values(records(topics["copy"], 3))] == [1, 2, 3]
    assert {each.value() for each in records(topics["bad"], 1)} == {b"no order"}


@pytest.mark.parametrize(
    ("before", "after", "query", "said"),
    [
        ("", "shared = true", "orders.shared", r"orders\.dead_letter has run as a query of its own"),
        (
            "shared = true",
            "",
            "copy",
            r"copy has no checkpoint .*although orders\.shared has written its rows",
        ),
    ],
)
def test_what_has_been_written_by_other_queries_is_not_begun_anew(
    topics: dict[str, str],
    feed: Any,
    pipeline: PipelineRunner,
    before: str,
    after: str,
    query: str,
    said: str,
) -> None:
    feed(topics["orders"], ['{"id": 1, "price": 5}'])
    text = SQL.format(**topics)
    pipeline(text.replace("shared = true", before), "sql")
    with pytest.raises(PipelineError, match=said):
        pipeline.queries(text.replace("shared = true", after), "sql")[query].start()


def test_a_sink_that_leaves_or_joins_does_not_begin_anew_and_a_new_one_may(
    topics: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    text = SQL.format(**topics)
    later = text.replace(f'topic = "{topics["copy"]}"', f'topic = "{topics["copy"]}"\ntrigger = "1 second"')
    feed(topics["orders"], ['{"id": 1, "price": 50}'])
    pipeline(text, "sql")
    with pytest.raises(PipelineError, match="copy has no checkpoint and would read all records again"):
        pipeline.queries(later, "sql")["copy"].start()
    more = f'[sink.more]\nfrom = "orders"\ntopic = "{topics["counts"]}"\ndelivery = "exactly-once"\n'
    new = text.replace("*/", f"{more}*/")
    feed(topics["orders"], ['{"id": 2, "price": 50}'])
    pipeline(new, "sql")
    assert [each["id"] for each in values(records(topics["counts"], 1))] == [2]
    assert [each["id"] for each in values(records(topics["copy"], 2))] == [1, 2]
