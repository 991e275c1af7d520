"""Values that a separate process encodes: it ends for every value."""

from __future__ import annotations

import json
import sys
import threading

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.schemas import alone
from barnabas.client.schemas.registered import AVRO, JSON, Registered, SchemaError
from barnabas.client.schemas.unfit import UnfitError

WITH_LIMITS = pytest.mark.skipif(sys.platform == "win32", reason="Windows bounds no process")


def encode(text, schema, kind=JSON):
    return alone.encode_alone(Registered(7, kind, json.dumps(schema)), "", text, "value")


def test_it_answers_as_the_encoder_does():
    assert encode('{"a": "ü"}', {"type": "object"}) == b"\0\0\0\0\x07" + '{"a":"ü"}'.encode()
    with pytest.raises(UnfitError, match=r"^value.a: 'ü' is not of type 'integer'"):
        encode('{"a": "ü"}', {"properties": {"a": {"type": "integer"}}})
    with pytest.raises(SchemaError, match="schema 7"):
        encode("{}", {"type": "strong"})


@WITH_LIMITS
def test_a_pattern_that_backtracks_is_ended(monkeypatch):
    monkeypatch.setattr(alone, "_CPU_S", 1)
    with pytest.raises(UnfitError, match="takes more than 1 s of processor time"):
        encode(json.dumps("a" * 60), {"pattern": "^(a+)+$b"})


@WITH_LIMITS
def test_defaults_that_hold_each_other_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(alone, "_MEMORY", 100 << 20)
    inner, default = "bytes", "x" * 10_000
    for depth in range(40):
        outer = f"R{depth}"
        twice = [("a", inner), ("b", inner if depth == 0 else f"R{depth - 1}")]
        fields = [{"name": name, "type": type_, "default": default} for name, type_ in twice]
        inner, default = {"type": "record", "name": outer, "fields": fields}, {}
    schema = inner
    with pytest.raises(UnfitError, match="processor time or 100 MiB of memory"):
        encode("{}", schema, AVRO)


def test_no_more_than_two_are_encoded_at_once(monkeypatch):
    monkeypatch.setattr(alone, "_free", threading.BoundedSemaphore(1))
    monkeypatch.setattr(alone, "_TURN_S", 0.01)
    assert alone._free.acquire()
    with pytest.raises(ClientError, match="too many values"):
        encode("{}", {})
