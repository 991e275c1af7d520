"""Registered Protobuf and JSON, compared with Confluent's serializers, with a live
registry and without Spark.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from barnabas.base.errors import ConfigError
from barnabas.client.schemas.protobuf_file import ProtobufFile
from barnabas.client.schemas.registered import JSON, PROTOBUF, Reference, Registered, by_id, latest, register
from barnabas.client.schemas.registry import STEADY, SchemaRegistry
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.spark import json_codec, protobuf_codec
from barnabas.spark.payloads import FindWriter, RowUnfitError

CONTEXT = SerializationContext("t", MessageField.VALUE)
AT = datetime.datetime(2026, 3, 1, 10, 0, 30, 123456, datetime.UTC)

ITEM = 'syntax = "proto3"; package shop; message Item { string name = 1; double price = 2; }'
ORDER = """
syntax = "proto3";
package shop;
import "item.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Ignored { int32 nothing = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { Item item = 1; uint32 count = 2; }
  sint64 id = 1;
  uint64 big = 2;
  optional string note = 3;
  State state = 4;
  repeated Line lines = 5;
  map<string, Item> gifts = 6;
  oneof paid_by { string card = 7; bool cash = 8; }
  google.protobuf.Timestamp at = 9;
  google.protobuf.Duration took = 10;
  google.protobuf.Int32Value rating = 11;
  google.protobuf.Struct more = 12;
  bytes raw = 13;
  repeated fixed32 codes = 14;
}
"""
FULL = {
    "id": -5,
    "big": Decimal(2**64 - 1),
    "note": "",
    "state": "PAID",
    "lines": [{"item": {"name": "apple", "price": 0.5}, "count": 2**32 - 1}],
    "gifts": [("a", {"name": "pear", "price": 1.0})],
    "card": None,
    "cash": False,
    "at": AT,
    "took": datetime.timedelta(seconds=-1, microseconds=-5),
    "rating": 0,
    "more": '{"x": [1.0, null]}',
    "raw": b"\x00\xff",
    "codes": [1, 2**32 - 1],
}
EMPTY = {
    **dict.fromkeys(FULL),
    "id": 0,
    "big": Decimal(0),
    "state": "NEW",
    "lines": [],
    "gifts": [],
    "raw": b"",
    "codes": [],
}

_numbers = itertools.count()


@pytest.fixture(scope="module")
def registry(servers: str) -> Iterator[str]:
    with RegistryServer(RegistrySettings(servers, topic="_schemas-codecs"), claim("127.0.0.1:0")) as running:
        yield running.url


@pytest.fixture
def client(registry: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry}) as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"registered-{next(_numbers)}"


def settings(subject: str, **more: Any) -> dict[str, Any]:
    return {"subject.name.strategy": lambda context, record: subject, **more}


def decode(decoder: Any, *payloads: bytes | None) -> list[tuple[Any, str | None]]:
    records, reasons = decoder.decode(pa.array(payloads, pa.binary()))
    return list(zip(records.to_pylist(), reasons.to_pylist(), strict=True))


def encode(encoder: Any, arrow: pa.DataType, *rows: Any) -> list[bytes]:
    payloads: list[bytes] = encoder.encode(pa.array(rows, arrow)).to_pylist()
    return payloads


def message_of(schema: Registered, name: str) -> Any:
    """Return the class of a message for Confluent's serdes, which read the name of its file."""
    return GetMessageClass(ProtobufFile(schema).message(name))


def ask(registry: str) -> SchemaRegistry:
    return SchemaRegistry(registry, timeouts=STEADY)


def finding(asked: SchemaRegistry, kind: str) -> FindWriter:
    return partial(by_id, asked, kind=kind)


def registered_order(registry: str, subject: str) -> tuple[FindWriter, Registered]:
    asked = ask(registry)
    register(asked, f"{subject}-item", ITEM, PROTOBUF)
    reference = Reference("item.proto", f"{subject}-item", 1)
    id_ = register(asked, subject, ORDER, PROTOBUF, [reference])
    return finding(asked, PROTOBUF), by_id(asked, id_, PROTOBUF)


def test_protobuf_goes_both_ways_and_confluents_deserializer_reads_it(registry: str, subject: str) -> None:
    find, schema = registered_order(registry, subject)
    decoder = protobuf_codec.Decoder(schema, find, message="Order")
    encoder = protobuf_codec.Encoder(schema, "shop.Order")
    full, empty = encode(encoder, decoder.made, FULL, EMPTY)
    assert decode(decoder, full, None, empty) == [(FULL, None), (None, None), (EMPTY, None)]
    theirs = ProtobufDeserializer(message_of(schema, "Order"), {"use.deprecated.format": False})
    read = theirs(full, CONTEXT)
    assert (read.id, read.big, read.state, read.lines[0].count) == (-5, 2**64 - 1, 1, 2**32 - 1)
    assert (read.at.ToDatetime(datetime.UTC), read.took.ToMicroseconds()) == (AT, -1_000_005)
    assert (read.WhichOneof("paid_by"), read.HasField("note"), read.more["x"][0]) == ("cash", True, 1.0)


def test_what_confluents_protobuf_serializer_writes_is_read(
    registry: str, client: SchemaRegistryClient, subject: str
) -> None:
    find, schema = registered_order(registry, subject)
    kind = message_of(schema, "Order")
    conf = settings(subject, **{"auto.register.schemas": False, "use.latest.version": True})
    serialize = ProtobufSerializer(kind, client, {**conf, "use.deprecated.format": False})
    payload = serialize(kind(id=7, card="visa", codes=[3]), CONTEXT)
    ((record, reason),) = decode(protobuf_codec.Decoder(schema, find, message="Order"), payload)
    assert reason is None
    assert record == {**EMPTY, "id": 7, "card": "visa", "codes": [3]}


def test_each_bad_protobuf_payload_has_its_reason(registry: str, subject: str) -> None:
    find, schema = registered_order(registry, subject)
    begin = b"\0" + schema.id.to_bytes(4, "big")
    ignored = protobuf_codec.Encoder(schema, "Ignored").encode(pa.array([{"nothing": 1}])).to_pylist()
    bad = {
        ignored[0]: "it is a message shop.Ignored, not shop.Order",
        begin: "it ends before its message begins",
        begin + b"\2\xff": "it ends before its message begins",
        begin + b"\2\x12": "the schema has no message at 9",
        begin + b"\2\1": "the schema has no message at -1",
        begin + b"\x7e": "63 levels deep",
        begin + b"\2\2\x0a\xff": "it does not fit its schema",
        b"\0\0\1\0\0\2": "schema id 65536 is not registered",
    }
    found = decode(protobuf_codec.Decoder(schema, find, message="Order"), *bad)
    for (record, reason), expected in zip(found, bad.values(), strict=True):
        assert record is None
        assert expected in str(reason)


def test_protobuf_of_every_version_has_the_readers_columns(registry: str, subject: str) -> None:
    asked = ask(registry)
    first = 'syntax = "proto3"; message R { int32 a = 1; string gone = 2; }'
    second = 'syntax = "proto3"; message R { int64 a = 1; optional string b = 3; }'
    ids = [register(asked, subject, text, PROTOBUF) for text in (first, second)]
    old, new = (by_id(asked, id_, PROTOBUF) for id_ in ids)
    assert latest(asked, subject, PROTOBUF) == new
    decoder = protobuf_codec.Decoder(new, finding(asked, PROTOBUF))
    one = encode(protobuf_codec.Encoder(old), pa.struct({"a": pa.int32()}), {"a": 1})
    two = encode(protobuf_codec.Encoder(new), decoder.made, {"a": 2**40, "b": "x"})
    assert decode(decoder, *one, *two) == [({"a": 1, "b": None}, None), ({"a": 2**40, "b": "x"}, None)]


def test_rows_and_schemas_that_protobuf_does_not_take_are_named(registry: str, subject: str) -> None:
    find, schema = registered_order(registry, subject)
    encoder = protobuf_codec.Encoder(schema, "Order")
    with pytest.raises(RowUnfitError, match="field state does not take 'LOST'"):
        encode(encoder, pa.struct({"state": pa.string()}), {"state": "LOST"})
    with pytest.raises(RowUnfitError, match="field codes does not take"):
        encode(encoder, pa.struct({"codes": pa.list_(pa.int64())}), {"codes": [None]})
    with pytest.raises(ConfigError, match=r"no message Nobody .* are shop.Ignored, shop.Order"):
        protobuf_codec.Decoder(schema, find, message="Nobody")
    with pytest.raises(ConfigError, match=r"shop.Item is of an import"):
        protobuf_codec.Encoder(schema, "Item")
    asked = ask(registry)
    register(asked, f"{subject}-tree", 'syntax = "proto3"; message T { T left = 1; }', PROTOBUF)
    with pytest.raises(ConfigError, match="T contains itself"):
        protobuf_codec.Decoder(latest(asked, f"{subject}-tree", PROTOBUF), find)


PLACE = json.dumps({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "score": {"type": ["null", "number"]},
        "home": {"$ref": "place.json"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
        "child": {"$ref": "#"},
        "nick": {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]},
    },
    "required": ["id", "score"],
}
ANN = {
    "id": 1,
    "score": 0.5,
    "home": {"city": "Oslo"},
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "any": [1, {"y": None}],
    "nick": "Ann",
}


def test_json_goes_both_ways_beside_confluents(
    registry: str, client: SchemaRegistryClient, subject: str
) -> None:
    client.register_schema(f"{subject}-place", Schema(PLACE, "JSON"))
    text = json.dumps(PERSON)
    references = [SchemaReference("place.json", f"{subject}-place", 1)]
    with_references = Schema(text, "JSON", references=references)
    payload = JSONSerializer(with_references, client, conf=settings(subject))(ANN, CONTEXT)
    asked = ask(registry)
    schema = latest(asked, subject, JSON)
    decoder = json_codec.Decoder(schema, finding(asked, JSON))
    ((record, reason),) = decode(decoder, payload)
    assert reason is None
    assert record == {
        **ANN,
        "counts": [("x", 1)],
        "any": '[1, {"y": null}]',
        "child": None,
    }
    bob = {**record, "id": 2, "score": None, "nick": None, "home": None, "any": None}
    written = encode(json_codec.Encoder(schema), decoder.made, record, bob)
    theirs = JSONDeserializer(with_references, schema_registry_client=client)
    assert [theirs(each, CONTEXT) for each in written] == [
        ANN,
        {"id": 2, "score": None, "tags": ["a", "b"], "counts": {"x": 1}},
    ]


def test_json_that_the_schema_does_not_allow_has_its_reason(registry: str, subject: str) -> None:
    asked = ask(registry)
    text = json.dumps({**PERSON, "properties": {**PERSON["properties"], "home": True}})
    id_ = register(asked, subject, text, JSON)
    schema = by_id(asked, id_, JSON)
    begin = b"\0" + id_.to_bytes(4, "big")
    bad = {
        begin + b"{": "it is not JSON",
        begin + b"[]": "at /: [] is not of type 'object'",
        begin + b'{"id": "x", "score": 1}': "at /id: 'x' is not of type 'integer'",
        begin + b'{"id": 1}': "'score' is a required property",
        begin + b'{"id": 1, "score": 1, "nick": "long"}': "at /nick: ",
        begin + b'{"id": 9223372036854775808, "score": 1}': "its columns have no room for it",
        b'{"id": 1, "score": 1}': "not a registered payload",
    }
    good = begin + b'{"id": 1.0, "score": null, "unknown": 1}'
    found = decode(json_codec.Decoder(schema, finding(asked, JSON)), good, *bad)
    assert found[0][0]["id"] == 1
    for (record, reason), expected in zip(found[1:], bad.values(), strict=True):
        assert record is None
        assert expected in str(reason)
    encoder = json_codec.Encoder(schema)
    with pytest.raises(RowUnfitError, match="at /nick: "):
        encode(
            encoder,
            pa.struct({"id": pa.int64(), "score": pa.float64(), "nick": pa.string()}),
            {"id": 1, "score": 1.0, "nick": "long"},
        )
    with pytest.raises(ConfigError, match="rows are objects with properties"):
        json_codec.JsonSchema(Registered(1, JSON, '{"type": "string"}'))
    with pytest.raises(ConfigError, match="not a JSON Schema"):
        json_codec.JsonSchema(Registered(1, JSON, '{"type": "nonsense"}'))
