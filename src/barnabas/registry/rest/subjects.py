"""/subjects: registers, finds and deletes schemas by subject and version."""

from __future__ import annotations

from aiohttp import web

from barnabas.base.types import JsonObject
from barnabas.registry import deletion, queries, registration
from barnabas.registry.rest.authorization import sees
from barnabas.registry.rest.exchange import (
    LOG,
    STATE,
    answer,
    body_of,
    flag,
    page,
    schema_json,
    schema_text,
    subject_of,
)
from barnabas.registry.state import Version

routes = web.RouteTableDef()


def described(request: web.Request, version: Version) -> JsonObject:
    """Return a version as the JSON object of a response to `request`, which may ask for a schema's format."""
    return {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
        "guid": version.schema.guid,
        **schema_json(request, version),
        **({"deleted": True} if version.deleted else {}),
    }


@routes.get("/subjects")
async def list_subjects(request: web.Request) -> web.Response:
    names = queries.subjects(
        request.app[STATE],
        prefix=request.query.get("subjectPrefix", queries.ALL_CONTEXTS),
        deleted=flag(request, "deleted"),
        deleted_only=flag(request, "deletedOnly"),
    )
    return answer(page(request, [name for name in names if sees(name)]))


@routes.post("/subjects/{subject}")
async def look_up(request: web.Request) -> web.Response:
    version = registration.lookup(
        request.app[STATE],
        subject_of(request),
        await body_of(request),
        normalize=flag(request, "normalize"),
        deleted=flag(request, "deleted"),
    )
    return answer(described(request, version))


@routes.delete("/subjects/{subject}")
async def delete_subject(request: web.Request) -> web.Response:
    state, subject = request.app[STATE], subject_of(request)
    permanent = flag(request, "permanent")
    return answer(
        await request.app[LOG].write(lambda: deletion.delete_subject(state, subject, permanent=permanent))
    )


@routes.get("/subjects/{subject}/versions")
async def list_versions(request: web.Request) -> web.Response:
    numbers = queries.version_numbers(
        request.app[STATE],
        subject_of(request),
        deleted=flag(request, "deleted"),
        deleted_only=flag(request, "deletedOnly"),
    )
    return answer(page(request, numbers))


@routes.post("/subjects/{subject}/versions")
async def register(request: web.Request) -> web.Response:
    state, subject, body = request.app[STATE], subject_of(request), await body_of(request)
    normalize = flag(request, "normalize")
    version = await request.app[LOG].write(
        lambda: registration.register(state, subject, body, normalize=normalize)
    )
    return answer(
        {
            "id": version.id,
            "version": version.number,
            "guid": version.schema.guid,
            **version.schema.to_json(),
        }
    )


@routes.get("/subjects/{subject}/metadata")
async def latest_with_metadata(request: web.Request) -> web.Response:
    wanted = dict(zip(request.query.getall("key", []), request.query.getall("value", []), strict=False))
    version = queries.latest_with_metadata(
        request.app[STATE], subject_of(request), wanted, deleted=flag(request, "deleted")
    )
    return answer(described(request, version))


@routes.get("/subjects/{subject}/versions/{version}")
async def get_version(request: web.Request) -> web.Response:
    return answer(described(request, _version(request)))


@routes.get("/subjects/{subject}/versions/{version}/schema")
async def get_schema(request: web.Request) -> web.Response:
    return web.Response(text=schema_text(request, _version(request)))


@routes.get("/subjects/{subject}/versions/{version}/referencedby")
async def get_referrers(request: web.Request) -> web.Response:
    return answer(page(request, queries.referencing_ids(request.app[STATE], _version(request))))


@routes.delete("/subjects/{subject}/versions/{version}")
async def delete_version(request: web.Request) -> web.Response:
    state, subject = request.app[STATE], subject_of(request)
    number = queries.version_number(request.match_info["version"])
    permanent = flag(request, "permanent")
    return answer(
        await request.app[LOG].write(
            lambda: deletion.delete_version(state, subject, number, permanent=permanent)
        )
    )


def _version(request: web.Request) -> Version:
    return queries.version(
        request.app[STATE],
        subject_of(request),
        queries.version_number(request.match_info["version"]),
        deleted=flag(request, "deleted"),
    )
