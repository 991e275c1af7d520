"""The requests this broker serves: one module an API, found here by the request's key.

A handler's module opens with the versions served, the KIPs behind them and what is left out, and declares

    @handles(FetchRequest)
    def fetch(broker: Broker, context: RequestContext, request: FetchRequest)
        -> FetchResponse | Awaitable[FetchResponse] | None: ...

What it returns decides how it is answered: a response at once (the fast path: no task is made), an awaitable
when it must wait, None when there is no reply (Produce with acks=0). ApiVersions is made from this registry,
so that only what is served is advertised.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from barnabas.errors import KafkaError
from barnabas.server.requests.pieces import MAX_ITEM_ELEMENTS, Pieces

#: (broker, context, request) -> a response, an awaitable of one, or None for no reply
Handler: TypeAlias = Callable[[Any, Any, Any], Any]
#: (request, error) -> the whole request's failure in the API's own shape
ErrorReply: TypeAlias = Callable[[Any, KafkaError], Any]

H = TypeVar("H", bound=Handler)

#: a request with more elements than this is not served in one turn of the event loop
DIRECT_ELEMENTS = 1000


@dataclass(frozen=True, slots=True)
class Api:
    """One API as this broker serves it."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    #: the lowest and highest version that are answered: all that the message has
    versions: tuple[int, int]
    #: the lowest version that ApiVersions names; below `versions` only where clients depend on it
    advertised_from: int
    handle: Handler
    on_error: ErrorReply
    #: whether a parked request is given up when its connection ends (one that only waits to read)
    cancel_on_disconnect: bool
    #: how a request about many things is divided, by the arrays it may ask with
    pieces: tuple[Pieces, ...] = ()
    #: a request with more elements than this may have to be divided; those of a small frame count as none
    large_from: int = DIRECT_ELEMENTS
    #: how many elements a request may have that is not divided
    most_elements: int = MAX_ITEM_ELEMENTS
    #: the path of arrays in a response that may be long whatever the request
    listing: tuple[str, ...] = ()


_registry: dict[int, Api] = {}


def handles(
    request: type[Any],
    *,
    advertised_from: int | None = None,
    on_error: ErrorReply | None = None,
    cancel_on_disconnect: bool = False,
    pieces: Sequence[Pieces] = (),
    is_heavy: bool = False,
    most_elements: int = MAX_ITEM_ELEMENTS,
    listing: str = "",
) -> Callable[[H], H]:
    """Register the decorated function as the handler of `request`.

    Args:
        request: the message class; its response is the class of the same name in the same module.
        advertised_from: the lowest version that ApiVersions names, when it differs.
        on_error: makes the response for an error that escapes the handler. It may be left out where the
            response has an `error_code` at its top; for the others an escaped error closes the connection.
        cancel_on_disconnect: cancel the awaitable of a request whose connection ends; not for what has begun
            to change something.
        pieces: the arrays by which a request about many things is divided, where each is answered by itself.
        is_heavy: whether to count the things even of a small frame, since each takes long.
        most_elements: how many elements a request may have that is not divided.
        listing: the path of arrays in the response that may be long however small the request is.
    """
    name = request.__name__.removesuffix("Request")
    response = getattr(sys.modules[request.__module__], name + "Response")
    served: tuple[int, int] = request.versions

    def register(handler: H) -> H:
        key: int = request.api_key
        if key in _registry and _registry[key].handle.__module__ != handler.__module__:
            raise ValueError(f"{name} has two handlers: {_registry[key].handle} and {handler}")
        _registry[key] = Api(
            key=key,
            name=name,
            request=request,
            response=response,
            versions=served,
            advertised_from=served[0] if advertised_from is None else advertised_from,
            handle=handler,
            on_error=on_error or _top_level_error(response),
            cancel_on_disconnect=cancel_on_disconnect,
            pieces=tuple(pieces),
            large_from=-1 if is_heavy else min((DIRECT_ELEMENTS, *(p.size for p in pieces))),
            most_elements=most_elements,
            listing=tuple(listing.split(".")) if listing else (),
        )
        return handler

    return register


def _top_level_error(response: type[Any]) -> ErrorReply:
    def reply(_request: Any, error: KafkaError) -> Any:
        answer = response()
        if not hasattr(answer, "error_code"):
            raise error
        answer.error_code = error.code
        if hasattr(answer, "error_message"):
            answer.error_message = error.message
        return answer

    return reply


@functools.cache
def load() -> dict[int, Api]:
    """Import every handler module; the APIs by key."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_registry.items()))
