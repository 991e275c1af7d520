"""Apache Kafka requires the same permissions as Barnabas, for each API and each operation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import Kafka
from tests.compat.secure_kafka import secure_settings
from tests.integration.acl_broker import PASSWORD, AclBroker, log_in
from tests.integration.acl_walk import NEEDS, prepare, walk
from tests.integration.conftest import Wire
from tools.docs.kafka_apis import KAFKA_APIS

from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

USERS = dict.fromkeys(("admin", "alice"), PASSWORD)
NAMES = [api.name for api in load().values() if api.name in NEEDS and api.key in KAFKA_APIS]


class SecureKafka(Kafka):
    """Apache Kafka with logins by password and with ACLs."""

    settings = (*secure_settings(USERS), "delegation.token.secret.key=a secret of the cluster")


@pytest.fixture(scope="module")
def secure(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    kafka = SecureKafka(Path(tmp_path_factory.mktemp("acls")))
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def admin(secure: Kafka) -> Iterator[Wire]:
    admin = log_in(secure.bootstrap, "admin", USERS["admin"])
    prepare(admin)
    yield admin
    admin.close()


@pytest.fixture
def alice(secure: Kafka, admin: Wire) -> Iterator[Wire]:
    alice = log_in(secure.bootstrap, "alice", USERS["alice"])
    yield alice
    alice.close()


@pytest.mark.parametrize("name", NAMES)
def test_apache_kafka_needs_the_same(name, admin, alice):
    assert walk(name, admin, alice, "alice") == []


ACLS = "org.apache.kafka.tools.AclCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


@pytest.fixture(scope="module")
def barnabas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    with AclBroker(tmp_path_factory.mktemp("barnabas")) as broker:
        broker.add("alice")
        wire = Wire(broker.open_address)
        prepare(wire)
        wire.close()
        yield broker


def test_kafka_acls_manages_rules_and_the_java_producer_obeys_them(java, barnabas, tmp_path):
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{PASSWORD}";\n'
    )

    def acls(*words: str) -> str:
        return java.run(ACLS, "--bootstrap-server", barnabas.open_address, *words)

    def produce(value: str) -> str:
        words = ["--bootstrap-server", barnabas.address, "--topic", "walked"]
        return java.run(PRODUCER, *words, "--command-config", str(login), stdin=f"{value}\n")

    produce("refused")  # the console producer only logs what it is refused
    prefixed = ("--topic", "walk", "--resource-pattern-type", "prefixed")
    acls("--add", "--allow-principal", "User:alice", "--producer", *prefixed)
    listed = acls("--list", "--topic", "walked", "--resource-pattern-type", "match")
    assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed
    assert "patternType=PREFIXED" in listed
    produce("written")
    consumer = Wire(barnabas.open_address)
    fetch = FetchRequest(
        topics=[
            FetchTopic(topic="walked", partitions=[FetchPartition(partition=0, partition_max_bytes=10_000)])
        ],
        session_epoch=-1,
        max_bytes=10_000,
    )
    records = bytes(consumer(fetch, 12).responses[0].partitions[0].records)
    consumer.close()
    assert b"written" in records and b"refused" not in records
    acls("--remove", "--force", *prefixed)
    assert "alice" not in acls("--list")
