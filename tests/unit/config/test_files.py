"""Settings out of TOML and server.properties files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import BrokerConfig
from barnabas.config.files import read_settings
from barnabas.config.properties import Property, parse_properties
from barnabas.errors import ConfigError

#: as a KRaft broker of Apache Kafka 4 is set up
KAFKA = r"""
# roles
process.roles=broker,controller
node.id = 7
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
! another comment
socket.send.buffer.bytes=102400
log.dirs=/var/kafka-\
         logs
share.coordinator.state.topic.min.isr=1
log.retention.hours: 24
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_kafkas_own_file_loads_and_what_has_no_meaning_here_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.from_text(read_settings(write(tmp_path, "server.properties", KAFKA)))
    assert config.node_id == 7
    assert config.listeners == ("PLAINTEXT://:9092",)
    assert config.advertised_listeners == ("PLAINTEXT://localhost:9092",)
    assert config.log_dirs == ("/var/kafka-logs",)
    assert config.log_retention_ms == 24 * 3_600_000
    for name in ("process.roles", "num.network.threads", "share.coordinator.state.topic.min.isr"):
        assert name in caplog.text


def test_setting_that_would_have_to_be_honoured_is_refused_and_all_of_them_named(tmp_path: Path) -> None:
    path = write(tmp_path, "server.properties", "log.preallocate=true\nnum.partitions=many\nnode.id=1\n")
    with pytest.raises(ConfigError, match=r"server\.properties: log\.preallocate .*; num\.partitions=many"):
        read_settings(path)


def test_controllers_own_file_is_refused(tmp_path: Path) -> None:
    text = "process.roles=controller\nlisteners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
    with pytest.raises(
        ConfigError, match=r"process\.roles=controller is not supported: .* the file of a broker"
    ):
        read_settings(write(tmp_path, "controller.properties", text))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ssl.keystore.location", "TLS, SASL and ACLs are not there yet; use PLAINTEXT"),
        ("sasl.enabled.mechanisms", "TLS, SASL and ACLs are not there yet"),
        ("listener.name.clients.ssl.keystore.location", "TLS, SASL and ACLs are not there yet"),
        ("authorizer.class.name", "TLS, SASL and ACLs are not there yet"),
        ("super.users", "TLS, SASL and ACLs are not there yet"),
        ("security.inter.broker.protocol", "TLS, SASL and ACLs are not there yet"),
        ("zookeeper.connect", "ZooKeeper is not there yet; remove it"),
        ("replica.lag.time.max.ms", "replication is not there yet"),
        ("remote.log.storage.system.enable", "tiered storage is not there yet"),
        ("metric.reporters", "no metrics of the JVM"),
    ],
)
def test_setting_of_kafka_that_is_not_supported_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is not supported: .*{reason}"):
        BrokerConfig.from_text({name: "SASL_SSL"})


def test_repeated_setting_counts_the_last_time_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "x.conf", "node.id=1\nnode.id=2\n")
    assert read_settings(path) == {"node.id": "2"}
    assert "again in line 2" in caplog.text


def test_toml_keys_tables_and_values(tmp_path: Path) -> None:
    text = """
        num.partitions = 3
        auto.create.topics.enable = false
        "max.connections" = 100
        "max.connections.per.ip" = 10
        [log]
        dirs = ["/a", "/b"]
        retention.hours = "12"
    """
    assert read_settings(write(tmp_path, "broker.toml", text)) == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "max.connections": "100",
        "max.connections.per.ip": "10",
        "log.dirs": "/a,/b",
        "log.retention.hours": "12",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num.partitions = [1]", "num.partitions: write a string"),
        ("num.partitions = 2020-01-01", "num.partitions: write a string"),
        ("num.partitions = ", "cannot be read"),
        ("num.network.threads = 3", "num.network.threads is not supported"),
        ("num.partitions = 0", "num.partitions=0 is not allowed: it must be at least 1"),
    ],
)
def test_toml_that_is_wrong_says_what_and_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_settings(write(tmp_path, "broker.toml", text))


def test_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b ", "a", "b "),
        ("a:b=c", "a", "b=c"),
        ("a b c", "a", "b c"),
        ("a", "a", ""),
        (r"a\=b=c", "a=b", "c"),
        (r"a=\u0041\t\\x", "a", "A\t\\x"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b\\\\", "a", "b\\"),
        ("   a=b", "a", "b"),
    ],
)
def test_properties_as_java_reads_them(text: str, key: str, value: str) -> None:
    assert list(parse_properties(text)) == [Property(1, key, value)]


@given(st.text())
def test_any_text_is_some_properties(text: str) -> None:
    for line, _, _ in parse_properties(text):
        assert line >= 1
