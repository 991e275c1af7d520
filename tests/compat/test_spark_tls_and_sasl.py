"""Spark's tasks read from Apache Kafka over TLS, with each of its SASL mechanisms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import Kafka, free_port
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.spark.certificates import PASSWORD, Certificates

from barnabas.client.errors import AuthenticationError
from barnabas.spark import clients
from barnabas.spark.arrow import arrow_schema
from barnabas.spark.clients import consumer_settings
from barnabas.spark.fetch import read_ranges
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.topics import TopicLookup

VALUES = [b"%d" % number for number in range(5_000)]
LISTENERS = {
    "sasl_ssl": ("SECURE", "SASL_SSL"),
    "sasl_plaintext": ("OPEN", "SASL_PLAINTEXT"),
    "ssl": ("MUTUAL", "SSL"),
}
USER = {"sasl.username": "ann", "sasl.password": "correct horse"}
MECHANISMS = {
    "PLAIN": USER,
    "SCRAM-SHA-256": USER,
    "SCRAM-SHA-512": USER,
    "OAUTHBEARER": {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=ann",
    },
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def addresses(
    classpath: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Start Apache Kafka with 5,000 records in the topic `t`. Return its address for
    each security protocol.
    """
    folder = tmp_path_factory.mktemp("secure-kafka")
    ports = {protocol: f"127.0.0.1:{free_port()}" for protocol in LISTENERS}
    kafka = Kafka(folder)
    kafka.port = free_port()
    kafka.settings = tuple(_settings(kafka.bootstrap, ports, certificates, folder))
    kafka.start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion("ann", info, USER["sasl.password"].encode())
            admin.alter_user_scram_credentials([change])["ann"].result(30)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "linger.ms": 5})
        for value in VALUES:
            producer.produce("t", value)
        assert producer.flush(30) == 0
        yield ports
    finally:
        kafka.stop()


def _settings(plain: str, ports: dict[str, str], certificates: Certificates, folder: Path) -> list[str]:
    store = folder / "server.pem"
    store.write_text(certificates.server_key.read_text() + certificates.server.read_text())
    controller = f"127.0.0.1:{free_port()}"
    listeners = [f"{name}://{ports[protocol]}" for protocol, (name, _) in LISTENERS.items()]
    kinds = [f"{name}:{kind}" for name, kind in LISTENERS.values()]
    login = "org.apache.kafka.common.security"
    jaas = {
        "plain": f'{login}.plain.PlainLoginModule required user_ann="{USER["sasl.password"]}";',
        "scram-sha-256": f"{login}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{login}.scram.ScramLoginModule required;",
        "oauthbearer": f"{login}.oauthbearer.OAuthBearerLoginModule required;",
    }
    return [
        f"controller.quorum.voters=1@{controller}",
        f"listeners={','.join([f'PLAINTEXT://{plain}', f'CONTROLLER://{controller}', *listeners])}",
        f"advertised.listeners={','.join([f'PLAINTEXT://{plain}', *listeners])}",
        f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{','.join(kinds)}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={store}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.authority}",
        "listener.name.mutual.ssl.client.auth=required",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        *(
            f"listener.name.{name}.{mechanism}.sasl.jaas.config={line}"
            for name in ("secure", "open")
            for mechanism, line in jaas.items()
        ),
    ]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    objects: dict[object, object] = {}
    monkeypatch.setattr(clients, "_kept", objects)
    yield
    for each in objects.values():
        if isinstance(each, TopicLookup):
            each.brokers.close()


def read(servers: str, **settings: str) -> list[bytes]:
    batches = read_ranges(
        [OffsetRange("t", 0, 0, len(VALUES))],
        consumer_settings({"bootstrap.servers": servers, **settings}),
        arrow_schema(["value"]),
        fail_on_data_loss=True,
        poll_timeout_s=30,
    )
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["sasl_ssl", "sasl_plaintext"])
def test_a_task_reads_with_sasl(
    addresses: dict[str, str], certificates: Certificates, kept: None, protocol: str, mechanism: str
) -> None:
    settings = {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(certificates.authority),
        **MECHANISMS[mechanism],
    }
    assert read(addresses[protocol], **settings) == VALUES


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_stranger_is_told_so(
    addresses: dict[str, str], certificates: Certificates, kept: None, mechanism: str
) -> None:
    wrong = {"sasl.password": "guess", "sasl.oauthbearer.config": "principal=ann lifeSeconds=-9"}
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(certificates.authority),
        **MECHANISMS[mechanism],
        **wrong,
    }
    with pytest.raises(AuthenticationError, match=f"rejects the login by {mechanism}: "):
        read(addresses["sasl_ssl"], **settings)


def test_a_task_reads_with_its_own_certificate(
    addresses: dict[str, str], certificates: Certificates, kept: None
) -> None:
    settings = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(certificates.authority),
        "ssl.certificate.location": str(certificates.client),
        "ssl.key.location": str(certificates.client_key),
        "ssl.key.password": PASSWORD,
    }
    assert read(addresses["ssl"], **settings) == VALUES
