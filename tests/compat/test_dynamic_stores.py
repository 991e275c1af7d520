"""Apache Kafka's kafka-configs renews the stores of a listener while the broker runs (KIP-226)."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.compat.conftest import CONFIGS, Java, ToolFailed

from barnabas.base.tls.certificates import Authority
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer

NAME = "listener.name.ssl.ssl.keystore"


def test_kafka_configs_renews_a_store_and_is_told_why_it_cannot(java: Java, tmp_path: Path) -> None:
    authority = Authority.create("tests", datetime.now(UTC))
    trusted, first, second = (tmp_path / name for name in ("trusted.pem", "first.pem", "second.p12"))
    trusted.write_bytes(authority.certificate)
    first.write_bytes(authority.issue("broker", ["127.0.0.1"], datetime.now(UTC)).pem)
    issued = authority.issue("broker", ["127.0.0.1", "second"], datetime.now(UTC))
    second.write_bytes(issued.pkcs12("broker", "sesame"))
    config = BrokerConfig.from_text(
        {
            "log.dirs": str(tmp_path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.location": str(first),
        }
    )
    context = ssl.create_default_context(cafile=str(trusted))
    server = BrokerServer(config)
    server.start()
    try:
        tls = server.bound[1]

        def hosts() -> list[str]:
            plain = socket.create_connection((tls.host, tls.port), timeout=60)
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                found = connection.getpeercert()
            assert found is not None
            return [str(pair[1]) for pair in found["subjectAltName"]]

        broker = ("--bootstrap-server", server.bound[0].address, "--entity-type", "brokers")
        one = (*broker, "--entity-name", "1")
        with pytest.raises(ToolFailed, match=r"none\.p12 cannot be read"):
            java.run(CONFIGS, *one, "--alter", "--add-config", f"{NAME}.location={tmp_path}/none.p12")
        settings = f"{NAME}.location={second},{NAME}.type=PKCS12,{NAME}.password=sesame"
        with pytest.raises(ToolFailed, match="can be set for a single broker only: name the broker"):
            java.run(CONFIGS, *broker, "--entity-default", "--alter", "--add-config", settings)
        assert hosts() == ["127.0.0.1"]
        java.run(CONFIGS, *one, "--alter", "--add-config", settings)
        deadline = time.monotonic() + 60
        while "second" not in hosts():
            assert time.monotonic() < deadline
        described = java.run(CONFIGS, *one, "--describe")
        assert f"{NAME}.location={second} sensitive=false" in described
        assert f"{NAME}.password=null sensitive=true" in described
        assert "sesame" not in described
        with pytest.raises(ToolFailed, match=r"lacks second, which the present one names"):
            java.run(CONFIGS, *one, "--alter", "--delete-config", f"{NAME}.location,{NAME}.password")
    finally:
        server.stop()
