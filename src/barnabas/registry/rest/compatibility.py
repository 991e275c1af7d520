"""/compatibility: checks whether a schema could be registered, without registering it."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from barnabas.registry import queries, registration
from barnabas.registry.errors import Code, RegistryError, version_not_found
from barnabas.registry.rest.exchange import STATE, answer, body_of, flag, subject_of
from barnabas.registry.schema import Schema
from barnabas.registry.state import Version

routes = web.RouteTableDef()


@routes.post("/compatibility/subjects/{subject}/versions/{version}")
async def check_with_version(request: web.Request) -> web.Response:
    state, subject = request.app[STATE], subject_of(request)
    number = queries.version_number(request.match_info["version"])
    if number is None:
        return await _check(request, state.versions(subject)[-1:])
    # `queries.version` answers SUBJECT_NOT_FOUND for a missing subject; Confluent's registry does not here.
    found = [version for version in state.versions(subject) if version.number == number]
    if not found:
        raise version_not_found(number)
    return await _check(request, found)


@routes.post("/compatibility/subjects/{subject}/versions")
async def check_with_all(request: web.Request) -> web.Response:
    return await _check(request, request.app[STATE].versions(subject_of(request)))


async def _check(request: web.Request, versions: Sequence[Version]) -> web.Response:
    state, subject = request.app[STATE], subject_of(request)
    schema = Schema.from_request(await body_of(request))
    is_verbose = flag(request, "verbose")
    try:
        normalize = flag(request, "normalize")
        schema = registration.canonical(state, subject, schema, normalize=normalize)
        registration.check_new(state, subject, schema, normalize=normalize)
        found = registration.conflicts(state, subject, schema, versions)
    except RegistryError as error:
        if error.code != Code.INVALID_SCHEMA or not is_verbose:
            raise
        found = [str(error)]
    return answer({"is_compatible": not found, **({"messages": found} if is_verbose else {})})
