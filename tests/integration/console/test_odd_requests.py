"""The console answers each malformed request with its mistake, and never with status 500."""

from __future__ import annotations

import itertools
from urllib.parse import quote

import pytest

#: values that some parameter or field cannot have; surrogates cannot be sent in a URL
TEXTS = [
    "",
    " ",
    "1e5",
    "-1",
    "1.5",
    "0x10",
    "٣",
    "1_0",
    "9" * 19,
    "9" * 30,
    "9" * 5000,
    "a,b",
    "0-",
    "-",
    "0:1,",
    "0:" + "9" * 30,
    "9" * 30 + ":0",
    "NaN",
    "true",
    "null",
    "\0",
    "\n",
    "x" * 300,
    "ü",
    "\U0001f642",
    "../..",
    "$[",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "value.a == " + "9" * 400,
    'value.a ~ "(a*)*("',
]
VALUES = [
    *TEXTS,
    None,
    True,
    5,
    -1,
    1e5,
    1e400,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    [],
    [5],
    [-1],
    [2**40],
    ["0"],
    [None],
    [[]],
    [{}],
    [1.5],
    [["a", "b", "c"]],
    [["a", 1]],
    {},
    {"a": 1},
    {"a": {}},
    {"a": "b"},
    "\ud800",
    ["\ud800"],
    {"\ud800": "x"},
    [["\ud800", "x"]],
]
#: the parameters of each page, with what they need to get further
PAGES = {
    "overview": {},
    "topics": {"search": "", "sort": "name", "order": "up", "page": "1", "internal": "no"},
    "topic": {"name": "{topic}", "brief": "no"},
    "records": {
        "topic": "{topic}",
        "partitions": "0",
        "from": "start",
        "at": "0",
        "until": "",
        "next": "",
        "limit": "1",
        "filter": "",
        "format": "auto",
        "markers": "no",
    },
    "record": {"topic": "{topic}", "partition": "0", "offset": "0", "format": "auto"},
    "groups": {"search": "", "sort": "name", "order": "up", "page": "1"},
    "group": {"name": "{group}", "topic": "{topic}", "page": "1"},
    "brokers": {"search": "", "sort": "name", "order": "up", "page": "1"},
    "broker": {"id": "1"},
    "transactions": {"older": "15"},
    "schemas": {"subject": "", "search": "", "version": ""},
    "schema": {"name": "orders-value"},
    "pipelines": {"topic": ""},
    "access": {"topic": ""},
    "clients": {"id": "", "search": ""},
    "download/value": {"topic": "{topic}", "partition": "0", "offset": "0", "part": "value"},
    "download/records": {"topic": "{topic}", "from": "start", "limit": "1", "format": "jsonl", "until": ""},
}
CHANGES = {
    "create-topic": {"topic": "{new}", "partitions": 1, "replicas": 1, "configs": {}},
    "delete-topic": {"topic": "{new}", "confirm": "{new}"},
    "add-partitions": {"topic": "{topic}", "partitions": 1},
    "set-config": {"topic": "{topic}", "setting": "retention.ms", "value": "1000"},
    "produce": {
        "topic": "{topic}",
        "key": "k",
        "value": "v",
        "partition": 0,
        "headers": [],
        "value_schema": "",
        "value_message": "",
        "key_schema": "",
        "key_message": "",
    },
    "redrive": {"topic": "{topic}", "partition": 0, "offset": 0},
    "reset-offsets": {"group": "{group}", "topic": "{topic}", "to": "offset", "at": 0, "partitions": [0]},
}


@pytest.fixture
def names(topic):
    return {"topic": topic.name, "group": f"{topic.name}-readers", "new": f"{topic.name}-new"}


def filled(fields, names):
    return {
        name: value.format(**names) if isinstance(value, str) else value for name, value in fields.items()
    }


def says_what_is_wrong(answer, asked):
    assert answer.status in (200, 400, 403, 404, 409), (asked, answer.status, answer.body)
    if answer.status != 200:
        assert answer.body["error"], asked


@pytest.mark.parametrize("page", PAGES)
def test_a_page_answers_every_parameter(console, names, page):
    good = filled(PAGES[page], names)
    for name, text in itertools.product(good, TEXTS):
        query = {**good, name: text}
        url = "&".join(f"{each}={quote(value, safe='')}" for each, value in query.items())
        answer = console.open(f"{console.url}api/{page}?{url}", Cookie=console.cookie)
        if not page.startswith("download") or answer.status != 200:
            says_what_is_wrong(answer, (page, name, text[:60]))


@pytest.mark.parametrize("begin", ["end", "offset", "time"])
def test_records_are_looked_for_at_every_place(console, names, begin):
    for at in TEXTS:
        url = f"topic={names['topic']}&from={begin}&at={quote(at, safe='')}"
        answer = console.open(f"{console.url}api/records?{url}", Cookie=console.cookie)
        says_what_is_wrong(answer, (begin, at[:60]))


@pytest.mark.parametrize("do", CHANGES)
def test_a_change_answers_every_field(console, names, do):
    good = {"do": do, **filled(CHANGES[do], names)}
    for name, value in itertools.product(good, VALUES):
        wanted = {**good, name: value}
        says_what_is_wrong(console.change(**wanted), (do, name, repr(value)[:60]))


@pytest.mark.parametrize("to", ["earliest", "latest", "offset", "shift", "time"])
def test_offsets_are_reset_to_every_place(console, names, to):
    good = {"do": "reset-offsets", **filled(CHANGES["reset-offsets"], names), "to": to}
    for execute, name, value in itertools.product((False, True), ("at", "partitions"), VALUES):
        says_what_is_wrong(
            console.change(**{**good, name: value, "execute": execute}), (to, name, repr(value)[:60])
        )


@pytest.mark.parametrize(
    ("do", "name"),
    [
        ("create-topic", "topic"),
        ("create-topic", "configs"),
        ("delete-topic", "topic"),
        ("set-config", "setting"),
        ("set-config", "value"),
        ("produce", "key"),
        ("produce", "value"),
        ("produce", "headers"),
        ("reset-offsets", "group"),
        ("reset-offsets", "topic"),
    ],
)
def test_what_a_change_executes_is_checked_before(console, names, do, name):
    """If a value cannot be encoded, the request has no effect except a rejection by the cluster."""
    for value in (
        "",
        "\0",
        "ü",
        "x" * 300,
        "../..",
        5,
        1e400,
        None,
        [5],
        {"a": 1},
        {"a": "b"},
        [["a", 1]],
        "\ud800",
    ):
        wanted = {"do": do, **filled(CHANGES[do], names), name: value, "execute": True}
        if do == "delete-topic":
            wanted["confirm"] = value
        says_what_is_wrong(console.change(**wanted), (do, name, repr(value)[:60]))


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[]", b"5", b"null", b"\xff", b"[" * 100_000, b'{"do":' + b"9" * 5000 + b"}"]
)
def test_a_body_that_is_no_change_is_refused(console, body):
    headers = {
        "Content_Type": "application/json",
        "Origin": console.url.rstrip("/"),
        "Cookie": console.cookie,
    }
    answer = console.open(f"{console.url}api/change", body, **headers)
    assert (answer.status, bool(answer.body["error"])) == (400, True)
