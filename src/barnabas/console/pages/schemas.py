"""Subjects of the schema registry, their versions, and the difference between two of them."""

from __future__ import annotations

import difflib
import json
from typing import Any
from urllib.parse import quote

from barnabas.console.pages.query import Query, QueryError, whole
from barnabas.console.schemas import Schemas

_MOST = 500


def schemas(registry: Schemas | None, query: Query) -> dict[str, Any]:
    """The schemas page. Query: ``subject`` for its versions."""
    if registry is None:
        return {"problem": "no schema registry: name one with --registry URL", "subjects": []}
    subject = query.get("subject", "")
    if not subject:
        search = query.get("search", "").lower()
        subjects = [name for name in registry.get("/subjects") if search in name.lower()]
        return {"problem": None, "subjects": sorted(subjects)[:_MOST], "count": len(subjects)}
    address = f"/subjects/{quote(subject, safe='')}/versions"
    versions = registry.get(address)
    if not versions:
        raise QueryError(f"subject={subject[:40]}: there is no such subject")
    version = whole(query, "version", versions[-1], 1)
    if version not in versions:
        raise QueryError(f"version={version}: {subject[:40]} has {', '.join(map(str, versions[-20:]))}")
    shown = registry.get(f"{address}/{version}")
    before = [older for older in versions if older < version]
    text = _lines(shown)
    older = _lines(registry.get(f"{address}/{before[-1]}")) if before else []
    return {
        "problem": None,
        "subject": subject,
        "versions": versions,
        "version": version,
        "id": shown["id"],
        "type": shown.get("schemaType", "AVRO"),
        "references": shown.get("references", []),
        "compatibility": _level(registry, subject),
        "text": "\n".join(text),
        "changes": list(difflib.unified_diff(older, text, lineterm="", n=2))[2:] if before else [],
    }


def _level(registry: Schemas, subject: str) -> str | None:
    answer = registry.get(f"/config/{quote(subject, safe='')}?defaultToGlobal=true")
    level = answer.get("compatibilityLevel")
    return level if isinstance(level, str) else None


def _lines(schema: dict[str, Any]) -> list[str]:
    text = schema["schema"]
    if schema.get("schemaType", "AVRO") != "PROTOBUF":
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return str(text).splitlines()
