"""Malformed records in the topic of schemas: the registry skips each with a warning and continues."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from barnabas.registry.errors import RegistryError
from barnabas.registry.levels import Mode
from barnabas.registry.queries import uses_of_guid
from barnabas.registry.registration import _id, _version_number
from barnabas.registry.schema import AVRO, INT_MAX, Schema
from barnabas.registry.state import State
from barnabas.registry.worker import Source, canonical

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


@pytest.mark.parametrize(
    "contract",
    [
        {"metadata": ["x"], "ruleSet": [1]},
        {
            "metadata": {"properties": "p", "tags": {"t": 1}},
            "ruleSet": {"domainRules": ["r", {"name": {}}], "enableAt": []},
        },
        {"references": [{"name": "n", "subject": "s", "version": 2**31}]},
    ],
)
def test_contract_of_any_form_in_the_topic_has_a_guid(contract):
    state = State()
    replay(state, KEY, {**VALUE, **contract})
    schema = state.version("s", 1).schema
    assert [version.schema for version in uses_of_guid(state, schema.guid)] == [schema]


def test_guid_of_an_earlier_version_of_the_registry_is_found():
    state = State()
    replay(state, KEY, VALUE)
    fingerprint = state.version("s", 1).schema.fingerprint
    assert uses_of_guid(state, str(UUID(bytes=fingerprint)))[0].id == 1


def test_default_that_an_earlier_version_of_the_registry_stored_is_checked_only_in_new_schemas():
    inner = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "R", "fields": [{"name": "a", "type": inner, "default": {}}]}
    source = Source(AVRO, json.dumps(outer))
    assert canonical(source)
    with pytest.raises(RegistryError, match="default of field a"):
        canonical(source._replace(is_new=True))
