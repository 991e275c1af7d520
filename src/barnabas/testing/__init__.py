"""A real broker for tests: pytest fixtures (`barnabas.testing.plugin`) and a context manager for elsewhere.

    from barnabas.testing import BarnabasBroker

    with BarnabasBroker() as broker:
        client = SomeKafkaClient(bootstrap_servers=broker.bootstrap_servers)

Nothing is imported here until it is used: pytest loads this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import BarnabasBroker

__all__ = ["BarnabasBroker"]


def __getattr__(name: str) -> Any:
    if name == "BarnabasBroker":
        from barnabas.testing.broker import BarnabasBroker

        return BarnabasBroker
    raise AttributeError(f"module {__name__} has no attribute {name}")
