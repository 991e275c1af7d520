"""Kerberos settings that change while a broker runs, with a fake of the system's Kerberos."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.unit.broker.server.network.test_kerberos_keys import asked  # noqa: F401

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer

SERVICE = "sasl.kerberos.service.name"
JAAS = "listener.name.clients.gssapi.sasl.jaas.config"
KEYTAB = "/etc/broker.keytab"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "GSSAPI",
    JAAS: f'com.sun.security.auth.module.Krb5LoginModule required keyTab="{KEYTAB}";',
    SERVICE: "kafka",
}


def alter(server: BrokerServer, name: str, value: str) -> KafkaError | None:
    admin = AdminClient({"bootstrap.servers": server.bound[0].address})
    resource = ConfigResource(ResourceType.BROKER, "1")
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    try:
        admin.incremental_alter_configs([resource])[resource].result(60)
    except KafkaException as error:
        return error.args[0]
    return None


@contextmanager
def running(path: Path, **settings: str) -> Iterator[BrokerServer]:
    server = BrokerServer(BrokerConfig.from_text({**SETTINGS, "log.dirs": str(path), **settings}))
    server.start()
    try:
        yield server
    finally:
        server.stop()


def test_another_service_name_holds_from_the_next_start(
    asked: list[tuple[str, str, object]],  # noqa: F811
    tmp_path: Path,
) -> None:
    with running(tmp_path) as server:
        assert asked == [("kafka", "service", KEYTAB)]
        assert alter(server, SERVICE, "queue") is None
        error = alter(server, f"listener.name.clients.{SERVICE}", "other")
        assert error is not None
        assert error.code() == KafkaError.INVALID_REQUEST
        assert "existing listener" in error.str()
    asked.clear()
    with running(tmp_path):
        assert asked == [("queue", "service", KEYTAB)]


def test_names_with_which_the_broker_could_not_start_again_are_refused(
    asked: list[tuple[str, str, object]],  # noqa: F811
    tmp_path: Path,
) -> None:
    both = {JAAS: SETTINGS[JAAS].replace(";", ' serviceName="kafka";')}
    with running(tmp_path, **both) as server:
        error = alter(server, SERVICE, "queue")
        assert error is not None
        assert error.code() == KafkaError.INVALID_REQUEST
        assert "serviceName in sasl.jaas.config is kafka" in error.str()
    with running(tmp_path, **both):
        assert {service for service, *_ in asked} == {"kafka"}
