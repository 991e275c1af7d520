"""The changes that the console can make."""

from __future__ import annotations

import json
import shlex

import pytest

from barnabas.base.types import TopicPartition
from barnabas.client import Admin, Producer


@pytest.fixture
def admin(barnabas_broker):
    return Admin(barnabas_broker.bootstrap_servers)


def test_a_topic_is_created_grown_changed_and_deleted(console, topic, admin):
    name = f"{topic.name}-new"
    made = console.change(
        do="create-topic", topic=name, partitions=2, configs={"retention.ms": "1000"}, execute=True
    )
    assert made.status == 200 and made.body["done"]
    assert console.change(do="add-partitions", topic=name, partitions=3, execute=True).body["done"]
    console.change(do="set-config", topic=name, setting="retention.ms", value="2000", execute=True)
    told = console.get("topic", name=name)
    assert told["partition_count"] == 3
    assert next(s["value"] for s in told["settings"] if s["name"] == "retention.ms") == "2000"
    console.change(do="set-config", topic=name, setting="retention.ms", value=None, execute=True)
    refused = console.change(do="delete-topic", topic=name, confirm="something else", execute=True)
    assert refused.status == 400
    assert console.change(do="delete-topic", topic=name, confirm=name, execute=True).body["done"]
    assert name not in admin.topics()
    done = [event["text"] for event in console.get("overview")["events"]]
    (deleted,) = [text for text in done if text.startswith(f"barnabas topics delete {name} ")]
    (created,) = [text for text in done if text.startswith(f"barnabas topics create {name} ")]
    assert done.index(deleted) < done.index(created)  # newest first


def test_commands_are_safe_to_paste(console):
    told = console.change(do="create-topic", topic="a; rm -rf ~", partitions=1).body
    assert shlex.split(told["command"])[:4] == ["barnabas", "topics", "create", "a; rm -rf ~"]


def test_a_record_is_sent_and_can_be_sent_again_elsewhere(console, topic):
    sent = console.change(
        do="produce", topic=topic.name, key="k", value='{"a": 1}', headers=[["h", "x"]], execute=True
    ).body
    assert sent["result"] == {"topic": topic.name, "partition": 0, "offset": 0}
    (row,) = console.get("records", topic=topic.name)["records"]
    assert json.loads(row["value"]["text"]) == {"a": 1}
    assert (row["key"]["text"], row["headers"][0][0]) == ("k", "h")


@pytest.mark.parametrize(
    "prefix", ["__barnabas.errors.", "__streams.errors.", "__connect.errors.", "__dlq.errors."]
)
def test_a_dead_letter_goes_back_to_its_topic_byte_by_byte(console, make_topic, barnabas_broker, prefix):
    topic, letters = make_topic().name, make_topic().name
    errors = [(f"{prefix}message", b"why"), (f"{prefix}topic", topic.encode())]
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        producer.send(letters, b"\xff\x00", key=b"\xfe", headers=[("own", b"\x01"), *errors])
    (letter,) = console.get("records", topic=letters)["records"]
    assert letter["origin"] == topic
    asked = {"do": "redrive", "topic": letters, "partition": 0, "offset": 0}
    first, then = console.change(**asked).body["command"].split(" | ")
    assert first.startswith(f"barnabas consume {letters} ") and then.startswith(f"barnabas produce {topic} ")
    sent = console.change(**asked, execute=True).body["result"]
    assert sent == {"topic": topic, "partition": 0, "offset": 0}
    (row,) = console.get("records", topic=topic, format="hex")["records"]
    assert (row["value"]["text"], row["key"]["text"], row["origin"]) == ("ff 00", "fe", None)
    assert [(name, value["text"]) for name, value in row["headers"]] == [("own", "01")]


def test_a_record_that_a_sinks_topic_rejected_goes_to_that_topic_and_a_row_for_a_table_to_none(
    console, make_topic, barnabas_broker
):
    source, sink, letters = make_topic().name, make_topic().name, make_topic().name
    prefix = "__barnabas.errors."
    origin = [(f"{prefix}sink", b"copy"), (f"{prefix}topic", source.encode())]
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        destination = (f"{prefix}destination", sink.encode())
        producer.send(letters, "large", partition=0, headers=[*origin, destination])
        producer.send(letters, "{}", partition=0, headers=origin)
    assert [each["origin"] for each in console.get("records", topic=letters)["records"]] == [sink, None]
    asked = {"do": "redrive", "topic": letters, "partition": 0, "execute": True}
    assert console.change(**asked, offset=0).body["result"] == {"topic": sink, "partition": 0, "offset": 0}
    rejected = console.change(**asked, offset=1).body["error"]
    assert "a row that the sink copy has rejected for a table: write it again with a pipeline" in rejected
    assert console.get("records", topic=source)["records"] == []


def test_a_dead_letter_of_a_share_group_with_headers_only_sends_its_record_again(
    console, make_topic, barnabas_broker
):
    source, queue = make_topic().name, make_topic().name
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        for value in ("first", "poison"):
            producer.send(source, value, key="k", headers={"own": "yes"}, partition=0)
        for offset in (1, 7):
            headers = {"topic": source, "partition": "0", "offset": str(offset), "group": "workers"}
            letter = {f"__dlq.errors.{name}": value for name, value in headers.items()}
            producer.send(queue, None, headers=letter, partition=0)
    asked = {"do": "redrive", "topic": queue, "partition": 0}
    told = console.change(**asked, offset=0, execute=True).body
    assert f"consume {source} --partition 0 --offset 1" in told["command"]
    again = barnabas_broker.consume(source, 3)[-1]
    assert (again.key, again.value, again.headers) == (b"k", b"poison", (("own", b"yes"),))
    assert f"{source}-0 has no such record" in console.change(**asked, offset=1).body["error"]


def test_what_is_no_dead_letter_goes_nowhere(console, make_topic, barnabas_broker):
    topic, gone = make_topic().name, f"{make_topic().name}-gone"
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        producer.send(topic, "fine", partition=0)
        producer.send(topic, "lost", partition=0, headers=[("__barnabas.errors.topic", gone.encode())])
    asked = {"do": "redrive", "topic": topic, "partition": 0, "execute": True}
    assert "not a dead letter" in console.change(**asked, offset=0).body["error"]
    assert f"there is no topic {gone}" in console.change(**asked, offset=1).body["error"]
    assert "no such record" in console.change(**asked, offset=9).body["error"]


@pytest.mark.parametrize(
    ("wanted", "expected", "option"),
    [
        ({"to": "earliest"}, 0, "--to-earliest"),
        ({"to": "latest"}, 10, "--to-latest"),
        ({"to": "offset", "at": 4}, 4, "--to-offset 4"),
        ({"to": "offset", "at": 99}, 10, "--to-offset 99"),
        ({"to": "shift", "at": -2}, 3, "--shift-by -2"),
        ({"to": "time", "at": 4_000_000_000_000}, 10, "--to-datetime"),
    ],
    ids=lambda value: str(value),
)
def test_offsets_are_reset_after_a_preview(console, topic, admin, barnabas_broker, wanted, expected, option):
    with Producer(barnabas_broker.bootstrap_servers) as producer:
        for n in range(10):
            producer.send(topic.name, str(n))
    place = TopicPartition(topic.name, 0)
    admin.set_group_offsets(f"g-{topic.name}", {place: 5})
    asked = {"do": "reset-offsets", "group": f"g-{topic.name}", "topic": topic.name, **wanted}
    told = console.change(**asked).body
    assert told["preview"] == [{"topic": topic.name, "partition": 0, "from": 5, "to": expected}]
    assert option in told["command"] and not told["done"]
    assert admin.group_offsets(f"g-{topic.name}")[place] == 5
    assert console.change(**asked, execute=True).body["done"]
    assert admin.group_offsets(f"g-{topic.name}")[place] == expected


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"do": "explode"},
        {"do": "create-topic"},
        {"do": "create-topic", "topic": "x", "partitions": "many"},
        {"do": "produce", "topic": "x", "value": 7},
        {"do": "reset-offsets", "group": "g", "topic": "nowhere", "to": "earliest"},
    ],
    ids=str,
)
def test_what_cannot_be_understood_is_refused_in_one_line(console, wanted):
    answer = console.change(**wanted, execute=True)
    assert answer.status == 400
    assert "\n" not in answer.body["error"]
