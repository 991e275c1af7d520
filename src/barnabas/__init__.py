"""Barnabas: a distributed event streaming platform that speaks the Apache Kafka protocol.

``barnabas.testing``, ``barnabas.client`` and the other packages for users are imported when they are first
used, so that ``import barnabas`` costs nothing.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"

_PACKAGES = frozenset({"client", "pipelines", "spark", "testing"})


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__} has no attribute {name}")
