"""Records that the console encodes with registered schemas and sends."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.integration.console.test_odd_requests import VALUES, says_what_is_wrong

from barnabas.client.schemas import alone
from barnabas.client.schemas.codec import Encoder
from barnabas.console import sending as sending_module


def record(name, **types):
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": type_} for field, type_ in types.items()],
    }


ORDER = record("Order", id="string", total=["null", "long"], raw="bytes")
VALUE = """{"id": "ä \u2028 b",
  "total": 5, "raw": {"base64": "AP8="}}"""


def sending(topic, **more):
    return {"do": "produce", "topic": topic.name, **more}


@pytest.fixture
def sent(writing, topic, barnabas_broker):
    """``sent(**wanted)``: let the console send a record. Return the record in the topic, and the answer."""

    def send(**wanted):
        told = writing.change(**sending(topic, **wanted), execute=True)
        assert told.status == 200, told.body
        return barnabas_broker.consume(topic.name, told.body["result"]["offset"] + 1)[-1], told.body

    return send


def test_confluents_clients_read_a_value_and_a_key_by_their_schemas(sent, register, topic, registry):
    register(f"{topic.name}-value", ORDER)
    register(f"{topic.name}-key", {"type": "integer"}, schemaType="JSON")
    made, told = sent(
        value=VALUE, value_schema=f"{topic.name}-value", key="7", key_schema=f"{topic.name}-key"
    )
    with SchemaRegistryClient({"url": registry.url}) as client:
        value = AvroDeserializer(client)(made.value, SerializationContext(topic.name, MessageField.VALUE))
        assert value == {"id": "ä \u2028 b", "total": 5, "raw": b"\x00\xff"}
        key = JSONDeserializer('{"type": "integer"}', schema_registry_client=client)
        assert key(made.key, SerializationContext(topic.name, MessageField.KEY)) == 7
    assert [line.partition(" has ")[0] for line in told["preview"]["says"]] == ["The value", "The key"]
    assert f"({topic.name}-value/1, AVRO)" in told["preview"]["says"][0]


def test_the_shown_command_sends_the_same_record(sent, register, topic, barnabas_broker):
    register(f"{topic.name}-value", ORDER)
    register(f"{topic.name}-key", "message K { optional int32 n = 1; } message L {}", schemaType="PROTOBUF")
    for wanted in (
        {"value": VALUE, "value_schema": f"{topic.name}-value"},
        {"value": VALUE, "value_schema": f"{topic.name}-value/1", "headers": [["a", "b"], ["c", "'$x\\n"]]},
        {"value": "it's\n%s $HOME", "key": '{"n": 5}', "key_schema": f"{topic.name}-key", "key_message": "K"},
        {"value": None, "key": "{}", "key_schema": f"{topic.name}-key", "key_message": "L", "partition": 0},
        {"value": None, "value_schema": f"{topic.name}-value", "key": "gone"},
        {"value": '{"a": 1}', "key": "text"},
    ):
        before, told = sent(**wanted)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(told["command"], shell=True, timeout=60, check=True, env={**os.environ, "PATH": path})
        after = barnabas_broker.consume(topic.name, before.offset + 2)[-1]
        assert (after.value, after.key, after.headers) == (before.value, before.key, before.headers), wanted


def test_the_message_of_a_protobuf_schema_is_chosen(sent, writing, register, topic):
    text = 'syntax = "proto3"; package shop; message A { int32 n = 1; } message B { string s = 1; }'
    id_ = register("shop", text, schemaType="PROTOBUF")
    told = writing.get("schema", name="shop")
    assert (told["name"], told["id"], told["type"]) == ("shop/1", id_, "PROTOBUF")
    assert told["messages"] == ["shop.A", "shop.B"]
    assert sent(value='{"n": 1}', value_schema="shop")[0].value[5:] == b"\x00\x08\x01"
    made = sent(value='{"s": "x"}', value_schema=str(id_), value_message="shop.B")[0]
    assert made.value[5:] == b"\x02\x02\x0a\x01x"
    refused = writing.change(**sending(topic, value="{}", value_schema="shop", value_message="C"))
    assert refused.status == 400 and "its messages are shop.A, shop.B" in refused.body["error"]


def test_a_value_is_encoded_by_references_of_references(sent, register):
    def reference(name):
        return [{"name": name, "subject": name, "version": 1}]

    register("Currency", record("Currency", code="string"))
    register("Money", record("Money", of="Currency"), references=reference("Currency"))
    register("Order", record("Order", paid="Money"), references=reference("Money"))
    assert sent(value='{"paid": {"of": {"code": "EUR"}}}', value_schema="Order")[0].value[5:] == b"\x06EUR"


def test_what_a_schema_does_not_allow_is_told_before_anything_is_sent(writing, register, topic):
    register("orders", ORDER)
    for value, says in (
        ('{"id": 5, "total": null, "raw": ""}', "value.id: 5 does not fit; write a string"),
        ('{"id": "a", "total": "x", "raw": ""}', "fits no branch of the union; its branches are null, long"),
        ('{"id": "a"', "value: it is not JSON"),
        ("", "value: it is not JSON"),
    ):
        answer = writing.change(**sending(topic, value=value, value_schema="orders"))
        assert answer.status == 400 and says in answer.body["error"], answer
    missing = writing.change(**sending(topic, value="{}", value_schema="nowhere"))
    assert missing.status == 404 and "nowhere" in missing.body["error"]
    assert writing.get("schema", name="nowhere")["problem"]
    assert writing.get("records", topic=topic.name)["records"] == []


def test_neither_the_log_nor_the_events_have_the_record(sent, writing, register, topic, caplog):
    register("orders", {"type": "string"}, schemaType="JSON")
    with caplog.at_level("INFO"):
        _, told = sent(value='"sesame"', value_schema="orders")
    assert "sesame" in told["command"]
    assert "barnabas produce" in caplog.text and "sesame" not in caplog.text
    events = [event["text"] for event in writing.get("overview")["events"]]
    assert any(text.startswith(f"barnabas produce {topic.name} ") for text in events)
    assert not any("sesame" in text for text in events)


def test_a_console_that_only_reads_or_has_no_registry_sends_nothing(start_console, registry, register, topic):
    register("orders", {"type": "string"}, schemaType="JSON")
    asked = sending(topic, value='"x"', value_schema="orders", execute=True)
    console = start_console(registry=registry.url)
    assert console.change(**asked).status == 403
    refused = start_console(allow_writes=True).change(**asked)
    assert refused.status == 400 and "--registry" in refused.body["error"]
    assert console.get("records", topic=topic.name)["records"] == []


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_every_field_is_answered(writing, register, topic, kind, monkeypatch):
    """The records are encoded in this process, because hundreds of processes would take minutes."""

    def encode(schema, message, text, path):
        return Encoder(schema, message, path).encode_text(text)

    monkeypatch.setattr(sending_module, "encode_alone", encode)
    schema = {"AVRO": ORDER, "JSON": {"type": "object"}, "PROTOBUF": "message A { optional string id = 1; }"}
    register("orders", schema[kind], schemaType=kind)
    good = sending(
        topic, value=VALUE, value_schema="orders", value_message=None, key=None, key_schema="orders"
    )
    for name, value in itertools.product(good, VALUES):
        says_what_is_wrong(writing.change(**{**good, name: value}), (name, repr(value)[:60]))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows bounds no process")
def test_pages_are_answered_while_a_value_takes_its_time(writing, register, topic, monkeypatch):
    monkeypatch.setattr(alone, "_CPU_S", 3)
    register("slow", {"pattern": "^(a+)+$"}, schemaType="JSON")
    answers = []
    asked = sending(topic, value=json.dumps("a" * 60 + "b"), value_schema="slow")
    thread = threading.Thread(target=lambda: answers.append(writing.change(**asked)))
    thread.start()
    served = 0
    while thread.is_alive():
        assert writing.get("console")["registry"]
        served += 1
    thread.join()
    assert answers[0].status == 400 and "more than 3 s of processor time" in answers[0].body["error"]
    assert served > 20
