"""Malformed records in the topic of schemas: the registry skips each with a warning and continues."""

from __future__ import annotations

import json

import pytest

from barnabas.registry.errors import RegistryError
from barnabas.registry.levels import Mode
from barnabas.registry.registration import _id, _version_number
from barnabas.registry.schema import INT_MAX, Schema
from barnabas.registry.state import State

KEY = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
VALUE = {"subject": "s", "version": 1, "id": 1, "schema": '"int"'}


def replay(state, key, value):
    texts = (part if isinstance(part, bytes | None) else json.dumps(part).encode() for part in (key, value))
    state.replay(*texts)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"[" * 200_000, b"{}"),
        (KEY, b"[" * 200_000),
        (KEY, b"{" * 200_000),
        (KEY, b"9" * 5_000),
        (KEY, b"\xff"),
        (KEY, {**VALUE, "id": None}),
        (KEY, {**VALUE, "id": []}),
        (KEY, {**VALUE, "id": 10**30}),
        (KEY, {**VALUE, "id": -1}),
        (KEY, b'{"schema":"x","id":Infinity}'),
        ({**KEY, "version": 10**30}, VALUE),
        ({**KEY, "version": "one"}, VALUE),
        (KEY, {**VALUE, "schema": 5}),
        (KEY, {**VALUE, "schema": "\ud800"}),
        (KEY, {**VALUE, "references": [{"name": "n"}]}),
        (KEY, {**VALUE, "references": 5}),
        ({"keytype": "NOOP", "magic": 0}, {"maxIds": ["x"]}),
        ({"keytype": "NOOP", "magic": 0}, {"maxIds": {".": 10**30}}),
        ({"keytype": "NOOP", "magic": 0}, {"maxIds": {".": None}}),
        ({"keytype": "CONFIG", "subject": "s", "magic": 0}, {"compatibilityLevel": "SIDEWAYS"}),
        ({"keytype": "CONFIG", "subject": ["s"], "magic": 0}, {"compatibilityLevel": "FULL"}),
        ({"keytype": "MODE", "subject": "s", "magic": 0}, {"mode": {}}),
        ({"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0}, {"version": "x"}),
        ({"keytype": ["SCHEMA"]}, VALUE),
        ({"keytype": "EXPORTER"}, VALUE),
        (b"null", b"null"),
        (None, None),
    ],
)
def test_a_record_that_is_none_is_left_out_with_a_line(caplog, key, value):
    state = State()
    replay(state, {**KEY, "subject": "before"}, {**VALUE, "subject": "before"})
    replay(state, key, value)
    assert len(caplog.messages) == 1
    assert len(caplog.messages[0]) < 1_000
    replay(state, {**KEY, "subject": "after"}, {**VALUE, "subject": "after"})
    assert sorted(state.subjects) == ["after", "before"]
    assert state.ids(".").highest == 1


def test_ids_and_versions_end_where_clients_cannot_read_them(caplog):
    state = State()
    replay(state, {**KEY, "version": INT_MAX}, {**VALUE, "version": INT_MAX, "id": INT_MAX})
    assert caplog.messages == []
    other = Schema("AVRO", '"long"')
    with pytest.raises(RegistryError, match="no id is left"):
        _id(state, "s", other, None)
    assert _id(state, "s", Schema("AVRO", '"int"'), None) == INT_MAX, "the same schema has one"
    with pytest.raises(RegistryError, match="no version is left"):
        _version_number(state, "s", {}, Mode.READWRITE)
