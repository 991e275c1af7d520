"""Apache Kafka's own tools, which log in with tokens of an identity provider and with certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import Certificates
from tests.compat.conftest import Java, ToolFailed
from tests.identity_provider import IdentityProvider

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def broker(
    provider: IdentityProvider, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerServer]:
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("data")),
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.location": str(certificates.authority),
        "listener.name.ssl.ssl.client.auth": "required",
        "offsets.topic.num.partitions": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # a token's user, and a certificate's as Java writes it
        "super.users": "User:root;User:CN=alice",
        **provider.settings(),
    }
    server = BrokerServer(BrokerConfig.from_text(settings))
    server.start()
    yield server
    server.stop()


def address(broker: BrokerServer, name: str) -> str:
    return next(endpoint.address for endpoint in broker.bound if endpoint.name == name)


def by_token(provider: IdentityProvider, certificates: Certificates, folder: Path, user: str) -> Path:
    path = folder / f"{user}.properties"
    path.write_text(
        f"""security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={certificates.authority}
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url={provider.url}/token
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
  clientId="{user}" clientSecret="secret";
"""
    )
    return path


def test_java_logs_in_by_a_token(
    java: Java, broker: BrokerServer, provider: IdentityProvider, certificates: Certificates, tmp_path: Path
) -> None:
    # Java asks nobody for tokens whom it was not told to (CVE-2025-27817)
    java.options.append(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/token")
    server = ("--bootstrap-server", address(broker, "SASL_SSL"))
    root = str(by_token(provider, certificates, tmp_path, "root"))
    java.run(TOPICS, *server, "--command-config", root, "--create", "--topic", "by-token")
    java.run(PRODUCER, *server, "--command-config", root, "--topic", "by-token", stdin="apples\npears\n")
    reading = ("--topic", "by-token", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    assert java.run(CONSUMER, *server, "--command-config", root, *reading) == "apples\npears\n"
    bob = str(by_token(provider, certificates, tmp_path, "bob"))
    with pytest.raises(ToolFailed, match="by-token"):
        java.run(TOPICS, *server, "--command-config", bob, "--describe", "--topic", "by-token")


def test_java_is_known_by_its_certificate(
    java: Java, broker: BrokerServer, certificates: Certificates, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", address(broker, "SSL"))
    alice = tmp_path / "alice.properties"
    alice.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificates.authority}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={certificates.client}\n"
    )
    java.run(TOPICS, *server, "--command-config", str(alice), "--create", "--topic", "by-certificate")
    listed = java.run(TOPICS, *server, "--command-config", str(alice), "--list")
    assert "by-certificate" in listed.splitlines()
