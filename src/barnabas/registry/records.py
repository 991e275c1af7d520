"""The records of the topic `_schemas`, in Confluent's format: keys and values are JSON objects.

    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}  {"subject":"s","version":1,"id":1,"schema":...}
    {"keytype":"CONFIG","subject":null,"magic":0}             {"compatibilityLevel":"FULL"}
    {"keytype":"MODE","subject":"s","magic":0}                {"mode":"READONLY"}
    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}      {"subject":"s","version":3}
    {"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}       {"subject":"s"}
    {"keytype":"NOOP","magic":0}                              {"maxIds":{".":7}}

A NULL value deletes the key's last value. DELETE_SUBJECT softly deletes the versions up to its version.
CLEAR_SUBJECT permanently deletes the softly deleted versions; Barnabas reads such records, but writes none. A
NOOP has the highest id of each context. Without a NOOP, permanent deletes and compaction would lose the
highest id, and the registry would assign this id again. Confluent's registry does not read a NOOP's value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.base.types import JsonObject
from barnabas.registry.document import encoded

_MAGIC = {"SCHEMA": 1}


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a record. If `subject` is None, the record applies to the whole registry.

    `version` is None except for records of one version (``keytype`` SCHEMA).
    """

    keytype: str
    subject: str | None = None
    version: int | None = None

    def encode(self) -> bytes:
        fields: JsonObject = {"keytype": self.keytype, "subject": self.subject, "version": self.version}
        if self.version is None:
            del fields["version"]
        if self.keytype == "NOOP":
            del fields["subject"]
        fields["magic"] = _MAGIC.get(self.keytype, 0)
        return _dump(fields)


@dataclass(frozen=True, slots=True)
class Record:
    """A key with its value. The value of a tombstone is None."""

    key: Key
    value: Mapping[str, Any] | None

    def encode(self) -> tuple[bytes, bytes | None]:
        return self.key.encode(), None if self.value is None else _dump(self.value)


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Decode the key and the value of a record. Raises ValueError if the record is not from a registry."""
    fields = json.loads(key or b"null")
    contents = None if value is None else json.loads(value)
    if not isinstance(fields, dict) or not isinstance(fields.get("keytype"), str):
        raise ValueError(f"not a key of a registry's: {key!r}")
    if contents is not None and not isinstance(contents, dict):
        raise ValueError(f"not a value of a registry's: {value!r}")
    for part, decoded in ((key, fields), (value, contents)):
        if (
            part is not None and b"\\u" in part
        ):  # an escape may be half of a character, which no answer can have
            encoded(json.dumps(decoded, ensure_ascii=False))
    return Record(Key(fields["keytype"], fields.get("subject"), fields.get("version")), contents)


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
