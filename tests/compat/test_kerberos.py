"""Logins by Kerberos tickets, with MIT's KDC: kafka-python, aiokafka and Apache Kafka's own tools.

They need Debian's krb5-kdc, krb5-admin-server and krb5-user, and the extra barnabas[gssapi].
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.conftest import Java, ToolFailed

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer

_PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin"
_MISSING = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
if importlib.util.find_spec("gssapi") is None:
    _MISSING.append("the package gssapi")
if _MISSING:
    pytest.skip(f"Kerberos is not here: {', '.join(_MISSING)}", allow_module_level=True)

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

REALM = "BARNABAS.TEST"


class Realm:
    """A Kerberos realm with its own KDC on the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "krb5.conf"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.conf.write_text(
            f"""[libdefaults]
  default_realm = {REALM}
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {REALM} = {{
    kdc = 127.0.0.1:{self._port}
  }}
"""
        )
        (folder / "kdc.conf").write_text(
            f"""[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{self._port}
[realms]
  {REALM} = {{
    database_name = {folder}/principals
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
  }}
"""
        )
        self.environment = {
            **os.environ,
            "PATH": _PATH,
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }
        self._run("kdb5_util", "create", "-s", "-P", "of the test", "-r", REALM)
        self._kdc = subprocess.Popen(
            ["krb5kdc", "-n", "-r", REALM], env=self.environment, stdout=subprocess.DEVNULL
        )

    def stop(self) -> None:
        self._kdc.terminate()
        self._kdc.wait(60)

    def keytab(self, principal: str) -> Path:
        """Create a principal with random keys, and return its key table."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def tickets(self, principal: str) -> Path:
        """Log in a new principal, and return the path of its tickets (KRB5CCNAME)."""
        path = self.folder / f"{principal}.tickets"
        self._run("kinit", "-k", "-t", str(self.keytab(principal)), "-c", str(path), principal)
        return path

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    realm = Realm(tmp_path_factory.mktemp("kerberos"))
    before = os.environ.get("KRB5_CONFIG")
    os.environ["KRB5_CONFIG"] = str(realm.conf)  # of the clients and of the broker, which are in this process
    try:
        yield realm
    finally:
        os.environ.pop("KRB5_CONFIG")
        if before is not None:
            os.environ["KRB5_CONFIG"] = before
        realm.stop()


def jaas(keytab: Path, principal: str) -> str:
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="{principal}@{REALM}";'
    )


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    keytab = realm.keytab("kafka/localhost")
    settings = {
        "log.dirs": str(tmp_path_factory.mktemp("data")),
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas(keytab, "kafka/localhost"),
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2],DEFAULT",
        "offsets.topic.num.partitions": "1",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:etl-node",
    }
    server = BrokerServer(BrokerConfig.from_text(settings))
    server.start()
    yield server
    server.stop()


def address(broker: BrokerServer) -> str:
    port = next(endpoint.port for endpoint in broker.bound if endpoint.name == "SASL_PLAINTEXT")
    return f"localhost:{port}"


def by_ticket(monkeypatch: pytest.MonkeyPatch, tickets: Path, broker: BrokerServer) -> dict[str, str]:
    """Return common settings of kafka-python and aiokafka."""
    monkeypatch.setenv("KRB5CCNAME", str(tickets))
    return {
        "bootstrap_servers": address(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }


def for_java(realm: Realm, java: Java, principal: str, folder: Path) -> str:
    option = f"-Djava.security.krb5.conf={realm.conf}"
    if option not in java.options:
        java.options.append(option)
    path = folder / "client.properties"
    path.write_text(
        f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=GSSAPI
sasl.kerberos.service.name=kafka
sasl.jaas.config={jaas(realm.keytab(principal), principal)}
"""
    )
    return str(path)


def test_java_logs_in_by_a_ticket(realm: Realm, broker: BrokerServer, java: Java, tmp_path: Path) -> None:
    server = ("--bootstrap-server", address(broker))
    etl = ("--command-config", for_java(realm, java, "etl/node", tmp_path))
    java.run(TOPICS, *server, *etl, "--create", "--topic", "by-java")
    java.run(PRODUCER, *server, *etl, "--topic", "by-java", stdin="apples\npears\n")
    reading = ("--topic", "by-java", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    assert java.run(CONSUMER, *server, *etl, *reading) == "apples\npears\n"


def test_java_is_the_user_whom_the_rules_name(
    realm: Realm, broker: BrokerServer, java: Java, tmp_path: Path
) -> None:
    alice = ("--command-config", for_java(realm, java, "alice", tmp_path))
    java.run(TOPICS, "--bootstrap-server", address(broker), *alice, "--create", "--topic", "of-alice")
    bob = ("--command-config", for_java(realm, java, "bob", tmp_path))
    with pytest.raises(ToolFailed, match="of-alice"):
        java.run(TOPICS, "--bootstrap-server", address(broker), *bob, "--describe", "--topic", "of-alice")


def test_kafka_python_logs_in_by_a_ticket(
    realm: Realm, broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(**by_ticket(monkeypatch, realm.tickets("carol"), broker))
    try:
        assert admin.list_topics() == [], "she may describe none"
    finally:
        admin.close()


def test_aiokafka_logs_in_by_a_ticket(
    realm: Realm, broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiokafka.admin import AIOKafkaAdminClient

    settings = by_ticket(monkeypatch, realm.tickets("dave"), broker)

    async def topics() -> list[str]:
        admin = AIOKafkaAdminClient(**settings)
        await admin.start()
        try:
            return await admin.list_topics()
        finally:
            await admin.close()

    assert asyncio.run(topics()) == []
