"""Apache Kafka's own tools over TLS and SCRAM, with the files that Barnabas makes for a secured broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.conftest import Java, ToolFailed

from barnabas.client.certificate_folder import TRUSTSTORE_PASSWORD
from barnabas.testing import SecureBroker

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureBroker]:
    with SecureBroker({"offsets.topic.num.partitions": "1"}) as broker:
        yield broker


def with_pkcs12(broker: SecureBroker, pem: Path, folder: Path) -> Path:
    """Return a copy of the client settings `pem` that uses a PKCS#12 truststore,
    which every Java version can read.
    """
    kept = [line for line in pem.read_text().splitlines() if not line.startswith("ssl.truststore")]
    kept += [
        "ssl.truststore.type=PKCS12",
        f"ssl.truststore.location={broker.certificates.truststore}",
        f"ssl.truststore.password={TRUSTSTORE_PASSWORD}",
    ]
    path = folder / "pkcs12.properties"
    path.write_text("\n".join(kept) + "\n")
    return path


@pytest.mark.parametrize("store", ["PEM", "PKCS12"])
def test_java_gets_in_by_either_truststore(
    java: Java, secured: SecureBroker, tmp_path: Path, store: str
) -> None:
    admin = secured.properties("admin")
    if store == "PKCS12":
        admin = with_pkcs12(secured, admin, tmp_path)
    access = ("--bootstrap-server", str(secured.bootstrap_servers), "--command-config", str(admin))
    topic = f"by-{store}"
    java.run(TOPICS, *access, "--create", "--topic", topic)
    assert topic in java.run(TOPICS, *access, "--list").splitlines()


def test_a_user_of_java_may_do_what_kafka_acls_grants(java: Java, secured: SecureBroker) -> None:
    secured.create_topic("orders", 1)
    server = ("--bootstrap-server", str(secured.bootstrap_servers))
    admin = ("--command-config", str(secured.properties("admin")))
    alice = str(secured.properties("alice"))
    with pytest.raises(ToolFailed, match="orders"):
        java.run(TOPICS, *server, "--command-config", alice, "--describe", "--topic", "orders")
    java.run(
        ACLS, *server, *admin, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders"
    )
    java.run(
        ACLS, *server, *admin, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders",
        "--group", "g",
    )  # fmt: skip
    java.run(PRODUCER, *server, "--command-config", alice, "--topic", "orders", stdin="apples\n")
    read = java.run(
        CONSUMER, *server, "--command-config", alice, "--topic", "orders", "--group", "g",
        "--from-beginning", "--max-messages", "1",
    )  # fmt: skip
    assert read == "apples\n"
