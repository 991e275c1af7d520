"""Finds the request and response classes of an API by its key on the wire.

Each module of `messages` declares its own key; no other module lists it.
"""

import pkgutil
from functools import cache
from importlib import import_module
from typing import TypeVar

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol import messages
from barnabas.kafka.protocol.schema import Request, Response

M = TypeVar("M", Request, Response)


@cache
def request_class(api_key: int) -> type[Request]:
    """Return the request class of an API. Raises ProtocolError if no API has this key."""
    return _find(Request, api_key)


@cache
def response_class(api_key: int) -> type[Response]:
    """Return the response class of an API. Raises ProtocolError if no API has this key."""
    return _find(Response, api_key)


@cache
def request_classes() -> tuple[type[Request], ...]:
    """Return the request classes of all APIs, in the order of their keys."""
    modules = _import_all()
    found = [cls for cls in Request.__subclasses__() if cls.__module__ in modules]
    return tuple(sorted(found, key=lambda cls: cls.api_key))


def _find(kind: type[M], api_key: int) -> type[M]:
    # A client imports the few messages that it sends: it never pays for the rest.
    for may_import in (False, True):
        if may_import:
            _import_all()
        for cls in kind.__subclasses__():
            if cls.api_key == api_key:
                return cls
    raise ProtocolError(f"unknown API key {api_key}")


@cache
def _import_all() -> frozenset[str]:
    """Import all modules of `barnabas.kafka.protocol.messages`. Return the full names of the modules."""
    names = frozenset(
        f"{messages.__name__}.{found.name}" for found in pkgutil.iter_modules(messages.__path__)
    )
    for name in names:
        import_module(name)
    return names
