"""JSON values as registered JSON Schema."""

from __future__ import annotations

import json

import pytest

from barnabas.client.schemas.codec import Encoder
from barnabas.client.schemas.registered import JSON, Registered, SchemaError
from barnabas.client.schemas.unfit import UnfitError


def encoder(schema, *references):
    texts = tuple((name, json.dumps(each)) for name, each in references)
    return Encoder(Registered(7, JSON, json.dumps(schema), texts))


ORDER = {
    "type": "object",
    "properties": {"id": {"type": "string", "pattern": "^o-"}, "lines": {"items": {"$ref": "line.json"}}},
    "required": ["id"],
    "additionalProperties": False,
}
LINE = ("line.json", {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}})


def test_a_value_that_the_schema_accepts_is_json_behind_the_id():
    made = encoder(ORDER, LINE).encode_text('{"id": "o-1",\n "lines": [{"n": 1}], }'.replace(", }", " }"))
    assert made == b"\0\0\0\0\x07" + b'{"id":"o-1","lines":[{"n":1}]}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"id": 5}', 'value.id: 5 is not of type \'string\'; the schema of it is {"type": "string"'),
        ('{"id": "x"}', "value.id: 'x' does not match '^o-'; the schema of it is"),
        ("{}", "value: 'id' is a required property"),
        ('{"id": "o-1", "more": 1}', "value: Additional properties are not allowed ('more' was unexpected)"),
        ('{"id": "o-1", "lines": [{}, {"n": 0}]}', "value.lines[1].n: 0 is less than the minimum of 1"),
        ("{", "value: it is not JSON"),
        ("NaN", "value: it is not JSON: NaN is not a number of JSON"),
        ("1e999", "value: it is not JSON: 1e999 is too large a number"),
        ("[" * 100_000, "value: it is nested too deeply"),
        (b'"\xff"', "value: it is not UTF-8"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_the_schema_does_not_accept_is_named_with_its_place(text, says):
    with pytest.raises(UnfitError) as error:
        encoder(ORDER, LINE).encode_text(text)
    assert str(error.value).startswith(says)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize(
    "schema", [{}, {"items": {"multipleOf": 0.1}}, {"items": {"type": "string"}}], ids=str
)
def test_a_number_that_json_does_not_have_is_an_error_of_the_value(schema, number):
    with pytest.raises(UnfitError, match=r"^value: it is not JSON: Out of range"):
        encoder(schema).encode([number])


def test_a_value_that_json_does_not_have_is_an_error_of_the_value():
    with pytest.raises(UnfitError, match=r"^value: it is not JSON: "):
        encoder({"items": {"type": "string"}}).encode([b"bytes"])


@pytest.mark.parametrize(
    "schema",
    [{"type": "strong"}, {"$ref": "elsewhere.json"}, {"pattern": r"\p{L}"}],
    ids=str,
)
def test_a_schema_that_cannot_be_applied_is_an_error_of_the_schema(schema):
    with pytest.raises(SchemaError, match=r"^schema 7 \(JSON\) cannot be used: "):
        encoder(schema).encode_text('"x"')


def test_only_protobuf_has_messages_and_other_formats_are_refused():
    with pytest.raises(SchemaError, match="which has no messages"):
        Encoder(Registered(7, JSON, "{}"), "Order")
    with pytest.raises(SchemaError, match="of the format THRIFT; AVRO, JSON and PROTOBUF are known"):
        Encoder(Registered(7, "THRIFT", "{}"))
