"""Records that a topic rejects become dead letters once. The others of their batch are in the topic once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from tests.spark.letters import MakeTopic, Records, finish, headers
from tests.spark.pipeline_run import PipelineRunner

from barnabas.pipelines import sinks, topic_letters
from barnabas.pipelines.topic_letters import TopicLimits
from barnabas.registry.server import RegistryServer, RegistrySettings, claim

TO_TOPIC = """
@source(topic="{source}", format="text"{options})
def lines(rows):
    return rows

@sink(topic="{sink}", format="text", delivery="exactly-once", dead_letter="{bad}"{more})
def copy(lines):
    return lines.repartition(2)
"""


def committed(found: list[Message]) -> list[str]:
    return sorted((each.value() or b"").decode() for each in found)


@pytest.fixture
def copying(make_topic: MakeTopic) -> dict[str, str]:
    """Create topics, and return the parameters of a pipeline to a topic that accepts only small records."""
    sink = make_topic(max_message_bytes="1000")
    return {"source": make_topic(), "sink": sink, "bad": make_topic(), "options": "", "more": ""}


def test_records_that_are_too_large_for_the_topic_become_dead_letters(
    copying: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    small, large = "s" * 100, "l" * 2000
    feed(copying["source"], [small, large, "t" * 100])
    status = finish(pipeline.queries(TO_TOPIC.format(**copying))["copy"])
    assert committed(records(copying["sink"], 2)) == [small, "t" * 100]
    (letter,) = records(copying["bad"], 1)
    assert letter.value() == large.encode()
    origin = {"topic": copying["source"], "partition": "0", "offset": "1"}
    reason = f"bytes; max.message.bytes=1000 of topic {copying['sink']}"
    said = headers(letter)
    assert said.pop("message").endswith(reason)
    assert said == {"sink": "copy", "destination": copying["sink"], **origin}
    assert (status.rows_written, status.rows_rejected) == (3, 1)
    assert str(status.last_rejection).endswith(reason)


def test_what_a_topic_takes_is_not_rejected_be_it_large_or_many(
    copying: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    many = ["s" * 300] * 200  # whose requests must not be too large either
    sizes = range(900, 960)  # of which the topic rejects some
    feed(copying["source"], [*many, *("x" * size for size in sizes)])
    status = finish(pipeline.queries(TO_TOPIC.format(**copying))["copy"])
    rejected = [len(each.value() or b"") for each in records(copying["bad"], status.rows_rejected)]
    count = len(many) + len(sizes) - len(rejected)
    taken = [len(each.value() or b"") for each in records(copying["sink"], count)]
    assert sorted(taken) + sorted(rejected) == [*map(len, many), *sizes]
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        feed(copying["sink"], ["x" * min(rejected)])


def test_a_record_without_a_key_for_a_compacted_topic_becomes_a_dead_letter(
    make_topic: MakeTopic, copying: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    copying["sink"] = make_topic(cleanup_policy="compact")
    copying["more"] = ', key="name"'
    text = TO_TOPIC.replace('format="text"{options}', 'format="json", schema="name STRING, value STRING"')
    feed(copying["source"], ['{"name": "ann", "value": "1"}', '{"value": "2"}'])
    finish(pipeline.queries(text.format(**copying))["copy"])
    assert committed(records(copying["sink"], 1)) == ["1"]
    (letter,) = records(copying["bad"], 1)
    assert headers(letter)["message"] == f"the record has no key, and topic {copying['sink']} is compacted"


def test_a_dead_letter_that_is_too_large_for_its_topic_too_stops_the_pipeline_and_says_so(
    copying: dict[str, str], make_topic: MakeTopic, feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    copying["bad"] = make_topic(max_message_bytes="1500")
    feed(copying["source"], ["l" * 2000])
    status = finish(pipeline.queries(TO_TOPIC.format(**copying))["copy"])
    assert status.state == "failed"
    assert f"Topic {copying['bad']} takes 1500 bytes: raise its max.message.bytes" in str(status.last_error)


def test_too_many_records_that_are_too_large_stop_the_pipeline(
    copying: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    copying["more"] = ", dead_letter_limit=3"
    feed(copying["source"], ["l" * 2000] * 10 + ["fine"])
    status = finish(pipeline.queries(TO_TOPIC.format(**copying))["copy"])
    assert (status.state, status.restarts) == ("failed", 0)
    assert "more than 3 rows of one batch would go to the dead-letter topic" in str(status.last_error)
    assert records(copying["bad"], 0) == []
    copying["more"] = ", dead_letter_limit=10"
    assert finish(pipeline.queries(TO_TOPIC.format(**copying))["copy"]).state == "done"
    assert committed(records(copying["sink"], 1)) == ["fine"]
    assert len(records(copying["bad"], 10)) == 10


def test_a_sink_that_gets_a_dead_letter_topic_goes_on_where_it_was(
    copying: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records
) -> None:
    feed(copying["source"], ["first"])
    text = TO_TOPIC.format(**copying)
    finish(pipeline.queries(text.replace(f', dead_letter="{copying["bad"]}"', ""))["copy"])
    feed(copying["source"], ["second", "l" * 2000])
    finish(pipeline.queries(text)["copy"])
    feed(copying["source"], ["third"])
    finish(pipeline.queries(text)["copy"])
    assert committed(records(copying["sink"], 3)) == ["first", "second", "third"]
    assert len(records(copying["bad"], 1)) == 1


@pytest.mark.parametrize("mode", ["update", "shared"])
def test_dead_letters_of_topics_in_other_ways_to_write(
    copying: dict[str, str], feed: Any, pipeline: PipelineRunner, records: Records, mode: str
) -> None:
    copying[{"update": "more", "shared": "options"}[mode]] = {
        "update": ', mode="update"',
        "shared": ", shared=True",
    }[mode]
    feed(copying["source"], ["fine", "l" * 2000])
    queries = pipeline.queries(TO_TOPIC.format(**copying))
    (query,) = queries.values()
    status = finish(query)
    assert status.query == ("copy" if mode == "update" else "lines.shared")
    assert committed(records(copying["sink"], 1)) == ["fine"]
    assert headers(records(copying["bad"], 1)[0])["offset"] == "1"
    assert status.rows_rejected == 1


def test_a_limit_that_is_lowered_while_the_query_runs_makes_dead_letters_once_it_is_started_again(
    copying: dict[str, str],
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def limits_of(client: Any, topics: Any) -> Any:
        asked.append(topics)
        old = {topic: TopicLimits(1_000_000) for topic in topics}
        return topic_letters.limits_of(client, topics) if len(asked) > 1 else old

    monkeypatch.setattr(sinks, "limits_of", limits_of)
    feed(copying["source"], ["fine", "l" * 2000])
    status = finish(pipeline.queries(TO_TOPIC.format(**copying))["copy"])
    assert (status.state, status.rows_rejected) == ("done", 1)
    assert status.restarts >= 1
    assert committed(records(copying["sink"], 1)) == ["fine"]
    assert len(records(copying["bad"], 1)) == 1


def test_a_dead_letter_topic_that_is_made_anew_gets_the_next_ones(
    copying: dict[str, str],
    make_topic: MakeTopic,
    admin: AdminClient,
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
) -> None:
    text = TO_TOPIC.format(**copying)
    feed(copying["source"], ["first", "l" * 2000])
    finish(pipeline.queries(text)["copy"])
    assert len(records(copying["bad"], 1)) == 1
    admin.delete_topics([copying["bad"]])[copying["bad"]].result(60)
    make_topic(name=copying["bad"])
    feed(copying["source"], ["second", "m" * 2000])
    assert finish(pipeline.queries(text)["copy"]).state == "done"
    assert committed(records(copying["sink"], 2)) == ["first", "second"]
    assert committed(records(copying["bad"], 1)) == ["m" * 2000]


ENCODED = """
pipeline(registry="{registry}")

@source(topic="{source}", format="json", schema="id BIGINT NOT NULL, state STRING"{options})
def orders(rows):
    return rows

@sink(topic="{sink}", format="{format}", schema='''{schema}''', delivery="exactly-once", key="id"{more})
def copy(orders):
    return orders.repartition(2)
"""

STATES = ["NEW", "PAID"]
SCHEMAS = {
    "avro": {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": STATES}},
        ],
    },
    "jsonschema": {
        "type": "object",
        "properties": {"id": {"type": "integer", "maximum": 1000}, "state": {"enum": STATES}},
    },
}


@pytest.fixture(scope="module")
def registry(servers: str) -> Iterator[str]:
    settings = RegistrySettings(servers, topic="_schemas-dead-letters")
    with RegistryServer(settings, claim("127.0.0.1:0")) as running:
        yield running.url


@pytest.mark.parametrize("format", ["avro", "jsonschema"])
def test_a_row_that_its_schema_does_not_allow_becomes_a_dead_letter(
    copying: dict[str, str],
    registry: str,
    make_topic: MakeTopic,
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
    format: str,
) -> None:
    copying |= {"sink": make_topic(), "registry": registry, "format": format}
    copying |= {"schema": json.dumps(SCHEMAS[format]), "more": f', dead_letter="{copying["bad"]}"'}
    unknown, large = '{"id":2,"state":"LOST"}', f'{{"id":{2**40},"state":"NEW"}}'
    feed(copying["source"], ['{"id":1,"state":"NEW"}', unknown, large, '{"id":3,"state":"PAID"}'])
    status = finish(pipeline.queries(ENCODED.format(**copying))["copy"])
    assert sorted(each.key() or b"" for each in records(copying["sink"], 2)) == [b"1", b"3"]
    letters = {each.value(): headers(each) for each in records(copying["bad"], 2)}
    assert set(letters) == {unknown.encode(), large.encode()}
    assert "state" in letters[unknown.encode()]["message"] and letters[unknown.encode()]["offset"] == "1"
    assert "id" in letters[large.encode()]["message"]
    assert (status.state, status.rows_written, status.rows_rejected) == ("done", 4, 2)


def test_a_row_that_its_schema_does_not_allow_stops_a_pipeline_without_dead_letters(
    copying: dict[str, str],
    registry: str,
    make_topic: MakeTopic,
    feed: Any,
    pipeline: PipelineRunner,
    records: Records,
) -> None:
    schema = json.dumps(SCHEMAS["avro"])
    copying |= {"sink": make_topic(), "registry": registry, "format": "avro", "schema": schema}
    feed(copying["source"], ['{"id":1,"state":"NEW"}', '{"id":2,"state":"LOST"}'])
    status = finish(pipeline.queries(ENCODED.format(**copying))["copy"])
    assert status.state == "failed" or status.restarts == 3
    assert "{'id': 2, 'state': 'LOST'}: field Order.state" in str(status.last_error)
