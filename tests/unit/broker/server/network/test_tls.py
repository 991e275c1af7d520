"""Valid TLS settings of a broker, and the errors for invalid ones."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.certificates import Certificates, make

from barnabas.base.errors import ConfigError
from barnabas.base.tls.certificates import Authority, java_truststore
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.tls import peer_context, tls_context, trial_certificate


def config(certificates: Certificates, **settings: str) -> BrokerConfig:
    return BrokerConfig.from_text({"ssl.keystore.location": str(certificates.server), **settings})


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    encrypted = make(tmp_path, b"opensesame")
    tls_context(config(encrypted, **{"ssl.key.password": "opensesame"}))
    for password in ("wrong", ""):
        with pytest.raises(ConfigError, match=r"ssl\.keystore\.location=.* cannot be used") as told:
            tls_context(config(encrypted, **{"ssl.key.password": password}))
        assert "opensesame" not in str(told.value)


def test_clients_certificates_are_asked_for_as_set(certificates: Certificates) -> None:
    trust = {"ssl.truststore.location": str(certificates.authority)}
    for text, mode in (
        ("none", ssl.CERT_NONE),
        ("requested", ssl.CERT_OPTIONAL),
        ("required", ssl.CERT_REQUIRED),
    ):
        context = tls_context(config(certificates, **{"ssl.client.auth": text}, **trust))
        assert context.verify_mode is mode


def test_only_the_versions_that_are_named_are_spoken(certificates: Certificates) -> None:
    context = tls_context(config(certificates, **{"ssl.enabled.protocols": "TLSv1.2"}))
    assert context.minimum_version is context.maximum_version is ssl.TLSVersion.TLSv1_2
    both = tls_context(config(certificates))
    assert (both.minimum_version, both.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    )


def test_nothing_is_negotiated_again(certificates: Certificates) -> None:
    assert tls_context(config(certificates)).options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"ssl.keystore.location": "/nowhere.pem"},
            r"ssl\.keystore\.location=/nowhere\.pem cannot be read: No",
        ),
        (
            {"ssl.truststore.location": "/nowhere.pem"},
            r"ssl\.truststore\.location=/nowhere\.pem cannot be read",
        ),
        ({"ssl.client.auth": "required"}, r"ssl\.client\.auth=required needs ssl\.truststore\.location"),
        ({"ssl.cipher.suites": "NONE-SUCH"}, r"ssl\.cipher\.suites=NONE-SUCH is not allowed"),
        ({"ssl.keystore.type": "JKS"}, r"ssl\.keystore\.type=JKS is not allowed: .*keytool "),
        ({"ssl.truststore.type": "JKS"}, r"ssl\.truststore\.type=JKS is not allowed: .*keytool "),
        ({"ssl.enabled.protocols": ""}, r"ssl\.enabled\.protocols is empty"),
    ],
)
def test_what_cannot_be_used_is_told_with_the_cure(
    certificates: Certificates, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        tls_context(config(certificates, **settings))


def test_stores_may_be_pkcs12_and_a_wrong_password_is_told(tmp_path: Path) -> None:
    authority = Authority.create("tests", datetime.now(UTC))
    key, trust, jks = tmp_path / "broker.p12", tmp_path / "trust.p12", tmp_path / "old.jks"
    key.write_bytes(authority.issue("broker", ["localhost"], datetime.now(UTC)).pkcs12("broker", "sesame"))
    trust.write_bytes(java_truststore([authority.certificate], "changeit"))
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    settings = {
        "ssl.keystore.location": str(key),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": "sesame",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": "changeit",
        "ssl.client.auth": "required",
    }
    context = tls_context(BrokerConfig.from_text(settings))
    assert len(context.get_ca_certs()) == 1
    assert trial_certificate(BrokerConfig.from_text(settings))
    for change, words in (
        ({"ssl.keystore.password": "guess"}, r"ssl\.keystore\.location=.*ssl\.keystore\.password is that"),
        ({"ssl.truststore.password": "guess"}, r"ssl\.truststore\.location=.*ssl\.truststore\.password is"),
        ({"ssl.keystore.location": str(trust), "ssl.keystore.password": "changeit"}, "no private key"),
        ({"ssl.keystore.location": str(jks)}, "it is a JKS store.*keytool -importkeystore"),
        ({"ssl.truststore.location": str(jks)}, "it is a JKS store.*keytool -importkeystore"),
    ):
        with pytest.raises(ConfigError, match=words) as told:
            tls_context(BrokerConfig.from_text({**settings, **change}))
        assert "guess" not in str(told.value)


def test_brokers_trust_each_other_only_by_the_trust_store(certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location is not set"):
        peer_context(config(certificates))
    context = peer_context(config(certificates, **{"ssl.truststore.location": str(certificates.authority)}))
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_a_broker_offers_other_brokers_only_the_cipher_suites_that_are_set(
    certificates: Certificates,
) -> None:
    suite = "ECDHE-ECDSA-AES256-GCM-SHA384"
    trust = {"ssl.truststore.location": str(certificates.authority), "ssl.enabled.protocols": "TLSv1.2"}
    context = peer_context(config(certificates, **{"ssl.cipher.suites": suite}, **trust))
    assert [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"] == [suite]


def test_a_file_without_a_key_is_told(certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match="must be a PEM file with a private key"):
        tls_context(config(certificates, **{"ssl.keystore.location": str(certificates.authority)}))
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location is not set"):
        tls_context(BrokerConfig())


def test_key_and_certificates_may_be_settings_themselves(tmp_path: Path) -> None:
    """The forms are those of Java: PKCS#8, encrypted or not, with spaces instead of line ends."""
    authority = Authority.create("tests", datetime.now(UTC))
    issued = authority.issue("broker", ["localhost"], datetime.now(UTC))
    trusted = authority.certificate.decode()
    chain = (issued.certificate + authority.certificate).decode()
    encrypted = make(tmp_path, b"opensesame").server.read_text()
    key, end, certificate = encrypted.partition("-----END ENCRYPTED PRIVATE KEY-----")
    for settings in (
        {"ssl.keystore.key": issued.key.decode(), "ssl.keystore.certificate.chain": chain},
        {
            "ssl.keystore.key": issued.key.decode().replace("\n", " "),
            "ssl.keystore.certificate.chain": chain.replace("\n", " "),
        },
        {
            "ssl.keystore.key": key + end,
            "ssl.keystore.certificate.chain": certificate,
            "ssl.key.password": "opensesame",
        },
    ):
        config = BrokerConfig.from_text(
            {**settings, "ssl.client.auth": "required", "ssl.truststore.certificates": trusted}
        )
        assert len(tls_context(config).get_ca_certs()) == 1
        assert trial_certificate(config)
        assert peer_context(config).check_hostname
        assert "PRIVATE" not in str(BrokerConfig.find("ssl.keystore.key").invalid_value(issued.key, "no"))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ssl.keystore.location": "/a.pem"}, "and ssl.keystore.key are both set: remove one"),
        ({"ssl.keystore.certificate.chain": None}, "are only used together: set both"),
        ({"ssl.keystore.key": None}, "are only used together: set both"),
        (
            {"ssl.keystore.key": "/a/secret/path.pem"},
            "ssl.keystore.key cannot be used: it must be one private",
        ),
        (
            {"ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nse?cret\n-----END PRIVATE KEY-----"},
            "its PRIVATE KEY is not base64",
        ),
        (
            {"ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----"},
            "ssl.keystore.key cannot be used",
        ),
        ({"ssl.keystore.certificate.chain": "secret"}, "it must be certificates alone"),
        ({"ssl.truststore.certificates": "secret"}, "ssl.truststore.certificates cannot be used: it must be"),
        ({"ssl.truststore.location": "/a.pem"}, "and ssl.truststore.certificates are both set: remove one"),
    ],
)
def test_settings_with_keys_are_told_by_their_names_and_never_repeated(
    changed: dict[str, str | None], told: str
) -> None:
    authority = Authority.create("tests", datetime.now(UTC))
    issued = authority.issue("broker", ["localhost"], datetime.now(UTC))
    settings = {
        "ssl.keystore.key": issued.key.decode(),
        "ssl.keystore.certificate.chain": issued.certificate.decode(),
        "ssl.truststore.certificates": authority.certificate.decode(),
        **changed,
    }
    config = BrokerConfig.from_text({name: text for name, text in settings.items() if text is not None})
    with pytest.raises(ConfigError) as refused:
        tls_context(config)
    assert told in str(refused.value)
    assert "secret" not in str(refused.value) and "se?cret" not in str(refused.value)
