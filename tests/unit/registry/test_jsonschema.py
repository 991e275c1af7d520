"""JSON Schemas: rejected ones, and compatible pairs."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.jsonschema import JsonSchema


def schema(form, references=(), **options):
    return JsonSchema(json.dumps(form), references, **options)


def obj(properties, *required, **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


INTEGER, STRING, CLOSED = {"type": "integer"}, {"type": "string"}, {"additionalProperties": False}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (obj({"a": INTEGER}), obj({"a": INTEGER})),
        (obj({}), obj({"a": INTEGER})),  # gone where any property may be
        (obj({"a": INTEGER, "b": STRING}, **CLOSED), obj({"a": INTEGER}, **CLOSED)),
        (obj({"a": INTEGER}), obj({"a": INTEGER}, "a")),
        (obj({"a": {"type": "integer", "default": 1}}, "a"), obj({"a": INTEGER})),
        ({"type": "number"}, INTEGER),
        ({"type": ["integer", "null"]}, INTEGER),
        ({"enum": [1, 2, 3]}, {"enum": [1, 2]}),
        ({"enum": [1, 2, 3]}, {"const": 1}),
        ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 5}),
        ({"type": "integer", "minimum": 0}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}),
        ({"oneOf": [INTEGER, STRING]}, INTEGER),
        ({"oneOf": [INTEGER, STRING]}, {"anyOf": [STRING, INTEGER]}),
        (INTEGER, {"allOf": [INTEGER, {"minimum": 3}]}),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": INTEGER}),
        (True, INTEGER),
        (INTEGER, False),
        ({"$ref": "#/definitions/x", "definitions": {"x": INTEGER}}, INTEGER),
        (
            {"type": "object", "properties": {"next": {"$ref": "#"}, "a": {"type": "number"}}},
            {"type": "object", "properties": {"next": {"$ref": "#"}, "a": INTEGER}},
        ),
        ({"type": "object", "additionalProperties": {"$ref": "#"}}, False),
        (
            {"type": "object", "patternProperties": {"^x": INTEGER}, **CLOSED},
            {"type": "object", "patternProperties": {"^x": INTEGER}, **CLOSED},
        ),
    ],
)
def test_a_schema_that_accepts_no_less_is_compatible(reader, writer):
    assert schema(reader).cannot_read(schema(writer)) == []


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "place"),
    [
        (obj({"a": STRING}), obj({"a": INTEGER}), "TYPE_NARROWED", "#/properties/a/type"),
        (obj({"a": INTEGER}), obj({}), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "#/properties/a"),
        (
            obj({}, **CLOSED),
            obj({"a": INTEGER}, **CLOSED),
            "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
            "#/properties/a",
        ),
        (obj({"a": INTEGER}, "a"), obj({"a": INTEGER}), "REQUIRED_ATTRIBUTE_ADDED", "#/required"),
        (INTEGER, {"type": "number"}, "TYPE_NARROWED", "#/type"),
        ({"enum": [1]}, {"enum": [1, 2]}, "ENUM_ARRAY_NARROWED", "#/enum"),
        ({"type": "string", "maxLength": 5}, {"type": "string"}, "MAX_LENGTH_ADDED", "#/maxLength"),
        (
            {"type": "string", "minLength": 5},
            {"type": "string", "minLength": 4},
            "MIN_LENGTH_CHANGED",
            "#/minLength",
        ),
        ({"type": "string", "pattern": "^a"}, STRING, "PATTERN_ADDED", "#/pattern"),
        ({"oneOf": [INTEGER]}, {"oneOf": [INTEGER, STRING]}, "SUM_TYPE_NARROWED", "#/oneOf/1/oneOf"),
        ({"allOf": [INTEGER, {"minimum": 3}]}, INTEGER, "MINIMUM_ADDED", "#/allOf/1/minimum"),
        ({"not": STRING}, True, "NOT_TYPE_EXTENDED", "#/not"),
        (False, INTEGER, "NOT_ACCEPTED", "#"),
    ],
)
def test_what_may_be_refused_is_named_with_its_place(reader, writer, kind, place):
    found = schema(reader).cannot_read(schema(writer))
    assert [(one.kind, one.path) for one in found] == [(kind, place)]


def test_a_change_that_many_ways_lead_to_is_said_once():
    def nested(type_):
        deeper = [{"$ref": f"#/definitions/D{level + 1}"} for level in range(40)]  # 2 to the power of 40 ways
        definitions = {f"D{level}": obj({"a": ref, "b": ref}) for level, ref in enumerate(deeper)}
        definitions["D40"] = obj({"x": {"type": type_}})
        return schema({"definitions": definitions, "$ref": "#/definitions/D0"})

    (found,) = nested("integer").cannot_read(nested("string"))
    assert found.kind == "TYPE_NARROWED"


def test_a_recursive_reader_of_anything_ends():
    recursive = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert schema(recursive).cannot_read(schema(True))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "an object"),
        ('{"type": "strin"}', "at /type"),
        ('{"minimum": NaN}', "not JSON"),
        ('{"$ref": "#/definitions/missing"}', "leads nowhere"),
        ('{"properties": {"a": {"$ref": "other.json"}}}', r"\$ref other\.json leads nowhere"),
    ],
)
def test_what_is_no_json_schema_is_refused_with_the_reason(text, reason):
    with pytest.raises(InvalidSchemaError, match=reason):
        JsonSchema(text)


@pytest.mark.parametrize("place", [lambda inner: {"not": inner}, lambda inner: {"allOf": [inner]}])
def test_references_within_a_subschema_with_its_own_id_do_not_refuse_the_schema(place):
    inner = {
        "$id": "http://example.com/inner",
        "properties": {"a": {"$ref": "#/definitions/a"}},
        "definitions": {"a": INTEGER},
    }
    schema(place(inner))


@pytest.mark.parametrize(
    ("keyword", "draft"),
    [
        ("$id", "http://json-schema.org/draft-07/schema#"),
        ("$id", "https://json-schema.org/draft/2020-12/schema"),
        ("id", "http://json-schema.org/draft-04/schema#"),
    ],
)
@pytest.mark.parametrize("own", ["http://example.com/inner", "http://example.com/inner#"])
@pytest.mark.parametrize(
    "place", [lambda inner: {"properties": {"p": inner}}, lambda inner: {"allOf": [inner, {}]}]
)
def test_a_part_with_its_own_id_resolves_its_references_by_it(keyword, draft, own, place):
    def of(kind):
        inner = {keyword: own, **obj({"a": {"$ref": "#/definitions/a"}}, "a"), "definitions": {"a": kind}}
        return schema({"$schema": draft, **place(inner), "definitions": {"a": {"type": "null"}}})

    assert of({"type": "number"}).cannot_read(of(INTEGER)) == []
    assert of(INTEGER).cannot_read(of({"type": "number"}))


def test_an_id_without_meaning_in_a_draft_changes_no_reference():
    form = obj({"p": {"id": "http://example.com/inner", **obj({"a": {"$ref": "#/definitions/a"}})}})
    both = schema(
        {"$schema": "http://json-schema.org/draft-07/schema#", **form, "definitions": {"a": INTEGER}}
    )
    assert both.cannot_read(both) == []


def test_merged_parts_keep_the_references_of_their_own_documents():
    base = json.dumps({**obj({"a": {"$ref": "#/definitions/a"}}), "definitions": {"a": INTEGER}})
    written = schema({"allOf": [{"$ref": "base.json"}, obj({"b": STRING})]}, [("base.json", base)])
    assert schema(obj({"a": INTEGER, "b": STRING})).cannot_read(written) == []
    assert schema(obj({"a": STRING, "b": STRING})).cannot_read(written)


@pytest.mark.parametrize("reference", ["http://[", "http://example.com:x/#/a"])
def test_a_reference_that_is_no_uri_is_refused(reference):
    with pytest.raises(InvalidSchemaError, match="leads nowhere"):
        schema({"$ref": reference})


def test_references_are_found_by_their_names():
    user = {"properties": {"a": {"$ref": "base.json"}}}
    assert (
        schema(user, [("base.json", '{"type": "number"}')]).cannot_read(
            schema(user, [("base.json", '{"type": "integer"}')])
        )
        == []
    )
    assert schema(user, [("base.json", '{"type": "integer"}')]).cannot_read(
        schema(user, [("base.json", '{"type": "number"}')])
    )


def test_normalized_schemas_have_one_order():
    assert schema({"type": "string", "title": "t"}, normalize=True).text == '{"title":"t","type":"string"}'
    assert schema({"type": "string", "title": "t"}).text == '{"type":"string","title":"t"}'


# A schema that is called compatible must accept whatever the other one accepts: small schemas, small values.
_leaves = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["integer", "number", "string", "null", "object", ["integer", "null"]]),
        "minimum": st.integers(0, 3),
        "maximum": st.integers(0, 3),
        "maxLength": st.integers(0, 2),
        "enum": st.lists(st.sampled_from([0, 1, "a", None]), min_size=1, max_size=2, unique=True),
    },
)


def _combined(schemas):
    properties = st.dictionaries(st.sampled_from("ab"), schemas, max_size=2)
    objects = st.fixed_dictionaries(
        {"properties": properties},
        optional={
            "type": st.just("object"),
            "required": st.lists(st.sampled_from("ab"), unique=True, max_size=2),
            "additionalProperties": st.booleans() | schemas,
            "maxProperties": st.integers(0, 2),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": schemas.filter(lambda part: isinstance(part, dict))
            | st.lists(schemas, min_size=1, max_size=2),
            "additionalItems": schemas,
        },
    )
    lists = st.lists(schemas, min_size=1, max_size=2)
    unions = lists.map(lambda parts: {"anyOf": parts}) | lists.map(lambda parts: {"allOf": parts})
    return objects | arrays | unions | schemas.map(lambda part: {"not": part})


_schemas = st.recursive(_leaves | st.booleans(), _combined, max_leaves=4)
_values = st.recursive(
    st.sampled_from([0, 1, 2, 3, 1.5, "", "a", "aaa", None]),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.sampled_from("abc"), values, max_size=2),
    max_leaves=4,
)


@given(_schemas, _schemas, st.lists(_values, min_size=5, max_size=20))
def test_compatible_schemas_accept_what_they_claim(reader, writer, values):
    if schema(reader).cannot_read(schema(writer)):
        return
    accepts, accepted = jsonschema.Draft7Validator(reader), jsonschema.Draft7Validator(writer)
    for value in values:
        if accepted.is_valid(value):
            assert accepts.is_valid(value)


@given(_schemas)
def test_a_schema_accepts_what_it_accepts(form):
    assert schema(form).cannot_read(schema(form)) == []


D2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
REST = {"unevaluatedProperties": False}


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "value"),
    [
        ({"contains": INTEGER, "minContains": 2}, {"contains": INTEGER}, "MIN_CONTAINS_INCREASED", [1]),
        ({"contains": INTEGER}, {"contains": INTEGER, "minContains": 0}, "MIN_CONTAINS_INCREASED", []),
        ({"contains": INTEGER, "maxContains": 1}, {"contains": INTEGER}, "MAX_CONTAINS_DECREASED", [1, 2]),
        (REST, {}, "NOT_ACCEPTED", {"a": 1}),
        ({"unevaluatedProperties": INTEGER}, {"unevaluatedProperties": STRING}, "TYPE_NARROWED", {"a": ""}),
        ({"prefixItems": [{}], "unevaluatedItems": False}, {"prefixItems": [{}]}, "NOT_ACCEPTED", [1, 2]),
        ({"allOf": [{}], **REST}, {"allOf": [{}]}, "UNEVALUATED_PROPERTIES_ADDED", {"a": 1}),
        ({"$ref": "#/$defs/x", "minimum": 3, "$defs": {"x": INTEGER}}, INTEGER, "MINIMUM_ADDED", 1),
        (
            {"contains": {"$ref": "#/$defs/x"}, "$defs": {"x": INTEGER}},
            {"contains": {"$ref": "#/$defs/x"}, "$defs": {"x": STRING}},
            "CONTAINS_CHANGED",
            ["a"],
        ),
        (
            {"if": {"$ref": "#/$defs/x"}, "then": False, "$defs": {"x": INTEGER}},
            {"if": {"$ref": "#/$defs/x"}, "then": False, "$defs": {"x": STRING}},
            "IF_CHANGED",
            1,
        ),
        (
            {"dependentRequired": {"a": ["b", "c"]}},
            {"dependentRequired": {"a": ["b"]}},
            "REQUIRED_ATTRIBUTE_ADDED",
            {"a": 1, "b": 1},
        ),
        (
            obj({"ab": {}}, patternProperties={"^a": INTEGER}, **CLOSED),
            obj({"ab": {}}, **CLOSED),
            "TYPE_NARROWED",
            {"ab": "x"},
        ),
        (
            obj({}, patternProperties={"^a": {}, "b$": INTEGER}, **CLOSED),
            obj({"ab": {}}, **CLOSED),
            "TYPE_NARROWED",
            {"ab": "x"},
        ),
        (
            obj({}, patternProperties={"^b": {}}, **CLOSED),
            {"allOf": [{"patternProperties": {"^b": {}}}, {"patternProperties": {"^a": {}}, **CLOSED}]},
            "",
            {"ax": 1},
        ),
    ],
)
def test_narrower_schema_of_2020_is_incompatible(reader, writer, kind, value):
    validator = jsonschema.Draft202012Validator
    assert validator(writer).is_valid(value)
    assert not validator(reader).is_valid(value)
    reasons = schema({**D2020, **reader}).cannot_read(schema({**D2020, **writer}))
    assert any(kind in reason.kind for reason in reasons), reasons


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (obj({"a": {}, "b": {}}, **REST), obj({"a": {}}, **REST)),
        (obj({"a": {}}), obj({"a": {}}, **REST)),
        ({"contains": INTEGER, "minContains": 1}, {"contains": INTEGER, "minContains": 2}),
        ({"prefixItems": [{}, INTEGER]}, {"prefixItems": [{}], "unevaluatedItems": INTEGER}),
        ({"dependentSchemas": {}}, {"dependentSchemas": {"a": STRING}}),
        ({"dependentRequired": {"a": ["b"]}}, {"dependentRequired": {"a": ["b", "c"]}}),
        ({"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["b", "c"], "c": STRING}}),
        ({"if": INTEGER, "then": {"minimum": 1}}, {"if": INTEGER, "then": {"minimum": 2}, "else": False}),
        (
            {"allOf": [{"$ref": "#/$defs/x"}], **REST, "$defs": {"x": obj({"a": INTEGER, "b": {}})}},
            {"allOf": [{"$ref": "#/$defs/x"}], **REST, "$defs": {"x": obj({"a": INTEGER, "b": {}}, "b")}},
        ),
        (
            {"$ref": "#/$defs/x", "description": "new", "$defs": {"x": obj({"next": {"$ref": "#"}})}, **REST},
            {"$ref": "#/$defs/x", "$defs": {"x": obj({"next": {"$ref": "#"}})}, **REST},
        ),
    ],
)
def test_wider_schema_of_2020_is_compatible(reader, writer):
    assert not schema({**D2020, **reader}).cannot_read(schema({**D2020, **writer}))


@pytest.mark.parametrize(
    "keyword", ["prefixItems", "minContains", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"]
)
@pytest.mark.parametrize("value", ["x", ["x"], [5], [[]]])
def test_keyword_of_a_later_draft_may_have_any_value(keyword, value):
    reader, writer = {"contains": INTEGER, keyword: value}, {"contains": INTEGER, keyword: ["y"]}
    assert not schema(reader).cannot_read(schema(writer))
