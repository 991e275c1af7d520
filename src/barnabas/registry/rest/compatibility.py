"""/compatibility: checks whether a schema could be registered, without registering it."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from barnabas.registry import queries, registration
from barnabas.registry.rest.exchange import STATE, answer, body_of, flag, subject_of
from barnabas.registry.schema import Schema
from barnabas.registry.state import Version

routes = web.RouteTableDef()


@routes.post("/compatibility/subjects/{subject}/versions/{version}")
async def check_with_version(request: web.Request) -> web.Response:
    number = queries.version_number(request.match_info["version"])
    return await _check(request, [queries.version(request.app[STATE], subject_of(request), number)])


@routes.post("/compatibility/subjects/{subject}/versions")
async def check_with_all(request: web.Request) -> web.Response:
    return await _check(request, request.app[STATE].versions(subject_of(request)))


async def _check(request: web.Request, versions: Sequence[Version]) -> web.Response:
    state, subject = request.app[STATE], subject_of(request)
    schema = registration.canonical(
        state, subject, Schema.from_request(await body_of(request)), normalize=flag(request, "normalize")
    )
    found = registration.conflicts(state, subject, schema, versions)
    messages = {"messages": found} if flag(request, "verbose") else {}
    return answer({"is_compatible": not found, **messages})
