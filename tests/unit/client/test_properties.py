"""Java's client properties as librdkafka's settings, and the errors for those without an equivalent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from tests.certificates import Certificates

from barnabas.client.errors import SettingError
from barnabas.client.properties import translate
from barnabas.client.servers import Servers

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOKEN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
SECRET = b"changeit"


def accepted(given: dict[str, str]) -> dict[str, str]:
    """Return the settings from `given`, after librdkafka and our own connection have accepted them."""
    settings = translate(given).settings
    _ = Servers("127.0.0.1:1", settings).security
    AdminClient({**settings, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    return settings


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        ('username="alice" password="wonderland"', "alice", "wonderland"),
        ("username='alice' password=wonderland", "alice", "wonderland"),
        (r'serviceName="x" username="a\"b\\c" password="; = #"', 'a"b\\c', "; = #"),
        ('\n  username="alice"\n  password="p"', "alice", "p"),
    ],
)
def test_user_and_password_come_out_of_jaas(options: str, user: str, password: str) -> None:
    settings = accepted({**LOGIN, "sasl.jaas.config": f"{SCRAM} {options};"})
    assert (settings["sasl.username"], settings["sasl.password"]) == (user, password)


def test_a_client_of_oauth_keeps_its_credentials_and_endpoint() -> None:
    settings = translate(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "oauthbearer",
            "sasl.jaas.config": f'{TOKEN} clientId="me" clientSecret="s" scope="all" extension_a="b";',
            "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
        }
    ).settings
    assert settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "all",
        "sasl.oauthbearer.extensions": "a=b",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
    }


def test_pem_stores_are_taken_as_files_and_inline(certificates: Certificates) -> None:
    of_files = accepted(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates.authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.client),
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert of_files["ssl.key.location"] == of_files["ssl.certificate.location"] == str(certificates.client)
    assert of_files["ssl.endpoint.identification.algorithm"] == "none"
    key, certificate = re.findall(
        r"-----BEGIN.*?-----END[^\n]*\n", certificates.client.read_text(), re.DOTALL
    )
    inline = accepted(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": certificates.authority.read_text(),
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": certificate,
        }
    )
    assert inline["ssl.key.pem"] == key


def test_pkcs12_stores_are_taken(certificates: Certificates, tmp_path: Path) -> None:
    authority = x509.load_pem_x509_certificate(certificates.authority.read_bytes())
    content = certificates.client.read_bytes()
    key = load_pem_private_key(content, None)
    certificate = x509.load_pem_x509_certificate(content)
    encryption = BestAvailableEncryption(SECRET)
    keys, trust = tmp_path / "client.jks", tmp_path / "trust.p12"  # names say nothing
    keys.write_bytes(serialize_key_and_certificates(b"me", key, certificate, [authority], encryption))
    trust.write_bytes(serialize_java_truststore([PKCS12Certificate(authority, b"ca")], encryption))
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": SECRET.decode(),
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": SECRET.decode(),
    }
    assert accepted(given)["ssl.ca.pem"] == certificates.authority.read_text()
    with pytest.raises(SettingError, match=r"ssl\.truststore\.password") as failure:
        translate({**given, "ssl.truststore.password": "guess"})
    assert "guess" not in str(failure.value)
    with pytest.raises(SettingError, match=r"ssl\.keystore\.location"):
        accepted({**given, "ssl.keystore.password": "guess"})


def test_what_says_nothing_of_connections_is_told_apart() -> None:
    assert translate(
        {"acks": "all", "group.id": "g", "client.id": "me", "sasl.login.retry.backoff.ms": "1"}
    ) == (
        {"client.id": "me"},
        ["acks", "group.id", "sasl.login.retry.backoff.ms"],
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"security.protocol": "TLS"}, "write PLAINTEXT, SSL"),
        ({"sasl.mechanisim": "PLAIN"}, "did you mean sasl.mechanism"),
        ({"bootstrap.server": "a:1"}, "did you mean bootstrap.servers"),
        ({"ssl.surprise": "1"}, "cannot be honoured"),
        ({"sasl.client.callback.handler.class": "x.Y"}, "Java classes do not run here"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "OAuthBearerLoginCallbackHandler"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "restrict the broker"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "OpenSSL's names"),
        ({**LOGIN}, "sasl.username is missing"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "use PLAIN"),
        ({**LOGIN, "sasl.jaas.config": f'{SCRAM} username="a" password="hunter2"'}, "semicolon"),
        ({**LOGIN, "sasl.jaas.config": "a.Krb5LoginModule required;"}, "Krb5LoginModule"),
        ({**LOGIN, "sasl.jaas.config": f'{SCRAM} tokenauth="true" password="hunter2";'}, "tokenauth"),
        ({**LOGIN, "sasl.password": "${env:hunter2}"}, "write the values themselves"),
        ({"ssl.truststore.location": "/nowhere"}, "cannot be read"),
    ],
)
def test_what_cannot_be_honoured_is_said_without_secrets(given: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=re.escape(words)) as failure:
        translate(given)
    assert "hunter2" not in str(failure.value) and "\n" not in str(failure.value)


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(SettingError, match="keytool -importkeystore"):
        translate({"ssl.truststore.location": str(store)})
