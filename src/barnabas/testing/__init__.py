"""A real broker for tests: pytest fixtures (`barnabas.testing.plugin`) and a context manager for elsewhere.

    from barnabas.testing import BarnabasBroker

    with BarnabasBroker() as broker:
        client = SomeKafkaClient(bootstrap_servers=broker.bootstrap_servers)

`SecureBroker` has TLS, logins and ACLs. `BarnabasCluster` is several brokers, whose brokers can be killed,
paused and cut off from each other.

Its modules are imported at first use, because pytest loads this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.barnabas_cluster import BarnabasCluster
    from barnabas.testing.broker import BarnabasBroker
    from barnabas.testing.secure_broker import SecureBroker

__all__ = ["BarnabasBroker", "BarnabasCluster", "SecureBroker"]


def __getattr__(name: str) -> Any:
    if name == "BarnabasBroker":
        from barnabas.testing.broker import BarnabasBroker

        return BarnabasBroker
    if name == "BarnabasCluster":
        from barnabas.testing.barnabas_cluster import BarnabasCluster

        return BarnabasCluster
    if name == "SecureBroker":
        from barnabas.testing.secure_broker import SecureBroker

        return SecureBroker
    raise AttributeError(f"module {__name__} has no attribute {name}")
