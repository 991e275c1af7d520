"""A schema registry in a thread of the tests."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.registry.server import RegistryServer, RegistrySettings, claim


@contextmanager
def running_registry(servers: str, topic: str = "_schemas") -> Iterator[RegistryServer]:
    """Run a registry whose schemas are in a topic of a cluster."""
    server = RegistryServer(RegistrySettings(servers, topic=topic), claim("127.0.0.1:0")).start()
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def register(url: str, subject: str, schema: Any, **more: Any) -> int:
    """Register a schema, given as text or as JSON. Return its id."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = json.dumps({"schema": text, **more}).encode()
    request = urllib.request.Request(f"{url}/subjects/{subject}/versions", body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return int(json.loads(answer.read())["id"])
