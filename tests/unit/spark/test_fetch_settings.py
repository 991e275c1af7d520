"""The kafka.* settings of reads: librdkafka's names, and errors for those without an effect."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.client.repeated import MAX_RESPONSE
from barnabas.spark.clients import consumer_settings
from barnabas.spark.fetch_settings import FetchSettings

SERVERS = {"bootstrap.servers": "a:1"}


def test_the_defaults_are_javas_but_for_shorter_waits_and_larger_fetches() -> None:
    settings = FetchSettings.parse(consumer_settings(SERVERS))
    assert (settings.read_committed, settings.check_crcs) == (False, True)
    assert (settings.max_bytes, settings.partition_max_bytes) == (52_428_800, 4_194_304)
    assert settings.max_wait_ms == 20
    assert (settings.security.tls, settings.security.sasl) == (None, None)


def test_what_is_given_is_taken() -> None:
    settings = FetchSettings.parse(
        {
            **SERVERS,
            "isolation.level": "read_committed",
            "check.crcs": "False",
            "max.partition.fetch.bytes": "1000",
            "client.id": "mine",
            "socket.timeout.ms": 1500,
            "fetch.wait.max.ms": 4000,
        }
    )
    assert settings.read_committed
    assert not settings.check_crcs
    assert (settings.partition_max_bytes, settings.client_id) == (1000, "mine")
    assert settings.max_wait_ms == 4000
    assert settings.timeout_s == 5.5, "for the broker may take the 4 seconds before it answers"


def test_no_more_is_asked_for_than_a_connection_takes_as_a_response() -> None:
    settings = FetchSettings.parse({**SERVERS, "fetch.max.bytes": "2147483135"})
    assert settings.max_bytes < MAX_RESPONSE


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1, b:2,", (("a", 1), ("b", 2))),
        ("a", (("a", 9092),)),
        ("[::1]:5", (("::1", 5),)),
        ("[::1]", (("::1", 9092),)),
        ("SASL_SSL://a:1", (("a", 1),)),
    ],
)
def test_servers_are_written_as_librdkafka_takes_them(
    servers: str, addresses: tuple[tuple[str, int], ...]
) -> None:
    assert FetchSettings.parse({"bootstrap.servers": servers}).servers == addresses


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bootstrap.servers", "a:b", "option kafka.bootstrap.servers=a:b is not allowed: write HOST:PORT"),
        ("bootstrap.servers", "a:1,b:90920", "option kafka.bootstrap.servers=b:90920 is not allowed: write"),
        ("fetch.max.bytes", "many", "option kafka.fetch.max.bytes=many is not allowed: write a whole number"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FetchSettings.parse({**SERVERS, name: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"kafka\.sasl\.mechanism=GSSAPI is not allowed: use PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "OAUTHBEARER"}, r"kafka\.sasl\.oauthbearer\.method=default is not allowed: set"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"},
            r"option kafka\.sasl\.oauthbearer\.token\.endpoint\.url is missing",
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            },
            r"grant\.type=urn:.* is not allowed: use client_credentials",
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://a/token",
                "sasl.oauthbearer.client.id": "spark",
                "sasl.oauthbearer.client.secret": "s3cret",
                "https.ca.location": "/no/such",
            },
            r"kafka\.https\.ca\.location=/no/such is not allowed: it cannot be",
        ),
        (
            {"ssl.keystore.location": "a.p12"},
            r"kafka\.ssl\.keystore\.location=a\.p12 is not allowed: it cannot be",
        ),
        ({"ssl.ca.location": "/no/such"}, r"kafka\.ssl\.ca\.location=/no/such is not allowed: it cannot be"),
        ({"ssl.cipher.suites": "NONE-SUCH"}, r"kafka\.ssl\.cipher\.suites=NONE-SUCH is not allowed: it"),
    ],
)
def test_security_that_reading_does_not_have_is_refused_with_a_cure(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        FetchSettings.parse({**SERVERS, "security.protocol": "sasl_ssl", **settings})


@pytest.mark.parametrize(
    "name", ["sasl.oauthbearer.assertion.private.key.pem", "ssl.certificate.pem", "ssl.ca.pem"]
)
def test_what_may_hold_a_private_key_is_not_repeated_in_the_message(name: str) -> None:
    pem = "-----BEGIN PRIVATE KEY-----\npssst\n-----END PRIVATE KEY-----"
    with pytest.raises(ConfigError, match=rf"option kafka\.{name}=\[hidden\] is not allowed") as caught:
        FetchSettings.parse({**SERVERS, "security.protocol": "ssl", name: pem})
    assert "\n" not in str(caught.value)


def test_names_and_certificates_are_checked_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    def tls(**settings: str) -> ssl.SSLContext:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        context = FetchSettings.parse({**SERVERS, "security.protocol": "SSL", **given}).security.tls
        assert context is not None
        return context

    assert (tls().check_hostname, tls().verify_mode) == (True, ssl.CERT_REQUIRED)
    nameless = tls(ssl_endpoint_identification_algorithm="none")
    assert (nameless.check_hostname, nameless.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert tls(enable_ssl_certificate_verification="false").verify_mode == ssl.CERT_NONE
    assert tls(ssl_ca_location=str(tmp_path)).get_ca_certs() == [], "only what is in the folder"
