"""Confluent's own Protobuf serializers, unchanged, against the registry."""

from __future__ import annotations

import base64
import importlib
import json
import subprocess
import sys
import threading

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from barnabas.registry import workers

VALUE = SerializationContext("orders", MessageField.VALUE)
PROTO3 = 'syntax = "proto3"; '
FILES = {
    "barnabas_shop/money.proto": PROTO3 + "package barnabas.shop; message Money { int64 cents = 1; }",
    "barnabas_shop/item.proto": PROTO3
    + 'package barnabas.shop; import "barnabas_shop/money.proto"; import "google/type/date.proto";'
    " message Item { string name = 1; Money price = 2; google.type.Date on = 3; }",
    "barnabas_shop/order.proto": PROTO3
    + 'package barnabas.shop; import "barnabas_shop/item.proto"; import "google/protobuf/timestamp.proto";'
    " message Other {}"
    " message Order { map<string, Item> items = 1; google.protobuf.Timestamp at = 2;"
    " message Line { optional int32 n = 1; } oneof how { string card = 3; Line line = 4; } }",
}


def protoc(folder, *arguments):
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", *arguments]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Import the Python module that protoc generates for the message of an order, as an application does."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    common = importlib.import_module("google.type").__path__[0]
    protoc(tmp_path, f"-Igoogle/type={common}", f"--python_out={tmp_path}", *FILES)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("barnabas_shop.order_pb2")


def message_class(folder, text, name):
    """Return the class of a message, in its own pool, because one pool cannot have two versions of a file."""
    (folder / "v.proto").write_text(text)
    protoc(folder, f"--descriptor_set_out={folder / 'set'}", "--include_imports", "v.proto")
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString((folder / "set").read_bytes()).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def text_of(registry, subject):
    return registry("GET", f"/subjects/{subject}/versions/latest").body["schema"]


def test_messages_with_nested_imports_are_written_and_read(registry, shop):
    order = shop.Order(card="4711")
    order.items["a"].price.cents = 100
    order.items["a"].on.year = 2026
    order.at.seconds = 5
    payload = ProtobufSerializer(shop.Order, registry.client())(order, VALUE)
    assert payload[:5] == b"\0" + (3).to_bytes(4, "big")  # after the two files that it imports
    for client in (None, registry.client()):
        assert ProtobufDeserializer(shop.Order, {}, client)(payload, VALUE) == order
    assert registry("GET", "/subjects").body == [
        "barnabas_shop/item.proto",
        "barnabas_shop/money.proto",
        "orders-value",
    ]
    found = registry("GET", "/subjects/orders-value/versions/1").body
    assert found["schemaType"] == "PROTOBUF"
    assert found["references"] == [
        {"name": "barnabas_shop/item.proto", "subject": "barnabas_shop/item.proto", "version": 1}
    ]
    assert 'import "barnabas_shop/item.proto";' in found["schema"]
    assert "  map<string, Item> items = 1;\n" in found["schema"]
    nested = shop.Order.Line(n=7)  # found by its index, in the order of what was registered
    payload = ProtobufSerializer(shop.Order.Line, registry.client())(nested, VALUE)
    assert payload[5:9] == bytes([4, 2, 2, 8])
    assert ProtobufDeserializer(shop.Order.Line, {}, registry.client())(payload, VALUE) == nested


def test_without_auto_registration_the_latest_version_or_a_lookup_is_used(registry, shop):
    line = shop.Order(card="x")
    ProtobufSerializer(shop.Order, registry.client())(line, VALUE)
    for settings in ({}, {"use.latest.version": True}, {"normalize.schemas": True}):
        conf = {"auto.register.schemas": False, **settings}
        payload = ProtobufSerializer(shop.Order, registry.client(), conf)(line, VALUE)
        assert payload[:5] == b"\0" + (3).to_bytes(4, "big")
    latest = {"use.latest.version": True}
    assert ProtobufDeserializer(shop.Order, latest, registry.client())(payload, VALUE) == line


def test_known_types_may_be_registered_all_the_same(registry, shop):
    conf = {"skip.known.types": False}
    payload = ProtobufSerializer(shop.Order, registry.client(), conf)(shop.Order(card="x"), VALUE)
    assert ProtobufDeserializer(shop.Order, {}, registry.client())(payload, VALUE).card == "x"
    assert "google/protobuf/timestamp.proto" in registry("GET", "/subjects").body


def test_an_evolving_message_is_written_and_read(registry, tmp_path):
    one = message_class(tmp_path, PROTO3 + "message M { int32 a = 1; }", "M")
    two = message_class(tmp_path, PROTO3 + "message M { int64 a = 1; string b = 2; }", "M")
    bad = message_class(tmp_path, PROTO3 + "message M { string a = 1; }", "M")
    first = ProtobufSerializer(one, registry.client())(one(a=1), VALUE)
    second = ProtobufSerializer(two, registry.client())(two(a=1 << 40, b="x"), VALUE)
    read = ProtobufDeserializer(two, {}, registry.client())
    assert (read(first, VALUE), read(second, VALUE)) == (two(a=1), two(a=1 << 40, b="x"))
    assert ProtobufDeserializer(one, {}, registry.client())(first, VALUE) == one(a=1)
    with pytest.raises(SchemaRegistryError, match="FIELD_SCALAR_KIND_CHANGED") as refused:
        ProtobufSerializer(bad, registry.client())(bad(a="x"), VALUE)
    assert refused.value.error_code == 409


def test_text_and_descriptor_are_one_schema(registry, shop):
    client = registry.client()
    for name in ("money", "item", "order"):
        file = f"barnabas_shop/{name}.proto"
        wants = [part for part in ("money", "item") if f"{part}.proto" in FILES[file].split("message")[0]]
        references = [SchemaReference(f"barnabas_shop/{part}.proto", part, 1) for part in wants]
        subject = "orders-value" if name == "order" else name
        by_text = client.register_schema(subject, Schema(FILES[file], "PROTOBUF", references))
        module = importlib.import_module(f"barnabas_shop.{name}_pb2")
        encoded = base64.b64encode(module.DESCRIPTOR.serialized_pb).decode()
        by_descriptor = registry.client().register_schema(subject, Schema(encoded, "PROTOBUF", references))
        assert by_text == by_descriptor
        assert registry("GET", f"/subjects/{subject}/versions").body == [1]
        serialized = registry("GET", f"/subjects/{subject}/versions/1?format=serialized").body
        for path in (f"/schemas/ids/{by_text}", f"/schemas/guids/{serialized['guid']}"):
            found = registry("GET", f"{path}?format=serialized").body
            assert (found["schema"], found["guid"]) == (serialized["schema"], serialized["guid"])
            assert registry("GET", path).body["schema"] == text_of(registry, subject)
        again = registry("POST", f"/subjects/{subject}?format=serialized", {**serialized}).body
        assert (again["id"], again["schema"]) == (by_text, serialized["schema"])


@pytest.mark.parametrize(
    ("level", "compatible"),
    [
        ("BACKWARD", [True, False, True]),
        ("FORWARD", [False, True, True]),
        ("FULL", [False, False, True]),
        ("NONE", [True, True, True]),
    ],
)
def test_levels_are_those_of_the_other_formats(registry, level, compatible):
    def schema(body):
        return {"schema": f"{PROTO3} message M {{ string a = 1; }} {body}", "schemaType": "PROTOBUF"}

    registry("POST", "/subjects/s/versions", schema("message Old {}"))
    registry("PUT", "/config/s", {"compatibility": level})
    changes = ["message Old {} message New {}", "", "message Old { int32 x = 1; }"]
    found = [registry("POST", "/compatibility/subjects/s/versions", schema(body)).body for body in changes]
    assert [answer["is_compatible"] for answer in found] == compatible


def test_transitive_levels_look_at_all_versions(registry):
    def register(body):
        return registry.register("s", f"{PROTO3} message M {{ {body} }}", schemaType="PROTOBUF")

    registry("PUT", "/config/s", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert [register("int32 a = 1;"), register(""), register("string a = 1;")] == [1, 2, 409]
    registry("PUT", "/config/s", {"compatibility": "BACKWARD"})
    assert register("string a = 1;") == 3


def test_a_schema_outlives_the_registry(make_registry, shop):
    before = make_registry()
    order = shop.Order(card="x")
    payload = ProtobufSerializer(shop.Order, before.client())(order, VALUE)
    after = make_registry(before.topic)
    assert ProtobufDeserializer(shop.Order, {}, after.client())(payload, VALUE) == order
    assert ProtobufSerializer(shop.Order, after.client())(order, VALUE) == payload


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"schema": "message M { optional Gone a = 1; }"}, "Gone"),
        ({"schema": "AAAA"}, "FileDescriptorProto"),
        ({"schema": PROTO3, "references": [{"name": "../x", "subject": "s", "version": 1}]}, "'../x'"),
        (
            {"schema": PROTO3, "references": [{"name": "x", "subject": "s", "version": 9}]},
            "version 9 of subject s",
        ),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(registry, body, reason):
    assert registry.register("s", f"{PROTO3} message M {{}}", schemaType="PROTOBUF") == 1
    answer = registry("POST", "/subjects/s/versions", {"schemaType": "PROTOBUF", **body})
    assert (answer.status, answer.body["error_code"]) == (422, 42201)
    assert reason in answer.body["message"]
    assert "\n" not in answer.body["message"]


def test_others_are_answered_while_protoc_runs(registry, tmp_path, monkeypatch):
    began, end = tmp_path / "began", tmp_path / "end"
    wait = f"open({str(began)!r}, 'w')\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"
    protoc = f"import os, time\n{wait}\nraise SystemExit('too late')"
    patch = f"from barnabas.registry.protobuf import protoc; protoc._RUN = {protoc!r}; "
    first, last = workers._RUN.split("from barnabas.registry.worker")
    monkeypatch.setattr(workers, "_RUN", f"{first}{patch}from barnabas.registry.worker{last}")
    workers.WORKERS.close()
    answers = []

    def register():
        schema = {"schema": f"{PROTO3} message Slow {{}}", "schemaType": "PROTOBUF"}
        answers.append(registry("POST", "/subjects/s/versions", schema).body["message"])

    waiting = threading.Thread(target=register)
    waiting.start()
    while not began.exists():
        assert registry("GET", "/subjects").body == []
    assert registry.register("other", '"int"') == 1
    assert answers == []
    end.touch()
    waiting.join()
    workers.WORKERS.close()
    assert answers == ["protoc cannot run: too late"]


def test_a_schema_is_found_however_another_registry_has_spelled_it(make_registry, barnabas_broker):
    topic = make_registry().topic
    broken = {"subject": "s", "version": 2, "id": 8, "schemaType": "PROTOBUF", "schema": "int x"}
    written = {"subject": "s", "version": 1, "id": 7, "schemaType": "PROTOBUF", "deleted": False}
    text = 'syntax = "proto3";\npackage p;\n\nmessage M {\n  .p.M next = 1;\n}\n'
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    for value in ({**written, "schema": text}, broken):
        key = {"keytype": "SCHEMA", "subject": "s", "version": value["version"], "magic": 1}
        producer.produce(topic, json.dumps(value), json.dumps(key))
    producer.flush()
    registry = make_registry(topic)
    assert registry("GET", "/subjects/s/versions/1").body["schema"] == text
    same = {"schema": f"{PROTO3} package p; message M {{ M next = 1; }}", "schemaType": "PROTOBUF"}
    assert registry("POST", "/subjects/s", same).body["id"] == 7
    assert registry("POST", "/subjects/s/versions", same).body["id"] == 7
