"""JSON values as registered Avro: the bytes are those of fastavro, and errors have
the path to the wrong part.
"""

from __future__ import annotations

import datetime
import io
import json
import re
from decimal import Decimal

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.schemas.avro import AvroSchema
from barnabas.client.schemas.registered import AVRO, Registered
from barnabas.client.schemas.unfit import UnfitError


def codec(schema, *references):
    texts = tuple((str(n), json.dumps(each)) for n, each in enumerate(references))
    return AvroSchema(Registered(1, AVRO, json.dumps(schema), texts))


def record(name="R", **types):
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": type_} for field, type_ in types.items()],
    }


def logical(type_, name, **more):
    return {"type": type_, "logicalType": name, **more}


def round_trip(schema, value):
    made = codec(schema)
    return made.read(made.write(value, "value"))


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
ALL = record(
    nothing="null",
    yes="boolean",
    small="int",
    large="long",
    single="float",
    double="double",
    text="string",
    raw="bytes",
    pair={"type": "fixed", "name": "Pair", "size": 2},
    colour=COLOUR,
    again="Colour",
    items={"type": "array", "items": "long"},
    named={"type": "map", "values": "string"},
    inner=record("Inner", either=["null", "string", "long"]),
)


@given(
    st.fixed_dictionaries(
        {
            "nothing": st.none(),
            "yes": st.booleans(),
            "small": st.integers(-(2**31), 2**31 - 1),
            "large": st.integers(-(2**63), 2**63 - 1),
            "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
            "double": st.floats(allow_nan=False, allow_infinity=False),
            "text": st.text(),
            "raw": st.binary(),
            "pair": st.binary(min_size=2, max_size=2),
            "colour": st.sampled_from(COLOUR["symbols"]),
            "again": st.sampled_from(COLOUR["symbols"]),
            "items": st.lists(st.integers(-(2**63), 2**63 - 1)),
            "named": st.dictionaries(st.text(), st.text()),
            "inner": st.fixed_dictionaries(
                {"either": st.one_of(st.none(), st.text(), st.integers(-(2**63), 2**63 - 1))}
            ),
        }
    )
)
def test_the_bytes_are_those_that_fastavro_writes(value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ALL), value)
    as_json = {
        name: part.decode("latin-1") if isinstance(part, bytes) else part for name, part in value.items()
    }
    assert codec(ALL).write(as_json, "value") == out.getvalue()


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        ("bytes", {"base64": "AP8="}, b"\x00\xff"),
        ("double", "-Infinity", float("-inf")),
        ("double", 7, 7.0),
        ("int", 7.0, 7),
        (logical("int", "date"), "2026-11-27", datetime.date(2026, 11, 27)),
        (logical("int", "date"), 0, datetime.date(1970, 1, 1)),
        (logical("int", "time-millis"), "12:30:00.5", datetime.time(12, 30, 0, 500_000)),
        (logical("long", "time-micros"), "00:00:00.000001", datetime.time(0, 0, 0, 1)),
        (
            logical("long", "timestamp-millis"),
            "2026-11-27T13:30:00+01:00",
            datetime.datetime(2026, 11, 27, 12, 30, tzinfo=datetime.UTC),
        ),
        (
            logical("long", "timestamp-micros"),
            "1969-12-31T23:59:59.999999Z",
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC),
        ),
        (
            logical("long", "local-timestamp-millis"),
            "2026-11-27 12:30:00",
            datetime.datetime(2026, 11, 27, 12, 30),
        ),
        (logical("bytes", "decimal", precision=6, scale=2), "-1234.5", Decimal("-1234.50")),
        (logical("bytes", "decimal", precision=6, scale=2), 0.1, Decimal("0.10")),
        (logical("bytes", "decimal", precision=3), 128, Decimal(128)),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2},
            "12.34",
            Decimal("12.34"),
        ),
    ],
    ids=str,
)
def test_a_value_is_read_as_it_was_meant(schema, value, read):
    assert round_trip(schema, value) == read


@pytest.mark.parametrize(
    ("branches", "value", "index"),
    [
        (["null", "string"], None, 0),
        (["null", "string"], "x", 1),
        (["null", "string"], {"string": "x"}, 1),
        (["null", "bytes", "string"], "x", 2),
        (["null", "bytes"], "x", 1),
        (["int", "long"], 2**40, 1),
        (["int", "double"], 1.5, 1),
        (["int", "double"], 1, 0),
        (["string", COLOUR], {"Colour": "RED"}, 1),
        (["null", logical("long", "timestamp-millis")], "2026-11-27T00:00:00Z", 1),
        ([record("A", a="int"), record("B", b="int")], {"b": 1}, 1),
        ([record("A", a="int"), record("n.B", a="int")], {"B": {"a": 1}}, 1),
        ([record("A", a="int"), record("n.B", a="int")], {"n.B": {"a": 1}}, 1),
        (["null", {"type": "map", "values": "int"}], {"x": 1}, 1),
        (["null", {"type": "array", "items": "int"}], [1], 1),
    ],
    ids=str,
)
def test_the_branch_of_a_union_is_named_or_the_one_that_fits(branches, value, index):
    assert codec(branches).write(value, "value")[0] == 2 * index


def test_a_field_that_is_left_out_has_its_default():
    schema = record(
        n={"type": "int"},
        either=["null", "string"],
        raw="bytes",
        price=logical("bytes", "decimal", precision=4),
    )
    schema["fields"][1]["default"] = None
    schema["fields"][2]["default"] = "\u00ff"
    schema["fields"][3]["default"] = "\u0001"
    assert round_trip(schema, {"n": 1}) == {"n": 1, "either": None, "raw": b"\xff", "price": Decimal(1)}


def test_default_that_only_java_accepts_does_not_stop_a_reader():
    double = {"type": "double", "connect.default": 0}
    text = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": double, "default": 0}]}
    )
    assert AvroSchema(Registered(1, AVRO, text)).read(bytes(8)) == {"a": 0.0}


def test_references_define_types():
    line = record("shop.Line", n="int")
    made = codec(record("shop.Order", lines={"type": "array", "items": "shop.Line"}), line)
    value = {"lines": [{"n": 1}, {"n": 2}]}
    assert made.read(made.write(value, "value")) == value


ORDER = record(
    "shop.Order", id="string", lines={"type": "array", "items": record("Line", n="int", colour=COLOUR)}
)


@pytest.mark.parametrize(
    ("schema", "value", "says"),
    [
        (ORDER, {"id": 5, "lines": []}, "value.id: 5 does not fit; write a string"),
        (ORDER, {"id": "a"}, "value.lines: it is missing, and shop.Order has no default for it"),
        (
            ORDER,
            {"id": "a", "lines": [], "more": 1},
            "value.more: shop.Order has no such field; its fields are id, lines",
        ),
        (
            ORDER,
            {"id": "a", "lines": [{"n": 1, "colour": "RED"}, {"n": 1, "colour": "BLUE"}]},
            'value.lines[1].colour: "BLUE" does not fit; write one of RED, GREEN',
        ),
        (
            ORDER,
            {"id": "a", "lines": [{"n": 2**31, "colour": "RED"}]},
            "value.lines[0].n: 2147483648 does not fit; write a whole number from -2^31 to 2^31 - 1 (int)",
        ),
        ({"type": "map", "values": "int"}, {"a b": "x"}, 'value["a b"]: "x" does not fit'),
        ("boolean", 1, "value: 1 does not fit; write true or false"),
        ("null", 0, "value: 0 does not fit; write null"),
        ("double", True, "value: true does not fit; write a number"),
        ("double", 10**400, "does not fit|too large"),
        ("float", 1e300, "value: 1e+300 is too large for a float"),
        ("long", 1.5, "value: 1.5 does not fit; write a whole number"),
        ("bytes", "\u0100", "value: .* write bytes as"),
        ("bytes", {"base64": "?"}, "value: an object of .* write bytes as"),
        ("string", "\ud800", "value: it has half of a surrogate pair"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "value: it has 3 bytes; F has 2"),
        (["null", "int"], "x", 'value: "x" fits no branch of the union; its branches are null, int'),
        (
            [record("A", a="int"), record("B", a="int")],
            {"a": 1},
            'value: it fits several branches of the union; name one, such as {"A": ...}',
        ),
        (logical("int", "date"), "27.11.2026", 'value: "27.11.2026" does not fit; write a date such as'),
        (logical("long", "timestamp-millis"), "2026-11-27T00:00:00", "such as 2026-11-27T12:30:00.5Z"),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            "123.45",
            "a number with at most 4 digits, 2 of them behind the point",
        ),
        (logical("bytes", "decimal", precision=4, scale=2), "1.234", "2 of them behind the point"),
        (logical("bytes", "decimal", precision=4, scale=2), "NaN", "2 of them behind the point"),
        (logical("bytes", "decimal", precision=4), "1e999999999", "with at most 4 digits"),
        (logical("string", "uuid"), "x", 'value: "x" is not a UUID'),
        (ORDER, "x" * 500, r"value: \"x{70,80}.* does not fit; write an object \(shop.Order\)"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_does_not_fit_is_named_with_its_place_and_what_is_allowed(schema, value, says):
    with pytest.raises(UnfitError) as error:
        codec(schema).write(value, "value")
    text = str(error.value)
    assert says in text or re.search(says, text), text
    assert len(text) < 400 and "\n" not in text


def test_a_value_without_end_is_refused():
    schema = record("R", r="R")
    schema["fields"][0]["default"] = {}
    with pytest.raises(UnfitError, match="nested too deeply"):
        codec(schema).write({}, "value")
