"""Checks the permissions that each URL of a registry requires."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from aiohttp import web

from barnabas.kafka.security.acls import UNRESTRICTED, Access, Operation
from barnabas.registry.access import ClusterAccess, topic_of
from barnabas.registry.errors import RegistryError, schema_not_found
from barnabas.registry.rest.exchange import body_of, id_of, scope_of, subject_of, uses_of
from barnabas.registry.state import Version
from barnabas.registry.subjects import context_of, in_context

ACCESS: web.AppKey[ClusterAccess] = web.AppKey("access", ClusterAccess)
#: the permissions of the client of this task's request
_may: ContextVar[Access] = ContextVar("may", default=UNRESTRICTED)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: addresses that every client with a login may read; lists have only what the client `sees`
_FREE = frozenset(
    [
        "/",
        "/config",
        "/contexts",
        "/mode",
        "/schemas",
        "/schemas/types",
        "/subjects",
        "/v1/metadata/id",
        "/v1/metadata/version",
    ]
)

#: Confluent's code for a request that is not allowed
_FORBIDDEN = 40301


@web.middleware
async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run `handler`. If the registry has access control, first require a login and the URL's permissions.

    Raises:
        RegistryError: 401, a missing or wrong login; 403, missing permissions; 404, the client may see no
            such schema; 503, no broker can check the login.
    """
    access = request.app.get(ACCESS)
    if access is not None:
        may = await access.access(request.headers.get("Authorization"), request.remote or "")
        _may.set(may)
        if not may.is_unrestricted:
            await _check(request, may)
    return await handler(request)


def sees(subject: str) -> bool:
    """Whether the client of the present request may see a subject: it may DESCRIBE the subject's topic."""
    return _may.get().on_topic(Operation.DESCRIBE, topic_of(subject))


def visible_use(request: web.Request) -> Version:
    """Return a version with the id or GUID in the URL, whose subject the client may see.

    Raises:
        RegistryError: SCHEMA_NOT_FOUND, no version has the id or GUID, or the client may see no subject of
            these versions.
    """
    for version in uses_of(request):
        if sees(version.subject):
            return version
    guid = request.match_info.get("guid")
    raise schema_not_found(id_of(request) if guid is None else guid)


async def _check(request: web.Request, may: Access) -> None:
    """Raise RegistryError unless the client has the permissions for the request's URL and method.

    The error is 403. It is SCHEMA_NOT_FOUND for a schema, by id or GUID, that the client may not see.
    """
    resource = request.match_info.route.resource
    if resource is None:
        return  # there is no such address
    address, method = resource.canonical, request.method
    reads = method in ("GET", "HEAD")
    if address in _FREE and reads:
        return
    if address in ("/config", "/mode"):
        if not may.on_cluster(Operation.ALTER_CONFIGS):
            raise _forbidden(Operation.ALTER_CONFIGS, "the registry")
    elif address in ("/config/{subject}", "/mode/{subject}"):
        _require(may, Operation.DESCRIBE if reads else Operation.ALTER_CONFIGS, scope_of(request) or "")
    elif address.startswith(("/subjects/{subject}", "/compatibility/subjects/{subject}")):
        subject = subject_of(request)
        _require(may, _operation(method, address), subject)
        if method == "POST":
            await _check_references(request, may, context_of(subject))
    elif address.startswith(("/schemas/ids/{id}", "/schemas/guids/{guid}")):
        visible_use(request)
    else:
        raise RegistryError(_FORBIDDEN, "User is denied this address, for which there is no rule")


def _operation(method: str, address: str) -> Operation:
    if method == "DELETE":
        return Operation.DELETE
    registers = method == "POST" and address == "/subjects/{subject}/versions"
    return Operation.WRITE if registers else Operation.DESCRIBE


def _require(may: Access, operation: Operation, subject: str) -> None:
    if not may.on_topic(operation, topic_of(subject)):
        raise _forbidden(operation, f"subject '{subject}'")


async def _check_references(request: web.Request, may: Access, context: str) -> None:
    """Require DESCRIBE for the subjects of a schema's references, which the registry reads for the client.

    A reference without a context is in `context`. Raises RegistryError 403 if the permission is missing.
    """
    references = (await body_of(request)).get("references")
    for reference in references if isinstance(references, list) else ():
        subject = reference.get("subject") if isinstance(reference, dict) else None
        if isinstance(subject, str):
            _require(may, Operation.DESCRIBE, in_context(subject, context))


def _forbidden(operation: Operation, what: str) -> RegistryError:
    return RegistryError(_FORBIDDEN, f"User is denied operation {operation.name} on {what}")
