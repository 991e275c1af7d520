"""A registry with HTTPS and logins, which allows each user what the cluster's ACLs allow."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from barnabas.base.errors import ConfigError
from barnabas.client.errors import AuthenticationError
from barnabas.client.servers import Servers
from barnabas.registry.access import ClusterAccess, _try_login, topic_of
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.registry.tls import TlsFile
from barnabas.testing.secure_broker import SecureBroker

ORDERS = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
INVOICE = json.dumps({"type": "record", "name": "Invoice", "fields": [{"name": "id", "type": "long"}]})


class Secured:
    """A registry beside a secured broker."""

    def __init__(self, broker: SecureBroker, server: RegistryServer) -> None:
        self.broker = broker
        self.url = server.url
        self.authority = str(broker.certificates.authority)

    def client(self, user: str) -> SchemaRegistryClient:
        """Return Confluent's client, with the settings that a user would use."""
        login = self.broker.client(user)
        return SchemaRegistryClient(
            {
                "url": self.url,
                "basic.auth.user.info": f"{user}:{login['sasl.password']}",
                "ssl.ca.location": self.authority,
            }
        )

    def ask(self, path: str, user: str = "", password: str = "", method: str = "GET") -> Any:
        """Send a request, and return the status and the body."""
        request = urllib.request.Request(self.url + path, method=method)
        if user:
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {encoded}")
        context = ssl.create_default_context(cafile=self.authority)
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def registry() -> Iterator[Secured]:
    with SecureBroker() as broker, pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.registry.access.RULES_S", 0.2)
        key = str(broker.certificates.pem("server"))
        # Rules that a test adds before it asks for the first time must be known: they are granted here.
        broker.client("alice")
        broker.client("bob")
        broker.grant("alice", "READ", "WRITE", topic="orders")
        broker.grant("alice", "ALTER_CONFIGS", topic="orders")
        broker.grant("bob", "READ", topic="orders")
        broker.grant("bob", "WRITE", topic="com.example.*")
        settings = RegistrySettings(broker.bootstrap_servers, tls=key, login=True)
        with RegistryServer(settings, claim("127.0.0.1:0")) as server:
            assert server.url.startswith("https://")
            yield Secured(broker, server)


def test_confluents_client_registers_and_reads_what_its_user_may(registry: Secured) -> None:
    alice, bob, admin = (registry.client(user) for user in ("alice", "bob", "admin"))
    with alice, bob, admin:
        order = alice.register_schema("orders-value", Schema(ORDERS, "AVRO"))
        assert bob.get_latest_version("orders-value").schema_id == order
        assert json.loads(bob.get_schema(order).schema_str) == json.loads(ORDERS)
        _is_denied(lambda: bob.register_schema("orders-key", Schema(ORDERS, "AVRO")), "WRITE")
        _is_denied(lambda: bob.delete_subject("orders-value"), "DELETE")
        _is_denied(lambda: bob.set_compatibility("orders-value", "FULL"), "ALTER_CONFIGS")
        assert alice.set_compatibility("orders-value", "FULL")
        _is_denied(lambda: alice.set_compatibility(level="FULL"), "ALTER_CONFIGS")
        invoice = admin.register_schema("invoices-value", Schema(INVOICE, "AVRO"))
        bob.register_schema("com.example.Order", Schema(ORDERS, "AVRO"))
        assert set(admin.get_subjects()) >= {"orders-value", "invoices-value", "com.example.Order"}
        assert alice.get_subjects() == ["orders-value"]
        assert sorted(bob.get_subjects()) == ["com.example.Order", "orders-value"]
        _is_denied(lambda: alice.get_latest_version("invoices-value"), "DESCRIBE")
        _is_denied(lambda: alice.get_latest_version("nobodys-value"), "DESCRIBE")
        with pytest.raises(SchemaRegistryError) as missing:
            alice.get_schema(invoice)
        assert missing.value.http_status_code == 404
        reference = {"name": "com.example.Invoice", "subject": "invoices-value", "version": 1}
        password = registry.broker.client("alice")["sasl.password"]
        assert registry.ask(f"/schemas/ids/{order}/subjects", "alice", password) == (200, ["orders-value"])
        status, all_schemas = registry.ask("/schemas", "alice", password)
        assert status == 200 and {each["subject"] for each in all_schemas} == {"orders-value"}
        request = {"schema": INVOICE, "references": [reference]}
        _is_denied(lambda: alice.register_schema("orders-value", _schema_of(request)), "DESCRIBE")


def _schema_of(request: dict[str, Any]) -> Schema:
    from confluent_kafka.schema_registry import SchemaReference

    references = [
        SchemaReference(each["name"], each["subject"], each["version"]) for each in request["references"]
    ]
    return Schema(request["schema"], "AVRO", references)


def _is_denied(attempt: Any, operation: str) -> None:
    with pytest.raises(SchemaRegistryError, match=f"denied operation {operation}") as denied:
        attempt()
    assert denied.value.http_status_code == 403 and denied.value.error_code == 40301


def test_a_registry_whose_login_the_broker_rejects_says_so_and_ends(registry: Secured) -> None:
    servers = Servers(
        str(registry.broker.bootstrap_servers), {**registry.broker.client("admin"), "sasl.password": "guess"}
    )
    server = RegistryServer(RegistrySettings(servers), claim("127.0.0.1:0")).start()
    with pytest.raises(AuthenticationError, match="rejects the login"):
        server.wait_until_ready()


@pytest.mark.parametrize("path", ["/", "/subjects", "/schemas/ids/1", "/config", "/no/such/address"])
def test_nothing_is_told_without_a_login(registry: Secured, path: str) -> None:
    refusal = (401, {"error_code": 401, "message": "Unauthorized"})
    assert registry.ask(path) == refusal
    assert registry.ask(path, "alice", "wrong") == refusal
    assert registry.ask(path, "nobody", "wrong") == refusal


def test_a_user_who_is_deleted_is_not_let_in_for_long(
    registry: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.registry.access.LOGIN_S", 0.0)
    password = registry.broker.client("carol")["sasl.password"]
    assert registry.ask("/subjects", "carol", password) == (200, [])
    registry.broker.admin().delete_user("carol")
    assert registry.ask("/subjects", "carol", password)[0] == 401


def test_a_login_that_is_remembered_ends_with_its_user(
    registry: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logins of other users stay valid without another login at the broker."""
    tried: list[str] = []

    def try_login(servers: Servers) -> None:
        tried.append(servers.settings["sasl.username"])
        _try_login(servers)

    monkeypatch.setattr("barnabas.registry.access._try_login", try_login)
    passwords = {user: registry.broker.client(user)["sasl.password"] for user in ("dave", "erin")}
    for user, password in passwords.items():
        assert registry.ask("/subjects", user, password) == (200, [])
    registry.broker.admin().delete_user("dave")
    deadline = time.monotonic() + 60
    while registry.ask("/subjects", "dave", passwords["dave"])[0] != 401:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert registry.ask("/subjects", "erin", passwords["erin"]) == (200, [])
    assert tried.count("erin") == 1


def test_a_registry_that_does_not_log_in_itself_asks_nobody_to() -> None:
    with pytest.raises(ConfigError, match="only if it logs in to the brokers itself"):
        ClusterAccess("127.0.0.1:9092")


def test_a_new_certificate_is_shown_and_one_that_is_half_written_is_not(
    registry: Secured, tmp_path: Path
) -> None:
    folder = registry.broker.certificates
    path = tmp_path / "registry.pem"
    path.write_bytes(folder.pem("server").read_bytes())
    tls = TlsFile(str(path))
    folder.issue("other", ("localhost",))
    whole = folder.pem("other").read_bytes()
    path.write_bytes(whole[:300])
    tls.check()
    assert "localhost" in _shown(tls) and "127.0.0.1" in _shown(tls)
    path.write_bytes(whole)
    tls.check()
    assert _shown(tls) == {"localhost"}


def _shown(tls: TlsFile) -> set[str]:
    """Return the names in the certificate that the registry shows."""
    from barnabas.base.tls.certificates import describe

    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        tls.context.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    certificate = ends[0].getpeercert(binary_form=True)
    assert certificate is not None
    return set(describe(certificate).hosts)


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", "orders"),
        ("orders-key", "orders"),
        ("com.example.Order", "com.example.Order"),
        ("orders-com.example.Order", "orders-com.example.Order"),
        ("-value", "-value"),
        (":.staging:orders-value", ":.staging:orders"),
    ],
)
def test_a_subject_has_the_rules_of_its_topic(subject: str, topic: str) -> None:
    assert topic_of(subject) == topic
