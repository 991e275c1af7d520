"""Registries on the shared broker, each with its own topic, and a simple client for them."""

from __future__ import annotations

import itertools
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.testing.cluster import Cluster

_numbers = itertools.count(1)


class HttpResponse(NamedTuple):
    status: int
    body: Any
    headers: Any


class Registry:
    """A registry under test, with requests by hand and by Confluent's client."""

    def __init__(self, server: RegistryServer, topic: str, cleanup: ExitStack) -> None:
        self.server = server
        self._cleanup = cleanup
        self.topic = topic
        self.url = server.url

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return HttpResponse(response.status, _loads(response.read()), response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return HttpResponse(error.code, _loads(error.read()), error.headers)

    def register(self, subject: str, schema: Any, **body: Any) -> Any:
        """Register a schema. Return its id, or the error code."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = self("POST", f"/subjects/{subject}/versions", {"schema": text, **body}).body
        return answer.get("id", answer.get("error_code"))

    def client(self, **settings: Any) -> SchemaRegistryClient:
        return self._cleanup.enter_context(SchemaRegistryClient({"url": self.url, **settings}))


def _loads(data: bytes) -> Any:
    return json.loads(data) if data else None


def _starter(broker: Cluster, running: ExitStack) -> Callable[..., Registry]:
    def make(topic: str | None = None, broker: Cluster = broker, **settings: Any) -> Registry:
        topic = topic or f"_schemas-{os.getpid()}-{next(_numbers)}"
        configured = RegistrySettings(broker.bootstrap_servers, topic=topic, **settings)
        server = running.enter_context(RegistryServer(configured, claim("127.0.0.1:0")))
        return Registry(server, topic, running)

    return make


@pytest.fixture
def make_registry(barnabas_broker: Cluster) -> Iterator[Callable[..., Registry]]:
    """Start registries: ``make_registry(topic=...)``, by default on a new topic."""
    with ExitStack() as running:
        yield _starter(barnabas_broker, running)


@pytest.fixture
def registry(make_registry: Callable[..., Registry]) -> Registry:
    """Start a registry without schemas."""
    return make_registry()


@pytest.fixture(scope="module")
def unchanged(barnabas_broker: Cluster) -> Iterator[Registry]:
    """Start a registry for all tests that change nothing. Its subject s has one version, `record(A)`."""
    with ExitStack() as running:
        made = _starter(barnabas_broker, running)()
        assert made.register("s", record(A)) == 1
        yield made


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


A, B = {"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": ""}
B_REQUIRED = {"name": "b", "type": "string"}
