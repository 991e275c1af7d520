"""A broker requests its keys for GSSAPI at its start."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.kerberos_keys import open_kerberos
from barnabas.kafka.security.errors import SaslError

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
LISTENER = Endpoint("CLIENTS", "127.0.0.1", 9092, "SASL_PLAINTEXT")
OPEN = Endpoint("OPEN", "127.0.0.1", 9093, "PLAINTEXT")
JAAS = "listener.name.clients.gssapi.sasl.jaas.config"


class GSSError(Exception):
    pass


class Name:
    def __init__(self, text: str, kind: str) -> None:
        self.text, self.kind = text, kind

    def canonicalize(self, mechanism: str) -> str:
        return f"{self.text}@EXAMPLE.COM"


class SecurityContext:
    """A security context that accepts the token b"ticket" of alice."""

    complete = False
    initiator_name = "alice@EXAMPLE.COM"

    def __init__(self, creds: object, usage: str) -> None:
        assert usage == "accept"

    def step(self, token: bytes) -> bytes | None:
        if token != b"ticket":
            raise GSSError("Major (851968): Unspecified GSS failure.\nMinor: Request ticket server not found")
        self.complete = True
        return None

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        return SimpleNamespace(message=message)

    def unwrap(self, message: bytes) -> SimpleNamespace:
        return SimpleNamespace(message=message)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, object]]:
    """Return the requested keys: name, kind, keytab. The system's Kerberos has none in /missing."""
    asked: list[tuple[str, str, object]] = []

    def credentials(name: Name, usage: str, store: dict[str, str] | None = None) -> str:
        keytab = (store or {}).get("keytab")
        if keytab == "/missing":
            raise GSSError("Major (851968): no such file")
        asked.append((name.text, name.kind, keytab))
        return "keys"

    package = SimpleNamespace(
        Credentials=credentials,
        MechType=SimpleNamespace(kerberos="kerberos"),
        Name=Name,
        NameType=SimpleNamespace(hostbased_service="service", kerberos_principal="principal", user="user"),
        SecurityContext=SecurityContext,
        exceptions=SimpleNamespace(GSSError=GSSError),
    )
    monkeypatch.setitem(sys.modules, "gssapi", package)
    return asked


def config(**settings: str) -> BrokerConfig:
    given = {"sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-512"}
    return BrokerConfig.from_text(given | {name.replace("_", "."): text for name, text in settings.items()})


def with_jaas(options: str, **settings: str) -> BrokerConfig:
    return config(**settings, **{JAAS: f"{MODULE} required {options};"})


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (config(sasl_kerberos_service_name="kafka"), ("kafka", "service", None)),
        (
            with_jaas('keyTab="/etc/kafka.keytab" principal="kafka/b1@EXAMPLE.COM"'),
            ("kafka/b1@EXAMPLE.COM", "principal", "/etc/kafka.keytab"),
        ),
        (
            with_jaas('keyTab="/etc/kafka.keytab" principal="*" serviceName="kafka"'),
            ("kafka", "service", "/etc/kafka.keytab"),
        ),
        (
            config(
                sasl_kerberos_service_name="kafka",
                sasl_jaas_config='ScramLoginModule required username="admin" password="x";',
            ),
            ("kafka", "service", None),
        ),
    ],
)
def test_a_listener_has_the_keys_that_its_settings_name(
    asked: list[tuple[str, str, object]], given: BrokerConfig, keys: tuple[str, str, object]
) -> None:
    assert list(open_kerberos(given, [OPEN, LISTENER])) == ["CLIENTS"]
    assert asked == [keys]


def test_a_setting_of_tickets_that_has_no_effect_is_told(
    asked: list[tuple[str, str, object]], caplog: pytest.LogCaptureFixture
) -> None:
    """The warning is only for a listener with Kerberos. Elsewhere Kafka's tools may set such values."""
    open_kerberos(config(sasl_kerberos_service_name="kafka"), [LISTENER])
    open_kerberos(BrokerConfig.from_text({"sasl.kerberos.kinit.cmd": "/opt/kinit"}), [LISTENER])
    assert "no effect" not in caplog.text
    given = config(sasl_kerberos_service_name="kafka", sasl_kerberos_kinit_cmd="/opt/kinit")
    open_kerberos(given, [LISTENER])
    assert "sasl.kerberos.kinit.cmd=/opt/kinit has no effect" in caplog.text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (config(), "GSSAPI needs sasl.kerberos.service.name"),
        (
            with_jaas('serviceName="a"', sasl_kerberos_service_name="b"),
            "name=b, and serviceName .* is a: remove",
        ),
        (
            with_jaas('keyTab="/missing" principal="kafka/b1@EXAMPLE.COM"'),
            "keys of kafka/b1@EXAMPLE.COM cannot be read from the keytab /missing: .*no such file",
        ),
        (
            config(
                sasl_kerberos_service_name="kafka", sasl_kerberos_principal_to_local_rules="DEFAULT,RULE:x"
            ),
            "has 'RULE:x', which is not a rule",
        ),
    ],
)
def test_a_broker_that_could_accept_no_ticket_does_not_start(
    asked: list[tuple[str, str, object]], given: BrokerConfig, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_kerberos(given, [LISTENER])


def test_without_the_package_the_start_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)  # import raises
    with pytest.raises(ConfigError, match=r"install '\.\[gssapi\]'"):
        open_kerberos(config(sasl_kerberos_service_name="kafka"), [LISTENER])
    assert open_kerberos(BrokerConfig.from_text({}), [LISTENER]) == {}, "who does not use it does not need it"


def test_what_kerberos_refuses_fails_the_login(asked: list[tuple[str, str, object]]) -> None:
    begin = open_kerberos(config(sasl_kerberos_service_name="kafka"), [LISTENER])["CLIENTS"]
    with pytest.raises(SaslError, match=r"Kerberos refuses it: .*failure\. Minor: Request ticket"):
        begin().respond(b"not a ticket")
    login = begin()
    assert login.respond(b"ticket") == b"\x01\x00\x00\x00"
    login.respond(b"\x01\x00\x00\x00")
    assert (login.is_complete, login.user) == (True, "alice")
