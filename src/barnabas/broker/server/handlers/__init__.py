"""The handlers of the APIs that this broker serves, one module each.

The docstring of `barnabas.broker.server.requests.api` explains how a module declares its API.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from barnabas.broker.server.requests.api import Api


@functools.cache
def load() -> dict[int, Api[Any]]:
    """Import the handlers' modules, and return the APIs by key."""
    modules = (
        importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
    )
    apis = (value for module in modules for value in vars(module).values() if isinstance(value, Api))
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}
