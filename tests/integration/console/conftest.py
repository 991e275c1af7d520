"""Consoles of the shared broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from tests.console import RunningConsole
from tests.schema_registry import register as register_schema
from tests.schema_registry import running_registry

from barnabas.console.server import ConsoleSettings
from barnabas.testing import BarnabasBroker


@pytest.fixture(scope="session")
def barnabas_broker(barnabas_settings) -> Iterator[BarnabasBroker]:
    """Start a broker for these tests only, because pages show the first groups and
    partitions of a cluster.
    """
    with BarnabasBroker(barnabas_settings) as broker:
        yield broker


@pytest.fixture
def start_console(barnabas_broker) -> Iterator[Callable[..., RunningConsole]]:
    """``start_console(**settings)``: start a console of the broker."""
    with ExitStack() as exits:

        def start(servers: str | None = None, **settings: Any) -> RunningConsole:
            settings.setdefault("listen", "127.0.0.1:0")
            return exits.enter_context(
                RunningConsole(ConsoleSettings(servers or barnabas_broker.bootstrap_servers, **settings))
            )

        yield start


@pytest.fixture
def console(start_console):
    """Start a console that may change the cluster."""
    return start_console(allow_writes=True)


@pytest.fixture
def registry(barnabas_broker, topic):
    """Start a schema registry that has its own topic."""
    with running_registry(barnabas_broker.bootstrap_servers, f"_s-{topic.name}") as server:
        yield server


@pytest.fixture
def register(registry):
    """``register(subject, schema, **more)``: register a schema and return its id."""
    return partial(register_schema, registry.url)


@pytest.fixture
def writing(start_console, registry):
    """Start a console that may change the cluster and the schema registry."""
    return start_console(registry=registry.url, allow_writes=True)
