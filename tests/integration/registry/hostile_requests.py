"""Hostile requests to a registry: each has a body of up to the largest size, and
costs as much as possible.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorProto

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
MB = 1 << 20


class Asked(NamedTuple):
    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = {}  # noqa: RUF012


class Case(NamedTuple):
    """Requests to send one after the other. Only the last one is hostile. They are made when needed."""

    name: str
    asked: Callable[[], list[Asked]]


def record(fields: list[Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields, **more}


def fields(count: int, kind: Any = "int", **more: Any) -> list[Any]:
    return [{"name": f"f{number}", "type": kind, **more} for number in range(count)]


def nested(start: str, end: str, count: int, inside: str) -> str:
    return start * count + inside + end * count


def unions(kind: str, count: int = 800) -> list[Any]:
    return [record(fields(1, kind), f"R{number}") for number in range(count)]


def fans(how: str, leaf: Any, levels: int = 13, width: int = 10) -> dict[str, Any]:
    """Return definitions, each with many references to the next one."""
    made: dict[str, Any] = {f"d{levels}": leaf}
    for level in range(levels):
        references = [{"$ref": f"#/definitions/d{level + 1}"} for _ in range(width)]
        if how == "properties":
            made[f"d{level}"] = {"properties": {f"p{n}": one for n, one in enumerate(references)}}
        else:
            made[f"d{level}"] = {how: references}
    return {"$ref": "#/definitions/d0", "definitions": made}


def both_fans(how: str, before: str, after: str) -> tuple[Any, Any]:
    return fans(how, {"type": before}), fans(how, {"type": after})


def descriptor(depth: int) -> str:
    file = FileDescriptorProto(name="f", syntax="proto3")
    message = file.message_type.add(name="M")
    for _ in range(depth):
        message = message.nested_type.add(name="M")
    return base64.b64encode(file.SerializeToString()).decode()


def proto(body: str) -> str:
    return f'syntax = "proto3"; {body}'


#: schemas that are bad on their own
SCHEMAS: dict[str, tuple[str, Callable[[], Any]]] = {
    "avro 100,000 fields": (AVRO, lambda: record(fields(100_000))),
    "avro 24,000 fields": (AVRO, lambda: record(fields(24_000))),
    "avro a field twice among 20,000": (AVRO, lambda: record([*fields(20_000), *fields(1)])),
    "avro 800 records in a union": (AVRO, lambda: unions("int")),
    "avro 10,000 records in a union": (AVRO, lambda: unions("int", 10_000)),
    "avro nested 200,000 times": (AVRO, lambda: "[" * 200_000),
    "avro nested 190 times": (AVRO, lambda: nested('{"type":"array","items":', "}", 190, '"int"')),
    "avro type of type": (AVRO, lambda: nested('{"type":', "}", 190, '"int"')),
    "avro 80,000 symbols": (
        AVRO,
        lambda: {"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(80_000)]},
    ),
    "avro 80,000 aliases": (AVRO, lambda: record([], aliases=[f"a{n}" for n in range(80_000)])),
    "avro a name of 900 KB": (AVRO, lambda: record([], name="N" * 900_000)),
    "avro a namespace of 450,000 parts": (AVRO, lambda: record([], name="n." * 450_000 + "n")),
    "avro no type, 900 KB": (AVRO, lambda: {"x": "y" * 900_000}),
    "avro an unknown name of 900 KB": (AVRO, lambda: "x" * 900_000),
    "avro 900 KB of blanks": (AVRO, lambda: " " * 900_000),
    "avro a million empty arrays": (AVRO, lambda: "[" + "[]," * 300_000 + "[]]"),
    "avro a default of 90,000 numbers": (
        AVRO,
        lambda: record(fields(1, {"type": "array", "items": "string"}, default=[1] * 90_000)),
    ),
    "avro a fixed of 10^30": (AVRO, lambda: {"type": "fixed", "name": "F", "size": 10**30}),
    "avro a decimal of 10^30": (
        AVRO,
        lambda: {"type": "bytes", "logicalType": "decimal", "precision": 10**30, "scale": 10**29},
    ),
    "avro a number of 500,000 digits": (AVRO, lambda: '{"type":"int","x":' + "9" * 500_000 + "}"),
    "avro a fraction of 900,000 digits": (AVRO, lambda: '{"type":"int","x":0.' + "9" * 900_000 + "}"),
    "avro 1e999": (AVRO, lambda: '{"type":"int","x":1e999}'),
    "avro NaN": (AVRO, lambda: '{"type":"int","x":NaN}'),
    "avro a lone surrogate": (AVRO, lambda: '{"type":"int","doc":"\\ud800"}'),
    "avro a lone surrogate as a symbol": (AVRO, lambda: '{"type":"enum","name":"E","symbols":["\\udfff"]}'),
    "avro a key 50,000 times": (AVRO, lambda: '{"type":"int",' + '"x":1,' * 50_000 + '"x":2}'),
    "json 13 definitions by properties": (JSON, lambda: fans("properties", {"type": "integer"})),
    "json 18,000 properties": (
        JSON,
        lambda: {"properties": {f"p{number}": {"type": "string", "title": "t"} for number in range(18_000)}},
    ),
    "json 20,000 references": (
        JSON,
        lambda: {
            "properties": {f"p{n}": {"$ref": "#/definitions/a"} for n in range(20_000)},
            "definitions": {"a": {}},
        },
    ),
    "json a chain of 9,000 references": (
        JSON,
        lambda: {
            "definitions": {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(9_000)}
            | {"d9000": {}}
        },
    ),
    "json 20,000 ids": (
        JSON,
        lambda: {"definitions": {f"d{n}": {"$id": f"http://x/{n}"} for n in range(20_000)}},
    ),
    "json an id that is no URI": (JSON, lambda: {"$id": "http://[", "$ref": "x"}),
    "json a reference of 900 KB": (JSON, lambda: {"$ref": "#/" + "a/" * 450_000}),
    "json a reference to no schema": (JSON, lambda: {"$ref": "#/title", "title": "t"}),
    "json a schema of its own": (JSON, lambda: {"$schema": "http://nowhere/x", "$ref": "http://nowhere/y"}),
    "json $schema is a list": (JSON, lambda: {"$schema": []}),
    "json nested 190 times": (JSON, lambda: nested('{"not":', "}", 190, "{}")),
    "json nested 20,000 times": (JSON, lambda: nested('{"not":', "}", 20_000, "{}")),
    "json 90,000 wrong types": (JSON, lambda: {"anyOf": [{"type": "x"}] * 30_000}),
    "json 80,000 required": (JSON, lambda: {"required": [f"p{number}" for number in range(80_000)]}),
    "json the same required twice": (JSON, lambda: {"required": [str(n // 2) for n in range(20_000)]}),
    "json lists that are not unique": (JSON, lambda: {"required": [[number] for number in range(30_000)]}),
    "json an enum of 40,000 lists": (JSON, lambda: {"enum": [[number] for number in range(40_000)]}),
    "json a pattern that is too often": (JSON, lambda: {"pattern": "a{99999999999}"}),
    "json a pattern of 900 KB": (JSON, lambda: {"pattern": "(" * 900_000}),
    "json a pattern of 100,000 choices": (
        JSON,
        lambda: {"pattern": "|".join(f"a{n}" for n in range(100_000))},
    ),
    "json 10,000 patterns": (
        JSON,
        lambda: {"patternProperties": {f"({number}+)+$": {} for number in range(10_000)}},
    ),
    "json numbers of 4,000 digits": (JSON, lambda: {"multipleOf": 10**4000, "minimum": -(10**4000)}),
    "protobuf 15,000 fields": (
        PROTOBUF,
        lambda: proto("message M {" + "".join(f"int32 a{n}={n + 1};" for n in range(15_000)) + "}"),
    ),
    "protobuf 30,000 messages": (
        PROTOBUF,
        lambda: proto("".join(f"message M{n}{{}}" for n in range(30_000))),
    ),
    "protobuf nested 1,000 times": (PROTOBUF, lambda: proto(nested("message M{", "}", 1_000, ""))),
    "protobuf a package of 200,000 parts": (PROTOBUF, lambda: proto("package " + "a." * 200_000 + "a;")),
    "protobuf 900 KB of comments": (PROTOBUF, lambda: proto("/*" + "x" * 900_000 + "*/")),
    "protobuf 900 KB of mistakes": (PROTOBUF, lambda: "x " * 450_000),
    "protobuf 900 KB of base64": (PROTOBUF, lambda: "QUFB" * 225_000),
    "protobuf a descriptor nested 90 times": (PROTOBUF, lambda: descriptor(90)),
    "protobuf a descriptor nested 2,000 times": (PROTOBUF, lambda: descriptor(2_000)),
    "protobuf an option of 900 KB": (PROTOBUF, lambda: proto(f'option java_package = "{"x" * 900_000}";')),
    "protobuf 20,000 values of an enum": (
        PROTOBUF,
        lambda: proto("enum E {" + "".join(f"V{number}={number};" for number in range(20_000)) + "}"),
    ),
    "protobuf 20,000 imports": (PROTOBUF, lambda: proto("".join(f'import "x{n}";' for n in range(20_000)))),
    "protobuf a lone surrogate": (PROTOBUF, lambda: proto('option java_package = "\ud800";')),
    "no type": ("X" * 100_000, lambda: "x"),
}

_EVIL = {"type": "object", "additionalProperties": False}

#: a schema, and the one after it, which is compared with it
PAIRS: dict[str, tuple[str, Callable[[], tuple[Any, Any]]]] = {
    "avro 3,000 fields": (AVRO, lambda: (record(fields(3_000)), record(fields(3_000, "string", default="")))),
    "avro 3,000 fields that match": (
        AVRO,
        lambda: (record(fields(3_000)), record(fields(3_000, "long", default=0))),
    ),
    "avro 3,000 fields and aliases": (
        AVRO,
        lambda: (
            record(fields(3_000)),
            record([{"name": f"g{n}", "type": "int", "aliases": [f"f{n}"]} for n in range(3_000)]),
        ),
    ),
    "avro 20,000 fields that are gone": (
        AVRO,
        lambda: (
            record(fields(20_000)),
            record([{"name": f"g{number}", "type": "int"} for number in range(20_000)]),
        ),
    ),
    "avro a union of 800": (AVRO, lambda: (unions("int"), unions("string"))),
    "avro a union of 800 that matches": (AVRO, lambda: (unions("int"), unions("long"))),
    "avro 30,000 symbols": (
        AVRO,
        lambda: (
            {"type": "enum", "name": "E", "symbols": [f"s{number}" for number in range(30_000)]},
            {"type": "enum", "name": "E", "symbols": [f"t{number}" for number in range(30_000)]},
        ),
    ),
    **{
        f"json 13 definitions by {how}, {word}": (
            JSON,
            partial(both_fans, how, before, after),
        )
        for how in ("properties", "anyOf", "oneOf", "allOf")
        for word, before, after in (("other", "string", "integer"), ("wider", "integer", "number"))
    },
    "json allOf of itself": (
        JSON,
        lambda: (
            {"allOf": [{"$ref": "#"}, {"type": "integer"}]},
            {"allOf": [{"$ref": "#"}, {"type": "string"}]},
        ),
    ),
    "json anyOf of 300": (
        JSON,
        lambda: (
            {"anyOf": [{"properties": {f"p{n}": {"type": "string"}}, **_EVIL} for n in range(300)]},
            {"anyOf": [{"properties": {f"p{n}": {"type": "integer"}}, **_EVIL} for n in range(300)]},
        ),
    ),
    "json a regular expression that explodes": (
        JSON,
        lambda: (
            {**_EVIL, "properties": {"a" * 40 + "b": {"type": "integer"}}},
            {**_EVIL, "patternProperties": {"(a+)+$": {"type": "string"}}},
        ),
    ),
    "json a regular expression that only re explodes on": (
        JSON,
        lambda: (
            {**_EVIL, "properties": {"a" * 40 + "b": {"type": "integer"}}},
            {**_EVIL, "patternProperties": {"(?=a)(a+)+$": {"type": "string"}}},
        ),
    ),
    "json 3,000 patterns and properties": (
        JSON,
        lambda: (
            {**_EVIL, "properties": {f"p{number}": {} for number in range(3_000)}},
            {**_EVIL, "patternProperties": {f"^q{number}": {} for number in range(3_000)}},
        ),
    ),
    "json 30,000 required": (
        JSON,
        lambda: (
            {"required": [f"p{number}" for number in range(30_000)]},
            {"required": [f"q{number}" for number in range(30_000)]},
        ),
    ),
    "json a step of 10^400": (JSON, lambda: ({"multipleOf": 10**400}, {"multipleOf": 0.5})),
    "json a reference to a number": (
        JSON,
        lambda: (
            {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"type": "string"}}},
            {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"$ref": 5}}},
        ),
    ),
    "json a reference to a title": (JSON, lambda: ({"type": "string"}, {"$ref": "#/title", "title": "t"})),
    "protobuf 5,000 fields": (
        PROTOBUF,
        lambda: (
            proto("message M {" + "".join(f"int32 a{n}={n + 1};" for n in range(5_000)) + "}"),
            proto("message M {" + "".join(f"string a{n}={n + 1};" for n in range(5_000)) + "}"),
        ),
    ),
    "another type": (AVRO, lambda: ("int", None)),
}


def text_of(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def body(type_: str, schema: Any, **more: Any) -> bytes:
    return json.dumps({"schemaType": type_, "schema": text_of(schema), **more}).encode()


BODIES: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "blanks": lambda: b" " * 3 * MB,
    "too large": lambda: b" " * 5 * MB,
    "a string of 3 MB": lambda: json.dumps({"schema": "x" * 3 * MB}).encode(),
    "nested": lambda: b"[" * 3 * MB,
    "nested in an object": lambda: b'{"metadata":' + b"[" * 900 + b"]" * 900 + b"}",
    "a million arrays": lambda: b'{"metadata":{"properties":[' + b"[]," * MB + b"[]]}}",
    "15,000 arrays": lambda: b'{"metadata":{"properties":[' + b"[]," * 15_000 + b"[]]}}",
    "a million keys": lambda: b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}",
    "a key again and again": lambda: b"{" + b'"schema":"1",' * 200_000 + b'"schema":"1"}',
    "a number of a million digits": lambda: b'{"id":' + b"9" * MB + b"}",
    "a number of 4,000 digits": lambda: b'{"schema":"\\"int\\"","id":' + b"9" * 4_000 + b"}",
    "an id of 10^30": lambda: body(AVRO, '"int"', id=10**30),
    "a version of 10^30": lambda: body(AVRO, '"int"', version=10**30),
    "NaN": lambda: b'{"schema":"\\"int\\"","metadata":{"properties":{"x":NaN}}}',
    "infinity": lambda: b'{"schema":"\\"int\\"","ruleSet":{"x":1e999}}',
    "a lone surrogate": lambda: b'{"schema":"\\"int\\"","metadata":{"properties":{"x":"\\ud800"}}}',
    "a lone surrogate as a schema": lambda: b'{"schema":"\\ud800"}',
    "bytes that are not UTF-8": lambda: b'{"schema":"\xff\xfe"}',
    "UTF-16": lambda: json.dumps({"schema": '"int"'}).encode("utf-16"),
    "metadata is text": lambda: body(AVRO, '"int"', metadata="x"),
    "properties are a list": lambda: body(AVRO, '"int"', metadata={"properties": ["x"]}),
    "rules are a list": lambda: body(AVRO, '"int"', ruleSet=["x"] * 9_000),
    "a type that is an object": lambda: body(AVRO, '"int"')[:-1] + b',"schemaType":{"a":[1,2]}}',
    "3,000 references": lambda: body(
        AVRO, '"int"', references=[{"name": "n", "subject": "s", "version": 1}] * 3_000
    ),
    "100,000 references": lambda: body(
        AVRO, '"int"', references=[{"name": "n", "subject": "s", "version": 1}] * 30_000
    ),
    "a reference of 900 KB": lambda: body(
        AVRO, '"int"', references=[{"name": "n" * 900_000, "subject": "s" * 900_000, "version": 1}]
    ),
    "a reference to version 10^30": lambda: body(
        AVRO, '"int"', references=[{"name": "n", "subject": "s", "version": 10**30}]
    ),
    "references that are no objects": lambda: body(AVRO, '"int"', references=[["x"], 5, None]),
    "levels that are none": lambda: json.dumps({"compatibility": [["x"]] * 100, "mode": {"a": 1}}).encode(),
    "9,000 settings": lambda: json.dumps({f"setting{number}": 1 for number in range(9_000)}).encode(),
}

#: where bodies go
TAKING = (
    ("POST", "/subjects/b/versions"),
    ("POST", "/subjects/s"),
    ("POST", "/compatibility/subjects/s/versions/latest?verbose=true"),
    ("PUT", "/config/b"),
    ("PUT", "/mode/b"),
)

_BIG, _DIGITS = "1" + "0" * 30, "9" * 5_000

PATHS: dict[str, tuple[str, str]] = {
    "a subject of 64 KB": ("GET", "/subjects/" + "s" * 64 * 1024 + "/versions"),
    "a subject of 7 KB": ("GET", "/subjects/" + "s" * 7_000 + "/versions"),
    "a subject of escapes": ("GET", "/subjects/" + "%ff" * 2_000 + "/versions"),
    "a subject of half a pair": ("GET", "/subjects/%ed%a0%80/versions"),
    "a subject of colons": ("GET", "/subjects/:." + ":" * 7_000 + "/versions"),
    "an id of 10^30": ("GET", f"/schemas/ids/{_BIG}"),
    "an id of 5,000 digits": ("GET", f"/schemas/ids/{_DIGITS}/schema"),
    "a version of 10^30": ("GET", f"/subjects/s/versions/{_BIG}"),
    "a version of 5,000 digits": ("GET", f"/subjects/s/versions/{_DIGITS}"),
    "a version to delete of 5,000 digits": ("DELETE", f"/subjects/s/versions/{_DIGITS}"),
    "an offset of 10^30": ("GET", f"/subjects?offset={_BIG}&limit={_BIG}"),
    "an offset of 5,000 digits": ("GET", f"/subjects?offset={_DIGITS}"),
    "a limit of -10^30": ("GET", f"/schemas?limit=-{_BIG}"),
    "an offset that is text": ("GET", "/contexts?offset=" + "x" * 5_000),
    "a guid of 7 KB": ("GET", "/schemas/guids/" + "f" * 7_000),
    "3,000 parameters": ("GET", "/subjects/s/metadata?" + "&".join(["key=a", "value=b"] * 400)),
    "a prefix of 7 KB": ("GET", "/subjects?subjectPrefix=" + ":" * 7_000),
    "all schemas": ("GET", "/schemas?deleted=true"),
    "all subjects": ("GET", "/subjects?deleted=true"),
    "all schemas, serialized": ("GET", "/schemas?format=serialized&subjectPrefix=h-protobuf"),
    "referencedby": ("GET", "/subjects/fan-0-0/versions/1/referencedby"),
    "metadata of a subject whose metadata is none": ("GET", "/subjects/odd/metadata?key=a&value=b"),
    "delete what is referred to": ("DELETE", "/subjects/fan-1-0"),
}


def cases() -> Iterator[Case]:
    """Yield all cases."""
    for name in SCHEMAS:
        subject = f"/subjects/h-{name.split()[0]}"
        yield Case(f"register {name}", partial(_schema, f"{subject}/versions", name))
        yield Case(f"normalize {name}", partial(_schema, f"{subject}?normalize=true", name))
        yield Case(f"compare {name}", partial(_schema, "/compatibility/subjects/s/versions", name))
    for name in PAIRS:
        yield Case(f"compare {name}", partial(_pair, name))
    for name, made in BODIES.items():
        for method, path in TAKING:
            yield Case(f"{method} {path} with {name}", partial(_body, method, path, made))
    yield Case("a bomb", _bomb)
    for name, (method, path) in PATHS.items():
        yield Case(name, partial(_get, method, path))
    yield Case("700 kinds of answers", _accept)
    for level in ("fan-12-0", "deep-499", "deep-599", "wide", "round-0"):
        for path in ("/subjects/r/versions", "/compatibility/subjects/s/versions"):
            yield Case(f"{path} with references to {level}", partial(_referring, path, level))
    yield Case("300 versions, each compared", _many)


def _schema(path: str, name: str) -> list[Asked]:
    type_, make = SCHEMAS[name]
    return [Asked("POST", path, body(type_, make()))]


def _pair(name: str) -> list[Asked]:
    type_, make = PAIRS[name]
    old, new = make()
    subject = "p-" + name.replace(" ", "-").replace(",", "")
    then = body(JSON, {}) if new is None else body(type_, new)
    return [
        Asked("PUT", f"/config/{subject}", b'{"compatibility":"FULL_TRANSITIVE"}'),
        Asked("POST", f"/subjects/{subject}/versions", body(type_, old)),
        Asked("POST", f"/compatibility/subjects/{subject}/versions?verbose=true", then),
        Asked("POST", f"/subjects/{subject}/versions", then),
    ]


def _body(method: str, path: str, made: Callable[[], bytes]) -> list[Asked]:
    return [Asked(method, path, made())]


def _bomb() -> list[Asked]:
    bomb = gzip.compress(b" " * 300 * MB)
    return [Asked("POST", "/subjects/b/versions", bomb, {"Content-Encoding": "gzip"})]


def _get(method: str, path: str) -> list[Asked]:
    return [Asked(method, path)]


def _accept() -> list[Asked]:
    return [Asked("GET", "/subjects", None, {"Accept": ",".join(["x/y;q=0.1"] * 700)})]


def _referring(path: str, level: str) -> list[Asked]:
    reference = [{"name": "X", "subject": level, "version": 1}]
    return [Asked("POST", path, body(AVRO, record(fields(1)), references=reference))]


def _many() -> list[Asked]:
    path = "/compatibility/subjects/many/versions"
    return [Asked("POST", path, body(AVRO, record(fields(1, "string"))))]


def world() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield keys and values of the topic to which the requests refer."""
    number = 0

    def version(subject: str, count: int, text: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        nonlocal number
        number += 1
        key = {"keytype": "SCHEMA", "subject": subject, "version": count, "magic": 1}
        value = {"subject": subject, "version": count, "id": number, "schema": text, "deleted": False, **more}
        return key, value

    def refers(*referred: tuple[str, str]) -> list[dict[str, Any]]:
        return [{"name": name, "subject": subject, "version": 1} for name, subject in referred]

    yield version("s", 1, text_of(record(fields(1))))
    yield version("odd", 1, '"long"', metadata="x")
    for level in range(13):
        for n in range(10):
            below = refers(*((f"F{level - 1}{m}", f"fan-{level - 1}-{m}") for m in range(10 if level else 0)))
            yield version(f"fan-{level}-{n}", 1, text_of(record([], f"F{level}x{n}")), references=below)
    for depth in range(600):
        below = refers(*([(f"D{depth - 1}", f"deep-{depth - 1}")] if depth else []))
        yield version(f"deep-{depth}", 1, text_of(record([], f"D{depth}")), references=below)
    yield version("wide", 1, '"string"', references=refers(*((f"D{n}", f"deep-{n}") for n in range(600))))
    for n in range(3):
        yield version(
            f"round-{n}", 1, text_of(record([], f"C{n}")), references=refers(("x", f"round-{(n + 1) % 3}"))
        )
    yield {"keytype": "CONFIG", "subject": "many", "magic": 0}, {"compatibilityLevel": "FULL_TRANSITIVE"}
    for n in range(300):
        yield version("many", n + 1, text_of(record(fields(1, "string"), doc=str(n))))
    for n in range(2_000):
        yield version(f"one-{n}", 1, text_of({"type": "int", "n": n}))
