"""A registry's client with an HTTP server whose answers the test gives."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from barnabas.base.errors import ConfigError
from barnabas.client.schemas.registered import AVRO, Reference, SchemaError, by_id, latest, register
from barnabas.client.schemas.registry import (
    RegistryDenied,
    RegistryError,
    RegistryRefused,
    RegistryTimeouts,
    SchemaRegistry,
)
from barnabas.client.servers import servers_of

TWICE = RegistryTimeouts(5.0, 5.0, 2)
SCHEMA = {"schema": '"string"', "schemaType": AVRO}


@pytest.fixture
def serve():
    """Start a server with these answers, each a status and a body. Return it and its requests."""
    servers = []

    def start(*answers):
        left, requests = list(answers), []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                requests.append((self.path, self.headers.get("Authorization"), body))
                status, answer = left.pop(0)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return f"127.0.0.1:{server.server_port}", requests

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "failure",
    [(500, {"message": "no"}), (503, b""), (429, {}), (408, {}), (200, b"not JSON"), (200, b"[" * 100_000)],
    ids=lambda failure: str(failure)[:40],
)
def test_a_failure_that_may_pass_is_tried_again(serve, failure):
    address, requests = serve(failure, (200, SCHEMA))
    assert by_id(SchemaRegistry(f"http://{address}", timeouts=TWICE), 7).text == '"string"'
    assert len(requests) == 2


def test_a_person_is_told_of_the_first_failure(serve):
    address, requests = serve((500, {"message": "the store is away"}))
    with pytest.raises(RegistryError, match=r"fails \(HTTP 500\): the store is away"):
        by_id(SchemaRegistry(f"http://{address}"), 7)
    assert len(requests) == 1


def test_a_registry_that_keeps_failing_is_given_up(serve):
    address, requests = serve((500, {}), (500, {}))
    with pytest.raises(RegistryError):
        by_id(SchemaRegistry(f"http://{address}", timeouts=TWICE), 7)
    assert len(requests) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(404, RegistryRefused), (401, RegistryDenied), (403, RegistryDenied)]
)
def test_a_refusal_is_not_tried_again(serve, status, kind):
    address, requests = serve((status, {"message": "no"}))
    with pytest.raises(RegistryRefused, match=f"schema id 7.*HTTP {status}") as refused:
        by_id(SchemaRegistry(f"http://{address}", timeouts=TWICE), 7)
    assert (type(refused.value), refused.value.is_missing) == (kind, status == 404)
    assert len(requests) == 1


def test_the_url_s_user_logs_in_before_the_cluster_s(serve):
    address, requests = serve((200, SCHEMA), (200, SCHEMA))
    login = servers_of("host:9092", {"sasl.username": "u", "sasl.password": "p"})
    by_id(SchemaRegistry(f"http://{address}", login), 7)
    registry = SchemaRegistry(f"http://other:p%2Fq@{address}", login)
    by_id(registry, 7)
    assert [login for _, login, _ in requests] == ["Basic dTpw", "Basic b3RoZXI6cC9x"]
    assert registry.curl("GET", "/subjects")[-3:] == ["--user", "other", f"http://{address}/subjects"]


def test_a_schema_of_another_format_cannot_be_used(serve):
    address, _ = serve((200, {"subject": "s", "version": 1, "id": 7, **SCHEMA}))
    with pytest.raises(SchemaError, match="subject s cannot be used: its type is AVRO, not JSON"):
        latest(SchemaRegistry(f"http://{address}"), "s", "JSON")


def test_a_schema_is_registered_with_its_references(serve):
    address, requests = serve((200, {"id": 3}))
    reference = Reference.parse("a.json", "a/1")
    assert register(SchemaRegistry(f"http://{address}"), "s/1", "{}", "JSON", [reference]) == 3
    ((path, _, body),) = requests
    assert path == "/subjects/s%2F1/versions"
    assert json.loads(body) == {
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "a.json", "subject": "a", "version": 1}],
    }


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            (409, {"message": "incompatible"}),
            ConfigError,
            "subject s does not take the schema: .*incompatible",
        ),
        ((403, {"message": "no"}), RegistryDenied, "HTTP 403"),
        ((200, {}), RegistryError, "malformed"),
    ],
    ids=str,
)
def test_a_registration_that_fails_says_why(serve, answer, error, text):
    address, _ = serve(answer)
    with pytest.raises(error, match=text):
        register(SchemaRegistry(f"http://{address}"), "s", "{}")
