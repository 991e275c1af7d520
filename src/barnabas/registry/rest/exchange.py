"""Code that all URLs share: decodes bodies, and encodes responses and errors in Confluent's format."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from aiohttp import web

from barnabas.base.types import Json, JsonObject
from barnabas.registry import document, queries, workers
from barnabas.registry.computed import NotComputed
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.limits import shortened
from barnabas.registry.log import SchemasLog
from barnabas.registry.resolution import source_of_version
from barnabas.registry.schema import PROTOBUF
from barnabas.registry.state import State, Version
from barnabas.registry.subjects import canonical, canonical_scope
from barnabas.registry.understanding import serialized
from barnabas.registry.workers import WORKERS

logger = logging.getLogger(__name__)

STATE: web.AppKey[State] = web.AppKey("state", State)
LOG: web.AppKey[SchemasLog] = web.AppKey("log", SchemasLog)

#: content types of answers, the preferred first
_ANSWERED = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
_TAKEN = (*_ANSWERED, "application/octet-stream")

#: limits the large bodies in memory
LARGE_BODIES: web.AppKey[asyncio.Semaphore] = web.AppKey("large_bodies", asyncio.Semaphore)
#: large bodies that are read at the same time; others wait on their sockets
LARGE_BODIES_AT_ONCE = 8
#: bytes of a body that the event loop decodes itself: a few milliseconds at worst
_SMALL_BODY = 64 << 10
#: seconds in which a body must arrive
_BODY_S = 30.0
#: bytes of a streamed response that are encoded before other requests get a turn
_SLICE = 64 << 10

#: seconds to parse all schemas of a request: enough for some hundreds of Protobuf files
_COMPUTE_S = 60.0
#: threads that wait for workers only, so that calls to brokers never queue behind them
_COMPUTERS = ThreadPoolExecutor(workers.SIZE, "registry-computer")

T = TypeVar("T")

#: the decoded body of this task's request; it is kept, because the handler may be called again
_body: ContextVar[Mapping[str, Any] | None] = ContextVar("body", default=None)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(value: Json) -> web.Response:
    """Return a response whose body is `value` as JSON."""
    return web.Response(text=_json(value))


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def stream(request: web.Request, items: Iterable[Json]) -> web.StreamResponse:
    """Send `items` as a JSON array in slices, and return the response, which is then complete.

    Slices are necessary because the array can contain all registered schemas.
    """
    response = web.StreamResponse()
    response.content_type = _acceptable(request.headers.get("Accept", "*/*")) or _ANSWERED[0]
    response.charset = "utf-8"
    await response.prepare(request)
    slice_ = bytearray(b"[")
    comma = b""
    for item in items:
        slice_ += comma + _json(item).encode()
        comma = b","
        if len(slice_) >= _SLICE:
            await response.write(bytes(slice_))
            slice_.clear()
            await asyncio.sleep(0)  # a write waits only for a slow client
    await response.write(bytes(slice_) + b"]")
    await response.write_eof()
    return response


def subject_of(request: web.Request) -> str:
    """Return the subject in the URL, in its canonical form. Raises RegistryError INVALID_SUBJECT."""
    return canonical(request.match_info["subject"])


def scope_of(request: web.Request) -> str | None:
    """Return the subject or context in the URL, in its canonical form; None for the whole registry.

    Raises:
        RegistryError: INVALID_SUBJECT.
    """
    name = request.match_info.get("subject")
    return None if name is None else canonical_scope(name)


def uses_of(request: web.Request) -> list[Version]:
    """Return the versions whose schema has the id or the GUID in the URL.

    Softly deleted versions are included. The result is in order of context, subject and number. For an id,
    all versions are from one context: the context of the query parameter ``subject``. Without this parameter,
    it is the first context that has the id.

    Raises RegistryError: SCHEMA_NOT_FOUND, or 404 if the id is not a whole number.
    """
    state, guid = request.app[STATE], request.match_info.get("guid")
    if guid is not None:
        return queries.uses_of_guid(state, guid)
    return queries.uses_of_id(state, id_of(request), request.query.get("subject", ""))


def id_of(request: web.Request) -> int:
    """Return the id of a schema in the URL.

    Raises RegistryError: 404, the id is not a whole number; SCHEMA_NOT_FOUND, it is too large for an id.
    """
    return queries.schema_id(request.match_info["id"])


def flag(request: web.Request, name: str) -> bool:
    """Return a boolean query parameter; False if it is missing or has any other text than ``true``."""
    return request.query.get(name, "false").lower() == "true"


def number(request: web.Request, name: str, otherwise: int) -> int:
    """Return a query parameter that is a whole number; `otherwise` if it is missing.

    Raises RegistryError 400 if the parameter is not a whole number.
    """
    text = request.query.get(name)
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        raise RegistryError(400, f"{name}={text} is not a whole number") from None


def page(request: web.Request, items: Sequence[T]) -> Sequence[T]:
    """Return the slice of `items` for the query parameters ``offset`` and ``limit``.

    A negative or missing offset is 0. With a negative or missing limit, all items from the offset on are
    returned. Raises RegistryError 400 if a parameter is not a whole number.
    """
    start, limit = max(number(request, "offset", 0), 0), number(request, "limit", -1)
    return items[start:] if limit < 0 else items[start : start + limit]


def schema_json(request: web.Request, version: Version) -> JsonObject:
    """Return the schema of `version` in JSON, with its text as `schema_text` returns it.

    Raises NotComputed if the cache does not have that text yet.
    """
    return {**version.schema.to_json(), "schema": schema_text(request, version)}


def schema_text(request: web.Request, version: Version) -> str | None:
    """Return the text of the schema of `version` in the requested format.

    ``format=serialized`` applies to Protobuf only; the result is then the descriptor in base64. For all other
    schemas and formats, the result is the stored text. Raises NotComputed if the descriptor is not in the
    cache yet.
    """
    if request.query.get("format") == "serialized" and version.schema.type == PROTOBUF:
        return serialized(source_of_version(request.app[STATE], version))
    return version.schema.text


async def body_of(request: web.Request) -> Mapping[str, Any]:
    """Return the JSON object in the request's body. Later calls for the same request return the same object.

    Raises:
        RegistryError: 400, the body is not a JSON object; 408, it does not arrive in time; 415, it has a
            Content-Encoding; SCHEMA_TOO_LARGE, the body or its schema exceeds a limit; INVALID_SCHEMA, the
            body is nested too deeply; OPERATION_TIMEOUT or STORE_ERROR, as in `Workers.run`.
        HTTPRequestEntityTooLarge: the body has more than 4 MiB.
    """
    body = _body.get()
    if body is None:
        body = await _decoded(await _body_bytes(request))
        _body.set(body)
    return body


async def _body_bytes(request: web.Request) -> bytes:
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RegistryError(415, "a body in a Content-Encoding is not served: send it as it is")
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError:
        raise RegistryError(408, f"the body did not come within {_BODY_S:g} s") from None


async def _decoded(data: bytes) -> Mapping[str, Any]:
    if len(data) > _SMALL_BODY:
        deadline = time.monotonic() + _COMPUTE_S
        loop = asyncio.get_running_loop()
        found: Mapping[str, Any] = await loop.run_in_executor(_COMPUTERS, WORKERS.run, deadline, "body", data)
        return found
    try:
        return document.body(data)
    except ValueError as error:
        raise RegistryError(400, f"the body is not JSON: {error}") from None


@web.middleware
async def exchange(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Negotiate the content type, call `handler`, and turn errors into responses."""
    _body.set(None)
    content_type = _acceptable(request.headers.get("Accept", "*/*"))
    try:
        if content_type is None:
            raise RegistryError(406, "HTTP 406 Not Acceptable")
        if request.can_read_body and request.content_type not in _TAKEN:
            raise RegistryError(415, "HTTP 415 Unsupported Media Type")
        async with request.app[LARGE_BODIES] if _has_large_body(request) else contextlib.nullcontext():
            response = await _computing(handler, request)
    except RegistryError as error:
        response = _refusal(error.status, error.code, str(error))
        if error.status == 401:
            response.headers["WWW-Authenticate"] = 'Basic realm="schema registry"'
    except web.HTTPException as error:
        response = _refusal(error.status, error.status, f"HTTP {error.status} {error.reason}")
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
    except Exception:
        logger.exception("%s %r failed", request.method, request.path)
        response = _refusal(500, 50001, "Error in the backend data store: the registry's log says more")
    if not response.prepared:
        response.content_type = content_type or _ANSWERED[0]
    return response


async def _computing(handler: Handler, request: web.Request) -> web.StreamResponse:
    """Call `handler`. After each NotComputed, compute the missing result and call `handler` again.

    A handler must change nothing before it raises NotComputed. Raises RegistryError OPERATION_TIMEOUT if
    results are still missing after `_COMPUTE_S` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = time.monotonic() + _COMPUTE_S
    while True:
        try:
            return await handler(request)
        except NotComputed as missing:
            if time.monotonic() > deadline:
                words = f"not all schemas it takes were read in {_COMPUTE_S:g} s: ask again"
                raise RegistryError(Code.OPERATION_TIMEOUT, words) from None
            await loop.run_in_executor(_COMPUTERS, missing.compute, deadline)


def _has_large_body(request: web.Request) -> bool:
    length = request.content_length
    return request.can_read_body and (length is None or length > _SMALL_BODY)


def _refusal(status: int, code: int, message: str) -> web.Response:
    response = answer({"error_code": code, "message": shortened(message)})
    response.set_status(status)
    return response


def _acceptable(accept: str) -> str | None:
    """Return the best content type in `_ANSWERED` for an Accept header (RFC 9110, 12.5.1).

    The highest weight decides, then the order of `_ANSWERED`. Return None if the header accepts none of them.
    """
    weights: dict[str, float] = {}
    for item in accept.split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            weights[name.lower()] = float(quality)
        except ValueError:
            weights[name.lower()] = 1.0
    best, weight = None, 0.0
    for offered in _ANSWERED:
        given = next((weights[name] for name in (offered, "application/*", "*/*") if name in weights), 0.0)
        if given > weight:
            best, weight = offered, given
    return best
