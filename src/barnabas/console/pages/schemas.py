"""The page of the schema registry: subjects, their versions, and the difference between two versions."""

from __future__ import annotations

import difflib
import json
from typing import Any

from barnabas.client.schemas.codec import codec_of
from barnabas.client.schemas.protobuf import ProtobufSchema
from barnabas.client.schemas.registered import PROTOBUF, find
from barnabas.client.schemas.registry import RegistryRefused, subject_path
from barnabas.console.pages.query import Query, QueryError, whole
from barnabas.console.schemas import LEVELS, Schemas, level_of

_MAX_ROWS = 500
NO_REGISTRY = "no schema registry: name one with --registry URL"


def schemas(registry: Schemas | None, query: Query) -> dict[str, Any]:
    """Return the data of the schemas page: all subjects, or one subject.

    Query: ``search`` selects subjects; ``subject`` and ``version`` select one subject and its version. If
    `registry` is None, ``problem`` in the result says so.

    Raises:
        QueryError: there is no such subject or version. RegistryError: the registry does not answer.
    """
    if registry is None:
        return {"problem": NO_REGISTRY, "subjects": []}
    subject = query.get("subject", "")
    if not subject:
        search = query.get("search", "").lower()
        known = set(registry.get("/subjects"))
        subjects = [name for name in known if search in name.lower()]
        deleted = [name for name in registry.get("/subjects?deleted=true") if name not in known]
        return {
            "problem": None,
            "subjects": sorted(subjects)[:_MAX_ROWS],
            "count": len(subjects),
            "deleted": sorted(name for name in deleted if search in name.lower())[:_MAX_ROWS],
        }
    address = f"/subjects/{subject_path(subject)}/versions"
    every = registry.get(f"{address}?deleted=true")
    versions = _live(registry, address)
    if not every:
        raise QueryError(f"subject={subject[:40]}: there is no such subject")
    version = whole(query, "version", (versions or every)[-1], 1)
    if version not in every:
        raise QueryError(f"version={version}: {subject[:40]} has {', '.join(map(str, every[-20:]))}")
    shown = registry.get(f"{address}/{version}?deleted=true")
    before = [older for older in every if older < version]
    text = _lines(shown)
    older = _lines(registry.get(f"{address}/{before[-1]}?deleted=true")) if before else []
    return {
        "problem": None,
        "subject": subject,
        "versions": versions,
        "deleted": [number for number in every if number not in versions],
        "version": version,
        "id": shown["id"],
        "type": shown.get("schemaType", "AVRO"),
        "references": shown.get("references", []),
        "compatibility": level_of(registry, subject, "?defaultToGlobal=true"),
        "own_level": level_of(registry, subject),
        "levels": LEVELS,
        "text": "\n".join(text),
        "changes": list(difflib.unified_diff(older, text, lineterm="", n=2))[2:] if before else [],
    }


def schema(registry: Schemas | None, query: Query) -> dict[str, Any]:
    """Return the data of a schema, for the form that sends records.

    Query: ``name`` is the name of the schema (see `registered.path_of`). If `registry` is None, or does not
    have the schema, ``problem`` in the result says so.

    Raises:
        SchemaNameError, SchemaError: `name` is not a name of a schema, or the schema cannot be used.
        RegistryError: the registry does not answer, or refuses the request.
    """
    if registry is None:
        return {"problem": NO_REGISTRY}
    try:
        found, same = find(registry, query.get("name", ""))
    except RegistryRefused as error:
        if error.is_missing:
            return {"problem": str(error)}
        raise
    codec = codec_of(found) if found.kind == PROTOBUF else None
    messages = codec.messages if isinstance(codec, ProtobufSchema) else []
    return {
        "problem": None,
        "name": same,
        "id": found.id,
        "type": found.kind,
        "messages": messages[:_MAX_ROWS],
    }


def _live(registry: Schemas, address: str) -> list[int]:
    """Return the versions of a subject that are not deleted; none if the whole subject is deleted.

    `address` is the path of the subject's versions in the registry's API.
    """
    try:
        versions: list[int] = registry.get(address)
    except RegistryRefused as error:
        if error.is_missing:
            return []
        raise
    return versions


def _lines(schema: dict[str, Any]) -> list[str]:
    text = schema["schema"]
    if schema.get("schemaType", "AVRO") != "PROTOBUF":
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return str(text).splitlines()
