"""Clients' metrics (KIP-714): Kafka's tool that requests them, and Kafka's client that pushes them."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator

import pytest

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


def test_kafka_client_metrics_alters_lists_describes_and_deletes(java, broker):
    at = ("--bootstrap-server", broker.bootstrap)
    selector = "client_id=nobody"
    java.run(
        TOOL,
        *at,
        "--alter",
        "--name",
        "some",
        "--metrics",
        "a.,b.",
        "--interval",
        "5000",
        "--match",
        selector,
    )
    try:
        assert java.run(TOOL, *at, "--list").split() == ["some"]
        told = java.run(TOOL, *at, "--describe", "--name", "some")
        for setting in ("metrics=a.,b.", "interval.ms=5000", f"match={selector}"):
            assert setting in told
    finally:
        java.run(TOOL, *at, "--delete", "--name", "some")
    assert java.run(TOOL, *at, "--list").split() == []


@pytest.fixture
def server(classpath, tmp_path) -> Iterator[BrokerServer]:
    """Start Barnabas. Its page of metrics shows the metrics that clients push, as a plugin does in Apache
    Kafka.
    """
    config = BrokerConfig.from_text(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "barnabas.metrics.listener": "127.0.0.1:0",
        }
    )
    with BrokerServer(config) as running:
        yield running


def page(server):
    connection = http.client.HTTPConnection(server.metrics_url.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()


def test_a_java_producer_pushes_its_metrics(java, server):
    at = ("--bootstrap-server", server.bootstrap_servers)
    selector = "client_software_name=apache-kafka-java,client_id=console-.*"
    java.run(
        TOOL, *at, "--alter", "--name", "java", "--metrics", "*", "--interval", "200", "--match", selector
    )
    process = java.start(PRODUCER, *at, "--topic", "pushed")
    try:
        process.stdin.write("a record\n")
        process.stdin.flush()
        end = time.monotonic() + 60
        while True:
            pushed = [line for line in page(server) if line.startswith("barnabas_client_metric")]
            pushed = [line for line in pushed if 'client_id="console-producer"' in line]
            if pushed:
                break
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.1)
        assert all('client_software_name="apache-kafka-java"' in line for line in pushed)
        assert any('metric="org.apache.kafka.producer.connection.creation.total"' in line for line in pushed)
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
        process.stderr.close()
