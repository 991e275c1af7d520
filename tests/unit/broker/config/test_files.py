"""Settings from TOML files and from server.properties files."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.properties import Property, parse_properties
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.files import read_settings
from barnabas.broker.server.network.endpoint import advertised_endpoints, bound_endpoints

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
    assert config.share_coordinator_state_topic_min_isr == 1
    for name in ("process.roles", "num.network.threads"):
        assert name in caplog.text


def test_faults_are_told_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "server.properties", "log.preallocate=true\n\nnum.partitions=many\nnode.id=1\n")
    with pytest.raises(
        ConfigError, match=r"server\.properties:1: log\.preallocate .*\.properties:3: num\.p.*=many"
    ):
        read_settings(path)


def test_settings_of_kafka_that_are_not_supported_are_told_once_for_each_reason(tmp_path: Path) -> None:
    text = (
        "replication.quota.window.num=11\nreplication.quota.window.size.seconds=1\n"
        "ssl.provider=x\nssl.keymanager.algorithm=secret\nssl.engine.factory.class=/t\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_settings(write(tmp_path, "server.properties", text))
    told = str(caught.value)
    assert (
        "server.properties:1: replication.quota.window.num (and 1 more) is not supported: the throttles"
        in told
    )
    assert "server.properties:3: ssl.provider (and 2 more) is not supported: of Kafka's security" in told
    assert "secret" not in told


def test_two_spellings_of_one_setting_must_agree(tmp_path: Path) -> None:
    assert read_settings(write(tmp_path, "a", "broker.id=7\nnode.id=7\nlog.dir=/a\n")) == {
        "node.id": "7",
        "log.dirs": "/a",
    }
    with pytest.raises(ConfigError, match=r"b:2: node\.id=8 contradicts node\.id=7"):
        read_settings(write(tmp_path, "b", "broker.id=7\nnode.id=8\n"))


WRONG = {
    "binary": (bytes(range(256)) * 500, r":1: not text"),
    "image.toml": (b"\x89PNG\r\n\x1a\n" + bytes(3000), r":2: not text"),
    "latin1": ("# caf\xe9\n".encode("latin-1"), r":1: byte 0xe9 is not UTF-8; save the file as UTF-8"),
    "huge": (b"# comment\n" * 200_000, r"has more than 1048576 bytes"),
    "huge.toml": (b"a = 1\n" * 200_000, r"has more than 1048576 bytes"),
    "config.json": (b'{\n  "node.id": 1\n}\n' + b" " * 3000, r":1: { is not a setting; write NAME=VALUE"),
    "config.yaml": (b"node.id: 1\nlisteners:\n  - PLAINTEXT://:9092\n", r":3: - PLAINTEXT://:9092 is not"),
    "app.log": (b"2026-11-22 10:00:00,123 INFO a line\n" * 5000, r":1: 2026-11-22 10:00:00,123 INFO"),
    "syslog": (b"Nov 22 10:00:00 host sshd[1]: a line\n" * 5000, r":5000: Nov is not a Barnabas setting"),
    "colours.log": (b"\x1b[31mERROR\x1b[0m\n", r":1: not text: it has the control character"),
    "code.py": (b"import os\n\ndef f(x):\n    return x\n" * 3000, r"is not a"),
    "one-line": (b"a" * 1_000_000, r":1: .* the line is too long"),
    "unknown": (b"".join(b"no.such.%d=1\n" % i for i in range(9000)), r":3: no\.such\.2 .*; and more$"),
    "long-value": (b"num.partitions=" + b"9" * 900_000, r":1: .* the line is too long"),
    "properties.toml": (b"node.id=1\nlisteners=PLAINTEXT://:9092\n", r"\.toml:2: Invalid value; write TOML"),
    "open.toml": (b"a = [1,\n", r"\.toml: Invalid value|\.toml: Unclosed array"),
    "deep.toml": (b"a = " + b"[" * 10_000, r"nested too deeply"),
    "dotted.toml": (b".".join([b"a"] * 8000) + b" = 1", r"nested too deeply"),
    "long-name": (b"a" * 10_000, r":1: aaa.*\.\.\. \(10000 characters\) is not a"),
    "long-number": (
        b"num.partitions=" + b"9" * 10_000,
        r":1: num\.partitions=999.*\.\.\. \(10000 characters\) is not allowed",
    ),
    "digits.toml": (b"num.partitions = " + b"9" * 10_000, r"has a number that is too long"),
    "nan.toml": (
        b"log.cleaner.min.cleanable.ratio = nan\n",
        r"\.toml:1: .*=nan is not allowed: write a number",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_none_of_settings_is_refused_in_one_short_line(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, says = WRONG[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=says) as caught:
        read_settings(path)
    told = str(caught.value).replace(str(tmp_path), "")
    assert len(told) < 400
    assert told.isprintable()
    assert not caplog.records


@pytest.mark.parametrize("special", ["/dev/zero", "/dev/full"])
def test_a_device_without_end_is_refused(special: str) -> None:
    with pytest.raises(ConfigError, match="has more than"):
        read_settings(Path(special))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_settings(tmp_path)


_COMMON = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
_MAP = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"

#: what the files set that come with Apache Kafka
SHIPPED = {
    "4.x server.properties": f"""{_COMMON}
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map={_MAP}
        log.dirs=/tmp/kraft-combined-logs
        share.coordinator.state.topic.replication.factor=1
        share.coordinator.state.topic.min.isr=1
    """,
    "4.x broker.properties": f"""{_COMMON}
        process.roles=broker
        node.id=2
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://localhost:9092
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092
        controller.listener.names=CONTROLLER
        listener.security.protocol.map={_MAP}
        log.dirs=/tmp/kraft-broker-logs
        share.coordinator.state.topic.replication.factor=1
        share.coordinator.state.topic.min.isr=1
    """,
    "3.x kraft/server.properties": f"""{_COMMON}
        process.roles=broker,controller
        node.id=1
        controller.quorum.voters=1@localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092
        controller.listener.names=CONTROLLER
        listener.security.protocol.map={_MAP}
        log.dirs=/tmp/kraft-combined-logs
    """,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_files_that_come_with_kafka_load(tmp_path: Path, name: str) -> None:
    config = BrokerConfig.from_text(read_settings(write(tmp_path, "server.properties", SHIPPED[name])))
    bound = bound_endpoints(config)
    assert [endpoint.port for endpoint in bound] == [9092]
    assert [told.address for told in advertised_endpoints(config, bound, lambda: "laptop")] == [
        "localhost:9092"
    ]


def test_kafkas_file_for_zookeeper_joins_the_cluster_there(tmp_path: Path) -> None:
    text = f"""broker.id=0
        log.dirs=/tmp/kafka-logs{_COMMON}zookeeper.connect=localhost:2181
        zookeeper.connection.timeout.ms=18000
        group.initial.rebalance.delay.ms=0
    """
    path = write(tmp_path, "server.properties", text)
    config = BrokerConfig.from_text(read_settings(path))
    assert (config.zookeeper_connect, config.zookeeper_connection_timeout_ms) == ("localhost:2181", 18_000)


def test_controllers_own_file_is_refused(tmp_path: Path) -> None:
    text = "process.roles=controller\nlisteners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
    with pytest.raises(
        ConfigError, match=r"process\.roles=controller is not supported: .* the file of a broker"
    ):
        read_settings(write(tmp_path, "controller.properties", text))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ssl.provider", "see docs/use/security.md"),
        ("listener.name.clients.gssapi.sasl.login.class", "listeners with TLS and SASL"),
        ("principal.builder.class", "listeners with TLS and SASL"),
        ("zookeeper.ssl.crl.enable", "listeners with TLS and SASL"),
        ("zookeeper.metadata.migration.enable", "no KRaft to migrate to"),
        ("broker.id.generation.enable", "give each broker its node.id"),
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
    assert "x.conf:2: node.id is set again; the last value counts" in caplog.text


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
        ("num.partitions = ", r"\.toml:1: Invalid value|\.toml: Invalid value"),
        ("num.network.threads = 3", "num.network.threads is not supported"),
        ("num.partitions = 0", "toml:1: num.partitions=0 is not allowed: it must be at least 1"),
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
        (r"a=\ud83d\udc1b", "a", "🐛"),
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
