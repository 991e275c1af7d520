"""What every address shares: bodies in, answers out, errors in Confluent's shape."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from barnabas.registry.compiled import Uncompiled
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.log import SchemasLog
from barnabas.registry.protobuf import ProtobufSchema
from barnabas.registry.resolution import understand_version
from barnabas.registry.state import State, Version
from barnabas.registry.subjects import canonical

logger = logging.getLogger(__name__)

STATE: web.AppKey[State] = web.AppKey("state", State)
LOG: web.AppKey[SchemasLog] = web.AppKey("log", SchemasLog)

#: what an answer may be said to be, best first
_ANSWERED = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
_TAKEN = (*_ANSWERED, "application/octet-stream")

#: some hundreds of schemas
_COMPILE_S = 60.0
#: few, and not the threads that wait for brokers: nothing else comes to a stop where much is to be compiled
_COMPILERS = ThreadPoolExecutor(2, "registry-compiler")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(value: Any) -> web.Response:
    """`value` as JSON."""
    return web.Response(text=json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def subject_of(request: web.Request) -> str:
    """The subject in the address. Raises RegistryError INVALID_SUBJECT."""
    return canonical(request.match_info["subject"])


def flag(request: web.Request, name: str) -> bool:
    """A parameter that is true or false; false when it is not there."""
    return request.query.get(name, "false").lower() == "true"


def number(request: web.Request, name: str, otherwise: int) -> int:
    """A parameter that is a whole number. Raises RegistryError."""
    text = request.query.get(name)
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        raise RegistryError(400, f"{name}={text} is not a whole number") from None


def page(request: web.Request, items: list[Any]) -> list[Any]:
    """The part of `items` that the parameters offset and limit ask for."""
    start, limit = max(number(request, "offset", 0), 0), number(request, "limit", -1)
    return items[start:] if limit < 0 else items[start : start + limit]


def schema_json(request: web.Request, version: Version) -> dict[str, Any]:
    """The schema of `version` as bodies have it, with its text in the format that is asked for.

    ``format=serialized`` is a format of Protobuf's only; every other schema, and every other format, is text.
    """
    described = version.schema.to_json()
    if request.query.get("format") == "serialized":
        parsed = understand_version(request.app[STATE], version)
        if isinstance(parsed, ProtobufSchema):
            described["schema"] = parsed.serialized
    return described


async def body_of(request: web.Request) -> Mapping[str, Any]:
    """The object in the request's body. Raises RegistryError."""
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RegistryError(400, "the body is not a JSON object")
    return body


@web.middleware
async def exchange(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Agree on the content type, and turn whatever goes wrong into an answer."""
    content_type = _acceptable(request.headers.get("Accept", "*/*"))
    try:
        if content_type is None:
            raise RegistryError(406, "HTTP 406 Not Acceptable")
        if request.can_read_body and request.content_type not in _TAKEN:
            raise RegistryError(415, "HTTP 415 Unsupported Media Type")
        response = await _compiling(handler, request)
    except RegistryError as error:
        response = _refusal(error.status, error.code, str(error))
    except web.HTTPException as error:
        response = _refusal(error.status, error.status, f"HTTP {error.status} {error.reason}")
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
    except Exception:
        logger.exception("%s %s failed", request.method, request.path)
        response = _refusal(500, 50001, "Error in the backend data store: the registry's log says more")
    response.content_type = content_type or _ANSWERED[0]
    return response


async def _compiling(handler: Handler, request: web.Request) -> web.StreamResponse:
    """Call `handler`, which has changed nothing as long as it asks for schemas to be compiled first."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _COMPILE_S
    while True:
        try:
            return await handler(request)
        except Uncompiled as missing:
            if loop.time() > deadline:
                words = f"not all schemas it takes were compiled in {_COMPILE_S:g} s: ask again"
                raise RegistryError(Code.OPERATION_TIMEOUT, words) from None
            await loop.run_in_executor(_COMPILERS, missing.compile)


def _refusal(status: int, code: int, message: str) -> web.Response:
    response = answer({"error_code": code, "message": message})
    response.set_status(status)
    return response


def _acceptable(accept: str) -> str | None:
    """The content type for an Accept header (RFC 9110, 12.5.1): the one it weighs most, ours best first."""
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
