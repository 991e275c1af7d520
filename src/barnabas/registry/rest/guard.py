"""Checks the permissions that each URL of a registry requires."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from aiohttp import web

from barnabas.registry import queries
from barnabas.registry.access import ClusterAccess, topic_of
from barnabas.registry.errors import RegistryError, schema_not_found
from barnabas.registry.rest.exchange import STATE, body_of, subject_of
from barnabas.registry.state import State
from barnabas.registry.subjects import DEFAULT_CONTEXT, context_of
from barnabas.security.acls import UNRESTRICTED, Access, Operation

ACCESS: web.AppKey[ClusterAccess] = web.AppKey("access", ClusterAccess)
#: the permissions of the client of this task's request
_may: ContextVar[Access] = ContextVar("may", default=UNRESTRICTED)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Confluent's code for a request that is not allowed
_FORBIDDEN = 40301


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Require a login and the permissions of the URL. Raises RegistryError 401, 403."""
    access = request.app.get(ACCESS)
    if access is not None:
        may = await access.access(request.headers.get("Authorization"), request.remote or "")
        _may.set(may)
        if not may.is_unrestricted:
            await _check(request, may)
    return await handler(request)


def sees(subject: str) -> bool:
    """Whether the client may see a subject."""
    return _may.get().on_topic(Operation.DESCRIBE, topic_of(subject))


async def _check(request: web.Request, may: Access) -> None:
    resource = request.match_info.route.resource
    address = resource.canonical if resource is not None else ""
    method = request.method
    if "subject" in request.match_info:
        is_setting = address.startswith(("/config", "/mode"))
        subject = request.match_info["subject"] if is_setting else subject_of(request)
        operation = _operation(method, address, is_setting)
        if not may.on_topic(operation, topic_of(subject)):
            raise _forbidden(operation, f"subject '{subject}'")
        if method == "POST":
            await _check_references(request, may)
    elif address in ("/config", "/mode"):
        if method not in ("GET", "HEAD") and not may.on_cluster(Operation.ALTER_CONFIGS):
            raise _forbidden(Operation.ALTER_CONFIGS, "the registry")
    elif "id" in request.match_info or "guid" in request.match_info:
        _check_id(request)


def _operation(method: str, address: str, is_setting: bool) -> Operation:
    if method in ("GET", "HEAD"):
        return Operation.DESCRIBE
    if is_setting:
        return Operation.ALTER_CONFIGS
    if method == "DELETE":
        return Operation.DELETE
    return Operation.WRITE if address == "/subjects/{subject}/versions" else Operation.DESCRIBE


async def _check_references(request: web.Request, may: Access) -> None:
    """Require permission for a schema's references, which the registry reads on behalf of the client."""
    references = (await body_of(request)).get("references")
    for reference in references if isinstance(references, list) else ():
        subject = reference.get("subject") if isinstance(reference, dict) else None
        if isinstance(subject, str) and not may.on_topic(Operation.DESCRIBE, topic_of(subject)):
            raise _forbidden(Operation.DESCRIBE, f"subject '{subject}'")


def _check_id(request: web.Request) -> None:
    """Hide an id that only subjects have which the client may not see."""
    state = request.app[STATE]
    text = request.match_info.get("id", "")
    if not text:
        version = queries.version_of_guid(state, request.match_info["guid"])
        uses = state.ids(context_of(version.subject)).uses[version.id]
    elif text.isascii() and text.isdecimal() and len(text) <= 10:
        uses = _uses(state, int(text), request.query.get("subject", ""))
    else:
        return  # the handler refuses it
    if not any(sees(subject) for subject, _ in uses):
        raise schema_not_found(text or request.match_info["guid"])


def _uses(state: State, id_: int, subject: str) -> set[tuple[str, int]]:
    """The places where the schema of an id is registered."""
    contexts = [context_of(subject)] if subject else [DEFAULT_CONTEXT, *state.contexts]
    found = next((state.ids(each).uses[id_] for each in contexts if id_ in state.ids(each).uses), None)
    if found is None:
        raise schema_not_found(id_)
    return set(found)


def _forbidden(operation: Operation, what: str) -> RegistryError:
    return RegistryError(_FORBIDDEN, f"User is denied operation {operation.name} on {what}")
