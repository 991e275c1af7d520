"""`barnabas produce` with registered schemas."""

from __future__ import annotations

import json

import pytest
from tests.schema_registry import register, running_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long", "default": 0}],
}


@pytest.fixture(scope="module")
def registry(barnabas_broker):
    with running_registry(barnabas_broker.bootstrap_servers, "_cli-schemas") as server:
        yield server.url


@pytest.fixture(scope="module")
def ids(registry):
    return {
        "orders-value": register(registry, "orders-value", ORDER),
        "orders-key": register(registry, "orders-key", {"type": "integer"}, schemaType="JSON"),
    }


@pytest.fixture
def produce(barnabas, barnabas_broker, barnabas_topic, registry, ids):
    """``produce(*options, stdin, n)``: run `produce`, and return the values and keys of the topic's first `n`
    records.
    """

    def run(*options, stdin, n=1):
        barnabas("produce", barnabas_topic, "--registry", registry, *options, stdin=stdin)
        return [(r.value, r.key) for r in barnabas_broker.consume(barnabas_topic, n)]

    return run


def prefix(id_):
    return b"\0" + id_.to_bytes(4, "big")


def test_lines_are_json_for_the_schema(produce, ids):
    found = produce("--value-schema", "orders-value", stdin='{"id": "a"}\n{"id": "b", "n": -1}\r\n', n=2)
    schema = prefix(ids["orders-value"])
    assert found == [(schema + b"\x02a\x00", None), (schema + b"\x02b\x01", None)]


def test_keys_have_a_schema_of_their_own(produce, ids):
    options = ("--value-schema", "orders-value/1", "--key-schema", ids["orders-key"])
    encoded = (prefix(ids["orders-value"]) + b"\x02a\x00", prefix(ids["orders-key"]) + b"5")
    assert produce(*options, "--key-separator", "|", stdin='5|{"id": "a"}\n') == [encoded]
    assert produce(*options, "--key", "5", stdin='{"id": "a"}\n', n=2)[1:] == [encoded]
    line = json.dumps({"key": 5, "value": {"id": "a"}})
    assert produce(*options, "--json", stdin=line, n=3)[2:] == [encoded]
    pretty = json.dumps({"id": "a"}, indent=2)
    assert produce(*options, "--key", "5", "--raw", stdin=pretty, n=4)[3:] == [encoded]


def test_null_stays_null(produce):
    options = ("--value-schema", "orders-value", "--null-as", "NULL", "--key", "k")
    assert produce(*options, stdin="NULL\n") == [(None, b"k")]
    line = '{"key": "k", "value": null}'
    assert produce("--value-schema", "orders-value", "--json", stdin=line, n=2)[1:] == [(None, b"k")]


@pytest.mark.parametrize(
    ("options", "stdin", "says"),
    [
        ((), '{"id": "a"}\n{"id": 5}\n', "line 2: value.id: 5 does not fit; write a string"),
        ((), "hello\n", "line 1: value: it is not JSON"),
        (("--json",), '{"value": {"id": "a", "m": 1}}', "line 1: value.m: Order has no such field"),
        (("--raw",), "[]", "the input: value: [] does not fit; write an object (Order)"),
        (("--key-schema", "orders-key", "--key", "x"), "", "key: it is not JSON"),
        (
            ("--key-schema", "orders-key", "--json"),
            '{"value": {"id": ""}, "key": "x"}',
            "line 1: key: 'x' is not",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named_by_line_and_path(
    barnabas, barnabas_topic, registry, ids, options, stdin, says
):
    named = ("--registry", registry, "--value-schema", "orders-value")
    assert says in barnabas("produce", barnabas_topic, *named, *options, stdin=stdin, code=1).err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--value-schema", "orders-value"), "--value-schema needs --registry"),
        (("--registry", "URL"), "--registry needs --value-schema or --key-schema"),
        (("--registry-login",), "--registry needs --value-schema or --key-schema"),
        (("--value-message", "A"), "--value-message needs --value-schema"),
        (("--registry", "URL", "--key-schema", "orders-key"), "--key-schema needs keys"),
    ],
    ids=str,
)
def test_options_that_need_others_say_so(barnabas, barnabas_topic, options, says):
    assert says in barnabas("produce", barnabas_topic, *options, stdin="", code=2).err


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("nowhere", "nowhere"),
        ("orders-value/9", "HTTP 404"),
        ("", "write an id, SUBJECT/VERSION, or SUBJECT"),
        ("orders-value", "which has no messages"),
    ],
)
def test_a_schema_that_is_not_there_is_an_error_in_one_line(
    barnabas, barnabas_topic, registry, ids, schema, says
):
    message = ("--value-message", "Order") if schema == "orders-value" else ()
    options = ("--registry", registry, "--value-schema", schema, *message)
    (line,) = barnabas("produce", barnabas_topic, *options, stdin="", code=1).err.splitlines()
    assert says in line
