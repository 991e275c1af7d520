"""Confluent's rules for Protobuf, each by its name, and the changes that they allow."""

from __future__ import annotations

from functools import lru_cache

import pytest

from barnabas.registry.protobuf import ProtobufSchema


@lru_cache
def schema(text, *references):
    head = "" if text.startswith(("syntax", "edition")) else 'syntax = "proto3"; '
    return ProtobufSchema(head + text, references)


def conflicts(reader, writer):
    return [(found.kind, found.path) for found in schema(reader).cannot_read(schema(writer))]


def m(body):
    return f"message M {{ {body} }}"


P2 = 'syntax = "proto2"; '


@pytest.mark.parametrize(
    ("reader", "writer", "kind", "place"),
    [
        ("package b;" + m(""), "package a;" + m(""), "PACKAGE_CHANGED", "/"),
        ("", m(""), "MESSAGE_REMOVED", "/M"),
        (m(""), m("message N {}"), "MESSAGE_REMOVED", "/M/N"),
        (m("N a = 1;") + "message N {}", m("int32 a = 1;"), "FIELD_KIND_CHANGED", "/M/1"),
        (m("message N {} N a = 1;"), m("string a = 1; message N {}"), "FIELD_KIND_CHANGED", "/M/1"),
        (m("map<string, int32> a = 1;"), m("repeated string a = 1;"), "FIELD_KIND_CHANGED", "/M/1"),
        (
            P2 + m("message G {} optional G g = 1;"),
            P2 + m("optional group G = 1 {}"),
            "FIELD_KIND_CHANGED",
            "/M/1",
        ),
        (m("string a = 1;"), m("int32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
        (m("sint32 a = 1;"), m("int32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
        (m("fixed32 a = 1;"), m("fixed64 a = 1;"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
        (m("float a = 1;"), m("double a = 1;"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
        (m("float a = 1;"), m("fixed32 a = 1;"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
        (m("map<string, bool> a = 1;"), m("map<string, bytes> a = 1;"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
        (m("map<int32, bool> a = 1;"), m("map<string, bool> a = 1;"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
        (m("repeated int32 a = 1;"), m("optional int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED", "/M/1"),
        (m("bool a = 1;"), m("repeated bool a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED", "/M/1"),
        (
            P2 + m("required int32 a = 1;"),
            P2 + m("optional int32 a = 1;"),
            "FIELD_NUMERIC_LABEL_CHANGED",
            "/M/1",
        ),
        (
            m("message A {} message B {} A a = 1;"),
            m("message A {} message B {} B a = 1;"),
            "FIELD_NAMED_TYPE_CHANGED",
            "/M/1",
        ),
        (P2 + m("required string a = 1;"), P2 + m(""), "REQUIRED_FIELD_ADDED", "/M/1"),
        (P2 + m(""), P2 + m("required string a = 1;"), "REQUIRED_FIELD_REMOVED", "/M/1"),
        (
            'edition = "2023"; message M { string a = 1 [features.field_presence = LEGACY_REQUIRED]; }',
            'edition = "2023"; message M {}',
            "REQUIRED_FIELD_ADDED",
            "/M/1",
        ),
        (
            m("oneof o { string a = 1; }"),
            m("oneof o { string a = 1; string b = 2; }"),
            "ONEOF_FIELD_REMOVED",
            "/M/o/2",
        ),
        (
            m("oneof p { string a = 1; }"),
            m("oneof o { string a = 1; string b = 2; }"),
            "ONEOF_FIELD_REMOVED",
            "/M/o/2",
        ),
        (
            m("string a = 1;"),
            m("oneof o { string a = 1; string b = 2; }"),
            "ONEOF_FIELD_REMOVED",
            "/M/o/2",
        ),
        (
            m("oneof o { string a = 1; string b = 2; }"),
            m("string a = 1; string b = 2;"),
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
            "/M/o",
        ),
        (
            m("oneof o { string a = 1; string b = 2; }"),
            m("optional string a = 1; optional string b = 2;"),
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
            "/M/o",
        ),
        (
            m("oneof o { string a = 1; string b = 2; }"),
            m("string a = 1; oneof o { string b = 2; }"),
            "FIELD_MOVED_TO_EXISTING_ONEOF",
            "/M/o",
        ),
        (
            m("oneof o { string a = 1; string b = 2; }"),
            m("oneof p { string a = 1; } oneof o { string b = 2; }"),
            "FIELD_MOVED_TO_EXISTING_ONEOF",
            "/M/o",
        ),
        # moved as well as changed: what is in it is compared wherever it is
        (m("int32 a = 1;"), m("oneof o { string a = 1; }"), "FIELD_SCALAR_KIND_CHANGED", "/M/1"),
    ],
)
def test_what_cannot_be_read_has_the_name_of_its_rule(reader, writer, kind, place):
    assert conflicts(reader, writer) == [(kind, place)]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (m("") + "message N {}", m("")),
        ("message N {}" + m(""), m("") + "message N {}"),  # moved: an index is one of the writer's schema
        (m("string a = 1; string b = 2;"), m("string a = 1;")),
        (m("string a = 1;"), m("string a = 1; string b = 2;")),
        (m("string other = 1;"), m("string a = 1;")),
        (m("string a = 2;"), m("string a = 1;")),
        (m("uint64 a = 1;"), m("bool a = 1;")),
        (m("int32 a = 1;"), m("int64 a = 1;")),
        (m("sint64 a = 1;"), m("sint32 a = 1;")),
        (m("bytes a = 1;"), m("string a = 1;")),
        (m("sfixed32 a = 1;"), m("fixed32 a = 1;")),
        (m("fixed64 a = 1;"), m("sfixed64 a = 1;")),
        (m("E a = 1;") + "enum E { A = 0; }", m("int32 a = 1;")),
        (m("int32 a = 1;"), m("E a = 1;") + "enum E { A = 0; }"),
        ("enum E { A = 0; }", "enum E { B = 0; C = 1; }"),
        (m("map<string, bytes> a = 1;"), m("map<bytes_, string> a = 1;").replace("bytes_", "string")),
        (m("repeated string a = 1;"), m("string a = 1;")),
        (m("bytes a = 1;"), m("repeated string a = 1;")),
        (m("message N {} repeated N a = 1;"), m("message N {} N a = 1;")),
        (m("optional int32 a = 1;"), m("int32 a = 1;")),
        (m("oneof o { string a = 1; int32 b = 2; }"), m("string a = 1;")),
        (m("oneof o { string a = 1; int32 b = 2; }"), m("optional string a = 1;")),
        (m("oneof o { string a = 1; int32 b = 2; }"), m("oneof o { string a = 1; }")),
        (m("oneof p { string a = 1; int32 b = 2; }"), m("oneof o { string a = 1; int32 b = 2; }")),
        (m("string a = 1; int32 b = 2;"), m("oneof o { string a = 1; int32 b = 2; }")),
        (m("string a = 1; oneof o { int32 b = 2; }"), m("oneof o { string a = 1; int32 b = 2; }")),
        (m(""), m("oneof o { string a = 1; int32 b = 2; }")),
        (m(""), m("optional int32 a = 1;")),
        (m("M next = 1; int64 a = 2;"), m("M next = 1; int32 a = 2;")),
        (m(""), m("") + "service S { rpc R (M) returns (M); }"),
        (m("map<string, N> a = 1;") + "message N { int32 x = 1; }", m("") + "message N { int32 x = 1; }"),
    ],
)
def test_what_the_rules_allow_is_compatible(reader, writer):
    assert conflicts(reader, writer) == []


def test_a_recursive_message_that_changes_inside_is_found_once():
    assert conflicts(m("M next = 1; int32 a = 2;"), m("M next = 1; string a = 2;")) == [
        ("FIELD_SCALAR_KIND_CHANGED", "/M/2")
    ]


def _importing(type_, package="p"):
    part = ("part.proto", f'syntax = "proto3"; package {package}; message Part {{ Inner i = 1; }}'
            f" message Inner {{ {type_} a = 1; }}")  # fmt: skip
    return schema(f'syntax = "proto3"; import "part.proto"; message M {{ {package}.Part part = 1; }}', part)


def test_a_change_of_an_imported_message_is_found():
    found = _importing("int32").cannot_read(_importing("string"))
    assert [(conflict.kind, conflict.path) for conflict in found] == [
        ("FIELD_SCALAR_KIND_CHANGED", "/Inner/1"),
        ("FIELD_NAMED_TYPE_CHANGED", "/Part/1"),
        ("FIELD_NAMED_TYPE_CHANGED", "/M/1"),
    ]
    assert _importing("int64").cannot_read(_importing("int32")) == []


def test_a_message_that_many_ways_lead_to_is_said_once_and_what_uses_it_each_time():
    depth = 40  # 2 to the power of it ways

    def importing(type_):
        used = "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(depth))
        part = f'syntax = "proto3"; {used} message M{depth} {{ {type_} a = 1; }}'
        return schema('syntax = "proto3"; import "part.proto"; message M { M0 m = 1; }', ("part.proto", part))

    found = importing("int32").cannot_read(importing("string"))
    kinds = [conflict.kind for conflict in found]
    assert kinds == ["FIELD_SCALAR_KIND_CHANGED"] + ["FIELD_NAMED_TYPE_CHANGED"] * (2 * depth + 1)


def test_the_package_of_an_import_may_change():
    assert _importing("int32", "q").cannot_read(_importing("int32", "p")) == []
