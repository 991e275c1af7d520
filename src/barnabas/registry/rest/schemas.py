"""/schemas and /contexts: schemas by their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiohttp import web

from barnabas.registry import queries
from barnabas.registry.errors import RegistryError, schema_not_found
from barnabas.registry.formats import types
from barnabas.registry.limits import shortened
from barnabas.registry.rest.exchange import STATE, answer, flag, page, schema_json, stream
from barnabas.registry.rest.guard import sees
from barnabas.registry.rest.subjects import described
from barnabas.registry.state import Version
from barnabas.registry.subjects import context_of

routes = web.RouteTableDef()

_LONGEST_ID = 18


@routes.get("/schemas")
async def list_schemas(request: web.Request) -> web.StreamResponse:
    found = queries.schemas(
        request.app[STATE],
        prefix=request.query.get("subjectPrefix", queries.ALL_CONTEXTS),
        deleted=flag(request, "deleted"),
        latest_only=flag(request, "latestOnly"),
    )
    found = [version for version in found if sees(version.subject)]
    items: Iterator[dict[str, Any]] = (described(request, version) for version in page(request, found))
    if request.query.get("format") == "serialized":  # compute everything before the answer begins
        items = iter(list(items))
    return await stream(request, items)


@routes.get("/schemas/types")
async def list_types(request: web.Request) -> web.Response:
    return answer(types())


@routes.get("/contexts")
async def list_contexts(request: web.Request) -> web.Response:
    return answer(page(request, request.app[STATE].contexts))


@routes.get("/schemas/ids/{id}")
async def get_by_id(request: web.Request) -> web.Response:
    version = _version(request)
    described: dict[str, Any] = {**schema_json(request, version), "guid": version.schema.guid}
    if flag(request, "fetchMaxId"):
        described["maxId"] = request.app[STATE].ids(context_of(_subject(request))).highest
    return answer(described)


@routes.get("/schemas/ids/{id}/schema")
async def get_text_by_id(request: web.Request) -> web.Response:
    return web.Response(text=schema_json(request, _version(request))["schema"])


@routes.get("/schemas/ids/{id}/subjects")
async def get_subjects_by_id(request: web.Request) -> web.Response:
    return answer(page(request, _subjects(request)))


@routes.get("/schemas/ids/{id}/versions")
async def get_versions_by_id(request: web.Request) -> web.Response:
    found = [{"subject": version.subject, "version": version.number} for version in _versions(request)]
    return answer(page(request, found))


@routes.get("/schemas/guids/{guid}")
async def get_by_guid(request: web.Request) -> web.Response:
    version = queries.version_of_guid(request.app[STATE], request.match_info["guid"])
    return answer({**schema_json(request, version), "guid": version.schema.guid})


def _version(request: web.Request) -> Version:
    return queries.version_of_id(request.app[STATE], _id(request), _subject(request))


def _versions(request: web.Request) -> list[Version]:
    found = queries.versions_of_id(
        request.app[STATE], _id(request), subject=_subject(request), deleted=flag(request, "deleted")
    )
    return [version for version in found if sees(version.subject)]


def _subjects(request: web.Request) -> list[str]:
    return list(dict.fromkeys(version.subject for version in _versions(request)))


def _id(request: web.Request) -> int:
    text = request.match_info["id"]
    if not text.isascii() or not text.isdecimal():
        words = f"{shortened(text, 100)} is not the id of a schema: it is a whole number"
        raise RegistryError(404, words)
    if len(text) > _LONGEST_ID:  # Python refuses to read numbers of thousands of digits
        raise schema_not_found(shortened(text, 100))
    return int(text)


def _subject(request: web.Request) -> str:
    return request.query.get("subject", "")
