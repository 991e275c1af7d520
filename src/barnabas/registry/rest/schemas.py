"""/schemas and /contexts: returns schemas by id or GUID, and lists schemas, types and contexts."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from barnabas.base.types import JsonObject
from barnabas.registry import queries
from barnabas.registry.formats import types
from barnabas.registry.rest.authorization import sees, visible_use
from barnabas.registry.rest.exchange import STATE, answer, flag, id_of, page, schema_json, schema_text, stream
from barnabas.registry.rest.subjects import described
from barnabas.registry.state import Version
from barnabas.registry.subjects import DEFAULT_CONTEXT, context_of

routes = web.RouteTableDef()


@routes.get("/schemas")
async def list_schemas(request: web.Request) -> web.StreamResponse:
    found = queries.schemas(
        request.app[STATE],
        prefix=request.query.get("subjectPrefix", ""),
        deleted=flag(request, "deleted"),
        latest_only=flag(request, "latestOnly"),
    )
    found = [version for version in found if sees(version.subject)]
    items: Iterator[JsonObject] = (described(request, version) for version in page(request, found))
    if request.query.get("format") == "serialized":  # compute everything before the answer begins
        items = iter(list(items))
    return await stream(request, items)


@routes.get("/schemas/types")
async def list_types(request: web.Request) -> web.Response:
    return answer(types())


@routes.get("/contexts")
async def list_contexts(request: web.Request) -> web.Response:
    state = request.app[STATE]
    seen = {DEFAULT_CONTEXT, *(context_of(subject) for subject in state.subjects if sees(subject))}
    hidden = {context_of(subject) for subject in state.subjects} - seen
    return answer(page(request, [name for name in state.contexts if name not in hidden]))


@routes.get("/schemas/ids/{id}")
async def get_by_id(request: web.Request) -> web.Response:
    version = visible_use(request)
    described: JsonObject = {**schema_json(request, version), "guid": version.schema.guid}
    if flag(request, "fetchMaxId"):
        described["maxId"] = request.app[STATE].ids(context_of(_subject(request))).highest
    return answer(described)


@routes.get("/schemas/ids/{id}/schema")
async def get_text_by_id(request: web.Request) -> web.Response:
    return web.Response(text=schema_text(request, visible_use(request)))


@routes.get("/schemas/ids/{id}/subjects")
async def get_subjects_by_id(request: web.Request) -> web.Response:
    return answer(page(request, _subjects(request)))


@routes.get("/schemas/ids/{id}/versions")
async def get_versions_by_id(request: web.Request) -> web.Response:
    found: list[JsonObject] = [
        {"subject": version.subject, "version": version.number} for version in _versions(request)
    ]
    return answer(page(request, found))


@routes.get("/schemas/guids/{guid}")
async def get_by_guid(request: web.Request) -> web.Response:
    version = visible_use(request)
    return answer({**schema_json(request, version), "guid": version.schema.guid})


def _versions(request: web.Request) -> list[Version]:
    found = queries.versions_of_id(
        request.app[STATE], id_of(request), subject=_subject(request), deleted=flag(request, "deleted")
    )
    return [version for version in found if sees(version.subject)]


def _subjects(request: web.Request) -> list[str]:
    return list(dict.fromkeys(version.subject for version in _versions(request)))


def _subject(request: web.Request) -> str:
    return request.query.get("subject", "")
