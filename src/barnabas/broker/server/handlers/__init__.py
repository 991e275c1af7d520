"""The handlers of the APIs that this broker serves, one module each.

The docstring of `barnabas.broker.server.requests.api` explains how a module declares its API.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

from barnabas.broker.server.requests.api import Api


@functools.cache
def load() -> dict[int, Api[Any]]:
    """Import the modules of the handlers, and return the APIs by API key.

    Raises:
        ValueError: two APIs have the same key.
    """
    modules = (
        importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
    )
    apis = (value for module in modules for value in vars(module).values() if isinstance(value, Api))
    return by_key(apis)


def by_key(apis: Iterable[Api[Any]]) -> dict[int, Api[Any]]:
    """Return APIs by API key, in the order of the keys. Raises ValueError if two APIs have the same key."""
    found: dict[int, Api[Any]] = {}
    for api in sorted(apis, key=lambda api: api.key):
        if found.setdefault(api.key, api) is not api:
            raise ValueError(f"{api.name} and {found[api.key].name} have the same key, {api.key}")
    return found
