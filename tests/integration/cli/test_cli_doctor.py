"""`barnabas doctor` and `barnabas tls`: certificates are created, and their problems are reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result
from tests.ports import held_port

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.cli.app import app
from barnabas.client import Admin
from barnabas.client.certificate_folder import CertificateFolder


class Stand(NamedTuple):
    """Brokers with different mistakes in their settings, and the settings of a client for the correct one."""

    folder: CertificateFolder
    plain: str
    good: str
    mutual: str
    elsewhere: str


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    base = tmp_path_factory.mktemp("stand")
    tls = base / "tls"
    run("tls", "init", "--folder", tls)
    run("tls", "issue", "broker", "--host", "localhost", "--host", "127.0.0.1", "--folder", tls)
    run("tls", "issue", "alice", "--folder", tls)
    folder = CertificateFolder(tls)
    free = held_port()
    nobody = free.getsockname()[1]
    servers = []

    def start(name: str, **settings: str) -> list[str]:
        config = {
            "log.dirs": str(base / name),
            "offsets.topic.num.partitions": "1",
            "ssl.keystore.location": str(folder.pem("broker")),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        server = BrokerServer(BrokerConfig.from_text(config))
        server.start()
        servers.append(server)
        return [endpoint.address for endpoint in server.bound]

    try:
        plain, good = start("good", listeners="PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0")
        (mutual,) = start(
            "mutual",
            listeners="SSL://127.0.0.1:0",
            ssl_client_auth="required",
            ssl_truststore_location=str(folder.authority),
        )
        (elsewhere,) = start(
            "elsewhere", listeners="SSL://127.0.0.1:0", advertised_listeners=f"SSL://127.0.0.1:{nobody}"
        )
        Admin(plain).set_password("alice", "wonderland")
        Admin(plain).create_topic("orders", 1)
        yield Stand(folder, plain, good, mutual, elsewhere)
    finally:
        free.close()
        for server in servers:
            server.stop()


Write = Callable[..., Path]


@pytest.fixture
def write(stand: Stand, tmp_path: Path) -> Write:
    """Write the settings of a client for the correct broker, with changes."""

    def write(**changes: str | None) -> Path:
        stand.folder.write_login("alice-login", "wonderland", stand.good)
        text = stand.folder.properties("alice-login").read_text().replace('"alice-login"', '"alice"')
        lines = dict(line.split("=", 1) for line in text.splitlines())
        lines |= {name.replace("_", "."): value for name, value in changes.items()}
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items() if value is not None))
        return path

    return write


def test_a_client_that_is_served_is_told_so(stand: Stand, write: Write) -> None:
    said = run("doctor", "--config", write(), "--topic", "orders").stdout
    assert "WRONG" not in said
    for subject in ("address", "protocol", "certificate", "login", "broker 1", "topic orders"):
        assert f"ok    {subject}" in said


def findings(*words: object) -> dict[str, str]:
    """Return the failed findings, by their subjects, as one text each."""
    told = json.loads(run("doctor", "--json", *words, code=1).stdout)
    return {
        each["subject"].split()[0]: f"{each['words']}; {each['hint']}" for each in told if not each["is_good"]
    }


def test_each_mistake_is_named_with_its_cure(stand: Stand, write: Write, tmp_path: Path) -> None:
    jaas = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="guess";'
    )
    other = CertificateFolder(tmp_path / "other")
    other.create_authority("other")
    trust = {"ssl_truststore_location": str(other.authority)}
    for changes, subject, words in (
        ({"sasl_jaas_config": jaas}, "login", "slip in user or password"),
        ({"sasl_mechanism": "PLAIN"}, "login", "SCRAM-SHA-256, SCRAM-SHA-512; set sasl.mechanism"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "protocol", "set security.protocol=SASL_SSL"),
        ({"security_protocol": "SSL"}, "login", "sasl.jaas.config"),
        (trust, "certificate", "ca.pem"),
    ):
        found = findings("--config", write(**changes))
        assert list(found) == [subject], found
        assert words in found[subject]
        assert "guess" not in found[subject] and "wonderland" not in found[subject]


def test_a_plain_listener_is_told_from_one_with_tls(stand: Stand, write: Write) -> None:
    assert "does not speak TLS" in findings(stand.plain, "--config", write())["protocol"]
    assert "set security.protocol=SASL_SSL" in findings(stand.good)["protocol"]
    assert "WRONG" not in run("doctor", stand.plain).stdout


def test_a_certificate_for_another_name_is_told(stand: Stand, write: Write) -> None:
    port = stand.good.rpartition(":")[2]
    found = findings(f"127.0.0.2:{port}", "--config", write())
    if "address" not in found:  # listens on 127.0.0.1 only
        assert "not for 127.0.0.2" in found["certificate"]
    stand.folder.issue("broker", ["kafka.example.org"])
    server = BrokerServer(
        BrokerConfig.from_text(
            {
                "log.dirs": str(stand.folder.path.parent / "misnamed"),
                "listeners": "SSL://127.0.0.1:0",
                "ssl.keystore.location": str(stand.folder.pem("broker")),
            }
        )
    )
    with server:
        found = findings(server.bound[0].address, "--config", write(security_protocol="SSL"))
        assert "kafka.example.org, not for 127.0.0.1" in found["certificate"]


def test_an_advertised_address_where_nobody_answers_is_told(stand: Stand, write: Write) -> None:
    found = findings(stand.elsewhere, "--config", write(security_protocol="SSL"))
    assert list(found) == ["broker"] and "advertised.listeners" in found["broker"]


def test_a_client_without_a_certificate_is_told_where_one_is_asked_for(stand: Stand, write: Write) -> None:
    found = findings(stand.mutual, "--config", write(security_protocol="SSL"))
    assert "ssl.keystore.location" in found["login"]
    assert "WRONG" not in run("doctor", stand.mutual, "--config", stand.folder.properties("alice")).stdout


def test_a_name_that_does_not_resolve_and_a_missing_topic_are_told(stand: Stand, write: Write) -> None:
    assert "does not resolve" in findings("nowhere.invalid:9092")["address"]
    assert "no such topic" in findings("--config", write(), "--topic", "none")["topic"]


def test_certificates_are_listed_and_renewed(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    run("tls", "init", "--folder", folder)
    run("tls", "issue", "b", "--host", "a.example.org", "--days", 3, "--folder", folder)
    before = json.loads(run("tls", "list", "--json", "--folder", folder).stdout)
    run("tls", "renew", "b", "--folder", folder)
    after = json.loads(run("tls", "list", "--json", "--folder", folder).stdout)
    assert before[0]["hosts"] == after[0]["hosts"] == ["a.example.org"]
    assert before[0]["ends"] < after[0]["ends"]
    assert "has an authority already" in run("tls", "init", "--folder", folder, code=1).stderr


def test_a_dead_broker_of_a_cluster_is_to_be_started(barnabas_cluster) -> None:
    cluster = barnabas_cluster(brokers=2, mode="thread", settings={"zookeeper.session.timeout.ms": "60000"})
    cluster.kill(2)
    wrong = findings("127.0.0.1:" + cluster.address_of(1).rpartition(":")[2])
    assert list(wrong) == ["broker"]
    assert f"clients are sent to {cluster.address_of(2)}: connection refused; " in wrong["broker"]
    assert "start the broker if it is down; if it runs, set advertised.listeners" in wrong["broker"]
