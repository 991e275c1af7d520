"""Serializes data contracts (metadata and rule sets) for GUIDs of schemas, as Confluent's registry does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_METADATA = ("tags", "properties", "sensitive")
_RULE_SET = ("migrationRules", "domainRules", "encodingRules", "enableAt")
_RULE = (
    "name",
    "doc",
    "kind",
    "mode",
    "type",
    "tags",
    "params",
    "expr",
    "onSuccess",
    "onFailure",
    "disabled",
)


def digested(metadata: Any, rule_set: Any) -> Iterator[bytes]:
    """Yield the bytes of a schema's metadata and rule set that its GUID is computed from.

    Both are JSON objects, or None. A byte 1 precedes each of them that is not None. Their texts follow in a
    fixed order. Keys and lists of texts are sorted.
    """
    if metadata is not None:
        yield b"\1"
        yield from _fields(metadata, _METADATA)
    if rule_set is not None:
        yield b"\1"
        for name in _RULE_SET:
            rules = rule_set.get(name) if isinstance(rule_set, dict) else None
            if isinstance(rules, list):
                for rule in rules:
                    yield from _fields(rule, _RULE)
            else:
                yield from _texts(rules)


def _fields(value: Any, names: tuple[str, ...]) -> Iterator[bytes]:
    if isinstance(value, dict):
        for name in names:
            yield from _texts(value.get(name))


def _texts(value: Any) -> Iterator[bytes]:
    if value is True:
        yield b"\1"
    elif isinstance(value, str):
        yield value.encode(errors="replace")
    elif isinstance(value, list):
        for text in sorted(item for item in value if isinstance(item, str)):
            yield text.encode(errors="replace")
    elif isinstance(value, dict):
        for key in sorted(value):
            yield key.encode(errors="replace")
            yield from _texts(value[key])
