"""Avro schemas: rejected ones, their canonical text, and compatible pairs."""

from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.registry.avro import AvroSchema
from barnabas.registry.errors import InvalidSchemaError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import avro.schema
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name, type_, **more):
    return {"name": name, "type": type_, **more}


def schema(form, references=(), **options):
    return AvroSchema(json.dumps(form), references, **options)


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ({"type": "string"}, "string"),
        ({"type": {"type": "string"}}, "string"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-millis"},
        ),
        (["null", {"type": "int"}], ["null", "int"]),
        (
            {"fields": [], "doc": "d", "name": "a.b.R", "type": "record"},
            {"type": "record", "name": "R", "namespace": "a.b", "doc": "d", "fields": []},
        ),
        (
            record(
                field("x", {"type": "enum", "name": "E", "symbols": ["A"]}, default="A", doc="d"),
                field("y", "n.E", order="ascending"),
                field("z", {"type": "fixed", "name": "m.F", "size": 2, "owner": "o"}, order="ignore"),
                namespace="n",
                aliases=["Old", "other.Older"],
            ),
            {
                "type": "record",
                "name": "R",
                "namespace": "n",
                "fields": [
                    field("x", {"type": "enum", "name": "E", "symbols": ["A"]}, doc="d", default="A"),
                    field("y", "E"),
                    field(
                        "z",
                        {"type": "fixed", "name": "F", "namespace": "m", "size": 2, "owner": "o"},
                        order="ignore",
                    ),
                ],
                "aliases": ["Old", "other.Older"],
            },
        ),
    ],
)
def test_a_schema_is_written_as_javas_avro_writes_it(form, written):
    assert schema(form).text == json.dumps(written, separators=(",", ":"))


def test_the_bare_name_of_a_primitive_type_is_a_schema():
    assert AvroSchema("string").text == '"string"'


def test_text_is_kept_as_it_is_and_not_escaped():
    assert "Grüße" in schema(record(field("a", "int", doc="Grüße"))).text


def test_normalized_properties_are_in_order():
    one = schema(record(zone="z", area="a"), normalize=True)
    other = schema(record(area="a", zone="z"), normalize=True)
    assert one.text == other.text
    assert schema(record(zone="z", area="a")).text != other.text


@pytest.mark.parametrize(
    ("form", "same"),
    [
        (
            record(field("a", "int", aliases=["c", "b"]), aliases=["T", "S"]),
            record(field("a", "int", aliases=["b", "c"]), aliases=["S", "T"]),
        ),
        ({**record(), "type": "error"}, record()),
        (record(doc=""), record()),
        (record(p={"b": 1, "a": [{"d": 1, "c": 2}]}), record(p={"a": [{"c": 2, "d": 1}], "b": 1})),
        (
            {"type": "int", "logicalType": "date", "connect.name": "Date"},
            {"type": "int", "connect.name": "Date", "logicalType": "date"},
        ),
    ],
)
def test_schemas_of_one_meaning_have_one_normalized_text(form, same):
    assert schema(form, normalize=True).text == schema(same, normalize=True).text
    assert schema(form).text != schema(same).text


@pytest.mark.parametrize(
    ("type_", "options", "is_valid"),
    [
        ("bytes", {"logicalType": "decimal", "precision": 4, "scale": 4}, True),
        ("bytes", {"logicalType": "decimal", "precision": 4, "scale": 5}, False),
        ("bytes", {"logicalType": "decimal"}, False),
        ("string", {"logicalType": "decimal", "precision": 4}, False),
        ("string", {"logicalType": "uuid"}, True),
        ("long", {"logicalType": "timestamp-nanos"}, True),
        ("long", {"logicalType": "date"}, False),
        ("fixed", {"name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, True),
        ("fixed", {"name": "F", "size": 4, "logicalType": "decimal", "precision": 10}, False),
        ("fixed", {"name": "F", "size": 12, "logicalType": "duration"}, True),
        ("fixed", {"name": "F", "size": 11, "logicalType": "duration"}, False),
    ],
)
def test_normalized_text_begins_with_a_valid_logical_type_and_sorts_an_invalid_one(type_, options, is_valid):
    text = schema({"type": type_, "a": 1, **options}, normalize=True).text
    assert (text.index("logicalType") < text.index('"a"')) is is_valid


def test_alias_that_is_given_twice_is_one():
    assert (
        schema(record(name="n.R", aliases=["S", "n.S"])).text
        == schema(record(name="n.R", aliases=["S"])).text
    )


DEFAULT = record(field("x", "int", default=1))
FULL = record(field("x", "int"))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ({"type": "double", "connect.default": 0}, 0),
        ("double", "NaN"),
        ("float", "-Infinity"),
        ("long", 2**63 - 1),
        ("int", -(2**31)),
        ("null", None),
        (["null", "string"], "s"),
        ({"type": "array", "items": ["int", "string"]}, [1, "a"]),
        ({"type": "map", "values": "int"}, {"k": 1}),
        ({**DEFAULT, "name": "S"}, {}),
        ({**FULL, "name": "S"}, {"x": 1, "unknown": 2}),
        ({"type": "bytes", "logicalType": "decimal", "precision": "a"}, ""),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
    ],
)
def test_default_that_javas_library_accepts_is_valid(type_, value):
    schema(record(field("a", type_, default=value))).check_defaults()


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("int", 1.0),
        ("int", True),
        ("int", 2**31),
        ("long", 2**63),
        ("boolean", 1),
        ("double", "1"),
        ("string", None),
        (["null", "string"], 1),
        ({"type": "array", "items": "int"}, [1, "a"]),
        ({"type": "map", "values": "int"}, {"k": "v"}),
        ({**FULL, "name": "S"}, {}),
        ({**FULL, "name": "S"}, {"x": "text"}),
        ("R", {}),
    ],
    ids=str,
)
def test_default_that_is_no_value_of_its_type_is_refused_and_named(type_, value):
    made = schema(record(field("a", type_, default=value)))
    with pytest.raises(InvalidSchemaError, match="the default of field a is not a value of its type"):
        made.check_defaults()


@pytest.mark.parametrize("is_last_first", [True, False])
def test_defaults_of_many_records_inside_each_other_are_checked_once_and_without_deep_calls(is_last_first):
    defined = [record(name="R0")]
    for number in range(1, 1000):
        inner = f"R{number - 1}"
        defined.append(
            record(field("a", inner, default={}), field("b", inner, default={}), name=f"R{number}")
        )
    form = record(field("all", defined), field("last", "R999", default={}), name="Last")
    schema(form if is_last_first else defined).check_defaults()


def test_types_of_a_reference_are_called_by_name():
    base = ("base", json.dumps(record(field("a", "int"), name="n.Base")))
    user = record(field("b", "n.Base"), field("c", ["null", "Base"]), name="n.User")
    assert json.loads(schema(user, [base]).text)["fields"][0]["type"] == "Base"
    with pytest.raises(InvalidSchemaError, match=r'undefined name: "n\.Base"'):
        schema(user)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (5, "neither a type's name"),
        ({}, "no type"),
        ("Unknown", "undefined name"),
        ({"type": "array"}, "no items"),
        ({"type": "map"}, "no values"),
        ({"type": "record", "name": "R"}, "no list of fields"),
        ({"type": "record", "fields": []}, "no name"),
        (record(name="R-x"), "illegal name"),
        (record(name="string"), "cannot redefine"),
        (record(field("a b", "int")), "illegal name"),
        (record(field("a", "int"), field("a", "int")), "two fields called a"),
        (record({"name": "a"}), "has no type"),
        (record("a"), "has no type"),
        (record(field("a", "int", order="up")), "order 'up'"),
        (record(field("a", record(name="R"))), "cannot redefine"),
        (["int", "int"], "int twice"),
        (["int", ["null"]], "a union contains a union"),
        ({"type": "enum", "name": "E"}, "no symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "not a symbol of enum"),
        ({"type": "fixed", "name": "F", "size": -1}, "no size"),
    ],
)
def test_a_schema_that_breaks_a_rule_is_refused_with_the_rule(form, reason):
    with pytest.raises(InvalidSchemaError, match=reason):
        schema(form)


def test_what_is_no_json_is_refused():
    with pytest.raises(InvalidSchemaError, match="not JSON"):
        AvroSchema("{")


# --- resolution ---


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "place"),
    [
        (
            record(field("a", "int"), field("b", "int")),
            record(field("a", "int")),
            "READER_FIELD_MISSING_DEFAULT_VALUE",
            "/fields/1",
        ),
        (record(field("a", "int")), record(field("a", "long")), "TYPE_MISMATCH", "/fields/0/type"),
        (record(name="n.R"), record(name="n.S"), "NAME_MISMATCH", "/name"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "MISSING_ENUM_SYMBOLS",
            "/symbols",
        ),
        (
            {"type": "fixed", "name": "F", "size": 1},
            {"type": "fixed", "name": "F", "size": 2},
            "FIXED_SIZE_MISMATCH",
            "/size",
        ),
        (["null", "int"], ["null", "string"], "MISSING_UNION_BRANCH", "/1"),
        ("int", ["int", "string"], "TYPE_MISMATCH", "/1"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "TYPE_MISMATCH", "/items"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(reader, writer, kind, place):
    (found,) = schema(reader).cannot_read(schema(writer))
    assert (found.kind, found.path) == (kind, place)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(field("a", "int", default=1)), record()),
        (record(), record(field("a", "int"))),
        (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
        (record(name="new.R"), record(name="old.R")),
        (record(name="S", aliases=["R"]), record(name="R")),
        ("double", "int"),
        ("bytes", "string"),
        (["null", "long"], "int"),
        ("long", ["int", "long"]),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        ),
        (
            record(field("next", ["null", "R"]), field("a", "long")),
            record(field("next", ["null", "R"]), field("a", "int")),
        ),
    ],
)
def test_what_schema_resolution_allows_is_compatible(reader, writer):
    assert schema(reader).cannot_read(schema(writer)) == []


def test_a_recursive_schema_that_changes_inside_is_found():
    before = record(field("next", ["null", "R"]), field("a", "string"))
    after = record(field("next", ["null", "R"]), field("a", "int"))
    assert schema(after).cannot_read(schema(before))


def test_a_change_that_many_ways_lead_to_is_said_once():
    def nested(type_, level=0):
        if level == 40:  # 2 to the power of it ways
            return record(field("x", type_), name="R40")
        deeper = nested(type_, level + 1)
        return record(field("a", deeper), field("b", f"R{level + 1}"), name=f"R{level}")

    (found,) = schema(nested("int")).cannot_read(schema(nested("string")))
    assert found.kind == "TYPE_MISMATCH"


# Schemas as they come about: a few names, so that those of reader and writer meet.
_primitives = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
_enums = st.builds(
    lambda name, symbols, has_default: {
        "type": "enum",
        "name": name,
        "symbols": symbols,
        **({"default": symbols[0]} if has_default else {}),
    },
    st.sampled_from(["E1", "E2"]),
    st.lists(st.sampled_from("ABC"), min_size=1, unique=True),
    st.booleans(),
)
_fixed = st.builds(lambda size: {"type": "fixed", "name": "F", "size": size}, st.integers(1, 2))


def _fields(types):
    made = st.builds(
        lambda name, type_, aliases: field(name, type_, **({"aliases": aliases} if aliases else {})),
        st.sampled_from(["a", "b", "c"]),
        types | st.just("int-with-default"),
        st.lists(st.sampled_from(["a", "b", "c"]), max_size=1),
    )
    return st.lists(made, max_size=3, unique_by=lambda made: made["name"]).map(
        lambda fields: [
            {**f, "type": "int", "default": 7} if f["type"] == "int-with-default" else f for f in fields
        ]
    )


def _deeper(types):
    unions = st.lists(
        types.filter(lambda t: not isinstance(t, list)),
        min_size=1,
        max_size=3,
        unique_by=lambda t: t if isinstance(t, str) else t.get("name", t["type"]),
    )
    return (
        types.map(lambda t: {"type": "array", "items": t})
        | types.map(lambda t: {"type": "map", "values": t})
        | unions
        | st.builds(
            lambda name, fields: record(*fields, name=name), st.sampled_from(["R1", "R2"]), _fields(types)
        )
    )


_schemas = st.recursive(_primitives | _enums | _fixed, _deeper, max_leaves=5)


def _valid(form):
    """Return whether the schema is valid: a name that is defined twice makes it invalid."""
    try:
        return schema(form)
    except InvalidSchemaError:
        return None


@given(_schemas, _schemas)
def test_resolution_agrees_with_the_checker_of_apache_avro(reader, writer):
    ours, written = _valid(reader), _valid(writer)
    if ours is None or written is None:
        return
    theirs = ReaderWriterCompatibilityChecker().get_compatibility(
        avro.schema.make_avsc_object(reader), avro.schema.make_avsc_object(writer)
    )
    assert (not ours.cannot_read(written)) == (theirs.compatibility is SchemaCompatibilityType.compatible)


@given(_schemas)
def test_a_schema_reads_its_own_data_and_its_text_is_a_fixed_point(form):
    made = _valid(form)
    if made is None:
        return
    assert made.cannot_read(made) == []
    again = AvroSchema(made.text)
    assert again.text == made.text
    assert again.cannot_read(made) == made.cannot_read(again) == []
