"""A real broker for tests: pytest fixtures (`barnabas.testing.plugin`) and a context manager for other code.

    from barnabas.testing import BarnabasBroker

    with BarnabasBroker() as broker:
        client = SomeKafkaClient(bootstrap_servers=broker.bootstrap_servers)

`SecureBroker` has TLS, logins and ACLs. `BarnabasCluster` runs several brokers, which a test can kill, pause
and cut off from each other.

The package imports its modules at first use, because pytest loads the package in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.barnabas_cluster import BarnabasCluster
    from barnabas.testing.broker import BarnabasBroker
    from barnabas.testing.secure_broker import SecureBroker

__all__ = ["BarnabasBroker", "BarnabasCluster", "SecureBroker"]


_MODULES = {
    "BarnabasBroker": "broker",
    "BarnabasCluster": "barnabas_cluster",
    "SecureBroker": "secure_broker",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
