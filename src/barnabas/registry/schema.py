"""A registered schema: its type, its text, and its references to other registered schemas."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from barnabas.base.types import JsonObject
from barnabas.registry import contracts, limits
from barnabas.registry.errors import Code, InvalidSchemaError, RegistryError
from barnabas.registry.limits import TooLargeError

#: the highest id and version that Confluent's clients can read
INT_MAX = 2**31 - 1

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from one schema to another, which is a version of a subject.

    `name` is the name by which the first schema refers to the other.
    """

    name: str
    subject: str
    version: int

    def to_json(self) -> JsonObject:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, eq=False)
class Schema:
    """A schema without subject, version and id. Schemas with the same fingerprint are the same schema.

    `metadata` and `rule_set` (data contracts) are stored and returned unchanged, because only clients use
    them.
    """

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Any = None
    rule_set: Any = None

    @cached_property
    def fingerprint(self) -> bytes:
        """Return the MD5 digest of the schema (16 bytes), by which the registry finds equal schemas."""
        return hashlib.md5(
            json.dumps([self.type, self.text, self._extras()], sort_keys=True).encode(), usedforsecurity=False
        ).digest()

    @cached_property
    def guid(self) -> str:
        """Return the GUID that Confluent's registry gives the schema too, if it prints the text equally.

        It is the MD5 digest of the text, the references, the metadata and the rule set. Two schemas of
        different types can have the same GUID.
        """
        digest = hashlib.md5(b"".join(self._digested()), usedforsecurity=False).digest()
        return str(uuid.UUID(bytes=digest))

    def to_json(self) -> JsonObject:
        """Return the schema as a JSON object, in the form of REST requests and of the topic's records.

        Empty fields, and the type AVRO, are omitted.
        """
        kind = {} if self.type == AVRO else {"schemaType": self.type}
        return {**kind, **self._extras(), "schema": self.text}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Schema:
        """Parse a JSON object in the form of `to_json`, from a REST request or a record.

        Raises RegistryError if a field has a wrong type, the schema's text is missing or empty, or a
        reference lacks a field.
        """
        text = body.get("schema")
        if text is not None and not isinstance(text, str):
            raise RegistryError(Code.INVALID_SCHEMA, "schema must be a string that holds the schema's text")
        if not text:
            raise InvalidSchemaError("it is empty")
        references = body.get("references") or []
        if not isinstance(references, list):
            raise RegistryError(422, "references must be a list")
        return cls(
            str(body.get("schemaType") or AVRO).upper(),
            text,
            tuple(_reference(item) for item in references),
            body.get("metadata") or None,
            body.get("ruleSet") or None,
        )

    @classmethod
    def from_request(cls, body: Mapping[str, Any]) -> Schema:
        """Parse the body of a request like `from_json`, but check more, because a schema is stored forever.

        Raises:
            RegistryError: as `from_json`; 422, metadata or ruleSet has a wrong form, or the version of a
                reference is too large; SCHEMA_TOO_LARGE, there are too many references.
        """
        for name in ("metadata", "ruleSet"):
            if not isinstance(body.get(name) or {}, dict):
                raise RegistryError(422, f"{name} must be an object")
        properties = (body.get("metadata") or {}).get("properties") or {}
        if not isinstance(properties, dict) or not all(isinstance(v, str) for v in properties.values()):
            raise RegistryError(422, "metadata.properties must be an object of strings")
        references = body.get("references")
        if isinstance(references, list) and len(references) > limits.REFERENCES:
            raise TooLargeError(
                f"it has {len(references):,} references, and the limit is {limits.REFERENCES}"
            )
        schema = cls.from_json(body)
        if any(reference.version > INT_MAX for reference in schema.references):
            raise RegistryError(422, f"the version of a reference is {INT_MAX} at the most")
        return schema

    def _digested(self) -> Iterator[bytes]:
        yield self.text.encode(errors="replace")
        for reference in self.references:
            yield f"{reference.name}{reference.subject}".encode(errors="replace")
            yield (reference.version & 0xFFFF_FFFF).to_bytes(4)
        yield from contracts.digested(self.metadata, self.rule_set)

    def _extras(self) -> JsonObject:
        extras = {
            "references": [reference.to_json() for reference in self.references],
            "metadata": self.metadata,
            "ruleSet": self.rule_set,
        }
        return {name: value for name, value in extras.items() if value}


def _reference(item: Any) -> Reference:
    try:
        name, subject, version = item["name"], item["subject"], item["version"]
    except (TypeError, KeyError):
        raise RegistryError(422, f"a reference has name, subject and version: {item!r}") from None
    if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
        raise RegistryError(422, f"name and subject are strings, version is a whole number: {item!r}")
    return Reference(name, subject, version)
