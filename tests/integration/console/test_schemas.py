"""The schemas of a registry in the console, and records that it decodes with them."""

from __future__ import annotations

import io
import itertools
import json
import shlex
import subprocess

import fastavro
import pytest
from tests.integration.console.test_odd_requests import VALUES, says_what_is_wrong

from barnabas.client import Producer
from barnabas.client.servers import servers_of
from barnabas.console.schemas import Schemas


@pytest.fixture
def shown(start_console, registry, topic, barnabas_broker):
    """``shown(id, payload)``: return the value of a record as the console shows it."""
    console = start_console(registry=registry.url)

    def send(id_, payload):
        with Producer(barnabas_broker.bootstrap_servers) as producer:
            producer.send(topic.name, b"\0" + id_.to_bytes(4, "big") + payload)
        (row,) = console.get("records", topic=topic.name, limit=1)["records"]
        return row["value"]

    send.console = console
    return send


def test_subjects_are_shown_with_what_has_changed_and_avro_is_read(shown, register, topic):
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    id_ = register("s-value", json.dumps(schema))
    more = [*schema["fields"], {"name": "m", "type": "int", "default": 0}]
    register("s-value", json.dumps({**schema, "fields": more}))
    assert "s-value" in shown.console.get("schemas")["subjects"]
    told = shown.console.get("schemas", subject="s-value")
    assert told["versions"] == [1, 2]
    assert any('"m"' in line for line in told["changes"])
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, {"n": 7})
    value = shown(id_, data.getvalue())
    assert (value["is"], value["schema"]) == ("avro", id_)
    found = shown.console.get("records", topic=topic.name, filter="value.n == 7 && value.order == null")
    assert len(found["records"]) == 1


PROTO = """syntax = "proto3";
package shop;
import "money.proto";
import "google/protobuf/timestamp.proto";
message Other {}
message Order {
  string id = 1;
  Money price = 2;
  google.protobuf.Timestamp at = 3;
  message Line { int32 n = 1; }
}
"""


def test_protobuf_is_read_by_the_message_that_a_record_names(shown, register):
    register(
        "money", 'syntax = "proto3"; package shop; message Money { sint64 cents = 1; }', schemaType="PROTOBUF"
    )
    money = [{"name": "money.proto", "subject": "money", "version": 1}]
    id_ = register("order", PROTO, schemaType="PROTOBUF", references=money)
    # message 1: id "a", price of 5 cents, at second 1
    value = shown(id_, b"\x02\x02" + b"\x0a\x01a" + b"\x12\x02\x08\x0a" + b"\x1a\x02\x08\x01")
    assert (value["is"], value["schema"]) == ("protobuf", id_)
    assert json.loads(value["text"]) == {"id": "a", "price": {"cents": "5"}, "at": "1970-01-01T00:00:01Z"}
    # message 0 of message 1: n is 3
    assert json.loads(shown(id_, b"\x04\x02\x00" + b"\x08\x03")["text"]) == {"n": 3}
    # the first message, in its short form
    assert json.loads(shown(id_, b"\x00")["text"]) == {}


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x02\x63", b"\x02\x01", b"\x80" * 20, b"\x7e" + b"\x00" * 70, b"\x02\x02\x0a\xff"],
    ids=["nothing", "no such message", "below zero", "no end", "too deep", "no message"],
)
def test_bytes_that_are_not_what_they_say_are_shown_as_they_are(shown, register, payload):
    id_ = register(
        "order",
        'syntax = "proto3"; message A { string s = 1; } message B { string s = 1; }',
        schemaType="PROTOBUF",
    )
    assert "schema" not in shown(id_, payload)


def record(name, **types):
    fields = [{"name": field, "type": type_} for field, type_ in types.items()]
    return {"type": "record", "name": name, "fields": fields}


def reference(name):
    return {"name": name, "subject": name, "version": 1}


def test_avro_is_read_by_references_of_references(shown, register):
    register("Currency", json.dumps(record("Currency", code="string")))
    register("Money", json.dumps(record("Money", of="Currency")), references=[reference("Currency")])
    # the order refers to one of them itself, and to the other by two ways
    register(
        "Line",
        json.dumps(record("Line", price="Money", tax="Currency")),
        references=[reference("Money"), reference("Currency")],
    )
    id_ = register(
        "Order",
        json.dumps(record("Order", first="Line", paid="Money")),
        references=[reference("Line"), reference("Money")],
    )
    value = shown(id_, b"\x06EUR" + b"\x06USD" + b"\x06GBP")
    assert (value["is"], value["schema"]) == ("avro", id_)
    assert json.loads(value["text"]) == {
        "first": {"price": {"of": {"code": "EUR"}}, "tax": {"code": "USD"}},
        "paid": {"of": {"code": "GBP"}},
    }


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
@pytest.mark.parametrize("width", [1, 3])
def test_references_that_do_not_end_are_given_up(monkeypatch, kind, width):
    asked = []

    def get(schemas, path):
        asked.append(path)
        number = len(asked)
        names = [f"R{number}x{each}" for each in range(width)]
        text = "" if kind == "PROTOBUF" else json.dumps(record(f"S{number}", next=names[0]))
        return {"schema": text, "schemaType": kind, "references": [reference(name) for name in names]}

    monkeypatch.setattr(Schemas, "get", get)
    assert Schemas("http://registry").decode(b"\0\0\0\0\x01x") is None
    assert len(asked) < 300


def test_a_schema_that_is_referred_to_by_many_ways_is_asked_for_once(monkeypatch):
    asked = []

    def get(schemas, path):
        asked.append(path)
        level = 0 if "/ids/" in path else int(path.split("/")[2].removeprefix("L"))
        below = (
            [{"name": f"L{level + 1}", "subject": f"L{level + 1}", "version": 1}] * 2 if level < 12 else []
        )
        return {"schema": "", "schemaType": "PROTOBUF", "references": below}

    monkeypatch.setattr(Schemas, "get", get)
    assert Schemas("http://registry").decode(b"\0\0\0\0\x01\0") is None  # it has no message
    assert len(asked) == 14


OLD = json.dumps(record("R", n="int"))
NEEDS_MORE = json.dumps(record("R", n="int", m="int"))


def registering(subject, schema, **more):
    return {"do": "register-schema", "subject": subject, "schema": schema, **more}


def runs(command):
    """Run the curl command that the console shows."""
    done = subprocess.run(shlex.split(command), capture_output=True, timeout=60, check=True)
    assert b"error_code" not in done.stdout, done.stdout
    return done.stdout


def test_a_version_is_registered_after_its_compatibility_was_checked(writing, registry):
    asked = registering("p/ü-value", OLD)
    told = writing.change(**asked).body
    assert not told["done"] and told["preview"]["possible"]
    assert writing.get("schemas")["subjects"] == []
    assert writing.change(**asked, execute=True).body["result"]["version"] == 1
    refused = writing.change(**registering("p/ü-value", NEEDS_MORE)).body["preview"]
    assert not refused["possible"] and "BACKWARD" in refused["says"][0]
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in reason for reason in refused["says"])
    answer = writing.change(**registering("p/ü-value", NEEDS_MORE), execute=True)
    assert answer.status == 409 and "incompatible" in answer.body["error"]
    level = {"do": "set-compatibility", "subject": "p/ü-value", "level": "NONE"}
    assert writing.change(**level, execute=True).body["done"]
    runs(writing.change(**registering("p/ü-value", NEEDS_MORE)).body["command"])
    assert writing.get("schemas", subject="p/ü-value")["versions"] == [1, 2]
    assert "register-schema" not in str(told) and any(
        "/subjects/" in event["text"] for event in writing.get("overview")["events"]
    )


def test_a_subjects_level_is_set_and_taken_back(writing, register):
    register("s", OLD)
    asked = {"do": "set-compatibility", "subject": "s"}
    told = writing.change(**asked, level="FULL", execute=True).body
    assert told["preview"]["says"] == ["BACKWARD now, FULL then."]
    shown = writing.get("schemas", subject="s")
    assert (shown["compatibility"], shown["own_level"]) == ("FULL", "FULL")
    runs(writing.change(**asked, level="").body["command"])
    assert writing.get("schemas", subject="s")["own_level"] is None
    assert writing.change(**asked, level="SIDEWAYS", execute=True).status == 400


def test_a_subject_is_deleted_softly_and_then_for_good_once_its_name_is_typed(writing, register):
    register("s", OLD)
    asked = {"do": "delete-schema", "subject": "s"}
    assert writing.change(**asked, confirm="other", execute=True).status == 400
    answer = writing.change(**asked, confirm="s", permanent=True, execute=True)
    assert answer.status in (404, 409) and "not deleted first" in answer.body["error"]
    assert writing.change(**asked, confirm="s", execute=True).body["done"]
    listed = writing.get("schemas")
    assert (listed["subjects"], listed["deleted"]) == ([], ["s"])
    shown = writing.get("schemas", subject="s")
    assert (shown["versions"], shown["deleted"]) == ([], [1])
    runs(writing.change(**asked, confirm="s", permanent=True).body["command"])
    assert writing.get("schemas")["deleted"] == []
    assert writing.ask("schemas", subject="s").status == 404


def test_one_version_is_deleted_softly_and_then_for_good(writing, register):
    register("s", OLD)
    register("s", json.dumps({**record("R", n="int"), "doc": "again"}))
    asked = {"do": "delete-schema", "subject": "s", "version": 1, "confirm": "s", "execute": True}
    assert writing.change(**asked).body["done"]
    shown = writing.get("schemas", subject="s")
    assert (shown["versions"], shown["deleted"], shown["version"]) == ([2], [1], 2)
    assert writing.get("schemas", subject="s", version=1)["text"]
    assert writing.change(**asked, permanent=True).body["done"]
    assert writing.get("schemas", subject="s")["deleted"] == []


def test_what_the_registry_refuses_is_told_in_its_words(writing):
    answer = writing.change(**registering("s", "no schema"), execute=True)
    assert answer.status == 409 and "Invalid schema" in answer.body["error"]
    for wrong in ({"type": "XML"}, {"references": [1]}, {"subject": ".."}, {"schema": 5}):
        assert writing.change(**{**registering("s", OLD), **wrong}, execute=True).status == 400


@pytest.mark.parametrize(
    "good",
    [
        {**registering("s", OLD), "type": "AVRO", "references": []},
        {"do": "set-compatibility", "subject": "s", "level": "FULL"},
        {"do": "delete-schema", "subject": "s", "version": 1, "permanent": True, "confirm": "s"},
    ],
    ids=lambda good: good["do"],
)
def test_a_change_of_schemas_answers_every_field(writing, good):
    for name, value in itertools.product(good, VALUES):
        says_what_is_wrong(writing.change(**{**good, name: value, "execute": True}), (name, repr(value)[:60]))


@pytest.mark.parametrize(
    "wrong", [{"name": "a", "subject": "a", "version": 10**30}, {"name": "", "subject": "", "version": -1}]
)
def test_references_to_what_cannot_be_are_refused(writing, wrong):
    answer = writing.change(**registering("s", OLD, references=[wrong]), execute=True)
    says_what_is_wrong(answer, wrong)
    assert answer.status != 200


def test_a_console_that_only_reads_changes_no_schema(start_console, registry, register):
    register("s", OLD)
    console = start_console(registry=registry.url)
    for wanted in (
        registering("s", OLD),
        {"do": "set-compatibility", "subject": "s", "level": "NONE"},
        {"do": "delete-schema", "subject": "s", "confirm": "s"},
    ):
        assert console.change(**wanted, execute=True).status == 403
    shown = console.get("schemas", subject="s")
    assert (shown["versions"], shown["own_level"]) == ([1], None)


def test_without_a_registry_no_schema_is_changed(console):
    answer = console.change(**registering("s", OLD), execute=True)
    assert answer.status == 400 and "--registry" in answer.body["error"]


def test_a_password_of_the_registry_is_in_no_command():
    login = servers_of("127.0.0.1:9", {"sasl.username": "alice", "sasl.password": "sesame"})
    line = Schemas("http://127.0.0.1:9", login).curl("DELETE", "/subjects/s")
    assert line[-3:] == ["--user", "alice", "http://127.0.0.1:9/subjects/s"]
    assert "sesame" not in str(line)
