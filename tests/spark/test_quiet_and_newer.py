"""Pipelines whose partitions get no more records, and whose registry gets a new version while they run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.spark.pipeline_run import PipelineRunner, supervise

from barnabas.pipelines.supervisor import Supervisor
from barnabas.registry.server import RegistryServer, RegistrySettings, claim

MakeTopic = Callable[..., str]
Records = Callable[[str, int], list[Message]]

WINDOWS = """
@source(topic="{topic}", format="json", schema="id INT, at TIMESTAMP", watermark="at 1 minute")
def visits(rows):
    return rows

@sink(topic="{counts}", key="minute", delivery="exactly-once")
def counts(visits):
    minutes = visits.groupBy(F.window("at", "1 minute")).count()
    return minutes.select(F.date_format("window.start", "HH:mm").alias("minute"), "count")
"""

UNION = """
pipeline(spark={{"spark.sql.streaming.multipleWatermarkPolicy": "{policy}"}})

@source(topic="{busy}", format="json", schema="id INT, at TIMESTAMP", watermark="at 1 minute")
def busy(rows):
    return rows

@source(topic="{quiet}", format="json", schema="id INT, at TIMESTAMP", watermark="at 1 minute")
def quiet(rows):
    return rows

@sink(topic="{counts}", key="minute", delivery="exactly-once")
def counts(busy, quiet):
    minutes = busy.union(quiet).groupBy(F.window("at", "1 minute")).count()
    return minutes.select(F.date_format("window.start", "HH:mm").alias("minute"), "count")
"""


def look_until(running: Supervisor, reached: Callable[[], bool]) -> None:
    """Supervise the queries until they have reached a state. Start a query again if its start is too slow."""
    while not reached():
        assert not running.finished, running.statuses
        time.sleep(0.1)
        running.look()


def visit(number: int, at: str) -> str:
    return json.dumps({"id": number, "at": f"2026-03-01T{at}Z"})


def told(found: list[Message]) -> dict[bytes | None, int]:
    return {each.key(): json.loads(each.value() or b"")["count"] for each in found}


def test_a_quiet_partition_does_not_hold_up_the_watermark(
    make_topic: MakeTopic, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    topic, counts = make_topic(3), make_topic()
    text = WINDOWS.format(topic=topic, counts=counts)
    feed(topic, [visit(1, "10:00:10")], 0)
    feed(topic, [visit(2, "10:00:20")], 1)  # and then no more; there is never one in partition 2
    pipeline(text)
    feed(topic, [visit(3, "10:05:00")], 0)
    (status,) = supervise(pipeline.queries(text)["counts"]).statuses
    assert status.watermark == "2026-03-01T10:04:00.000Z"
    assert told(records(counts, 1)) == {b"10:00": 2}

    # what the quiet partition brings later than that is late: a count that was told stays as it was told
    feed(topic, [visit(4, "10:00:30"), visit(5, "10:04:30")], 1)
    feed(topic, [visit(6, "10:09:00")], 0)
    pipeline(text)
    assert told(records(counts, 3)) == {b"10:00": 2, b"10:04": 1, b"10:05": 1}


def test_a_quiet_source_holds_up_the_others_unless_the_latest_watermark_counts(
    spark: Any, make_topic: MakeTopic, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    busy, quiet, by_earliest, by_latest = (make_topic() for _ in range(4))
    feed(busy, [visit(1, "10:00:10"), visit(2, "10:05:00")])
    for policy, counts in (("min", by_earliest), ("max", by_latest)):
        text = UNION.format(busy=busy, quiet=quiet, counts=counts, policy=policy)
        name = "spark.sql.streaming.multipleWatermarkPolicy"
        before = spark.conf.get(name)
        spark.conf.set(name, policy)  # the tests' session is there already: a pipeline's own takes it
        try:
            made = pipeline.queries(text.replace("counts", f"counts_{policy}"))
            assert supervise(made[f"counts_{policy}"]).failed is None
        finally:
            spark.conf.set(name, before)
    assert told(records(by_latest, 1)) == {b"10:00": 1}
    assert records(by_earliest, 0) == []


def test_a_running_pipeline_reads_on_when_its_schema_gains_a_version(
    servers: str, make_topic: MakeTopic, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    topic, copies = make_topic(), make_topic()
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}]
    price = {"name": "price", "type": "double", "default": 0.5}
    old, new = (
        json.dumps({"type": "record", "name": "Order", "fields": each}) for each in (fields, [*fields, price])
    )
    text = f"""
@source(topic="{topic}", format="avro", subject="{topic}-value")
def orders(rows):
    return rows

@sink(topic="{copies}", delivery="exactly-once")
def copies(orders):
    return orders
"""
    settings = RegistrySettings(servers, topic=f"_schemas-{topic}")
    with (
        RegistryServer(settings, claim("127.0.0.1:0")) as registry,
        SchemaRegistryClient({"url": registry.url}) as client,
    ):
        text = f'pipeline(registry="{registry.url}")\n{text}'
        context = SerializationContext(topic, MessageField.VALUE)
        by_old = AvroSerializer(client, old)
        feed.send(topic, value=by_old({"id": 1, "item": "apple"}, context))
        query = pipeline.queries(text, once=False)["copies"]
        running = Supervisor([query], 10, time.monotonic, print)
        try:
            look_until(running, lambda: running.statuses[0].rows_written >= 1)
            assert [json.loads(each.value() or b"") for each in records(copies, 1)] == [
                {"id": 1, "item": "apple"}
            ]
            by_new = AvroSerializer(client, new)
            feed.send(topic, value=by_new({"id": 2, "item": "pear", "price": 2.0}, context))
            assert len(client.get_versions(f"{topic}-value")) == 2
            look_until(running, lambda: running.statuses[0].rows_written >= 2)
            read_on = {"id": 2, "item": "pear"}  # by the columns that there were at the start
            assert json.loads(records(copies, 2)[1].value() or b"") == read_on
        finally:
            running.stop_now()
        # started again it goes on from its checkpoint, with the new column
        feed.send(topic, value=by_new({"id": 3, "item": "fig", "price": 3.0}, context))
        feed.send(topic, value=by_old({"id": 4, "item": "plum"}, context))
        pipeline(text)
        assert [json.loads(each.value() or b"") for each in records(copies, 4)[2:]] == [
            {"id": 3, "item": "fig", "price": 3.0},
            {"id": 4, "item": "plum", "price": 0.5},
        ]
