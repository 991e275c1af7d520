"""Clients' metrics (KIP-714): as raw requests, and pushed by a real client."""

from __future__ import annotations

import gzip
import http.client
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from tests.integration.conftest import Wire
from tests.unit.broker.server.telemetry.test_otlp import gauge, pushed, total, whole

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.client import Admin
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.kafka.protocol.messages.push_telemetry import PushTelemetryRequest

CLIENT_METRICS = 16
MAX_BYTES = 2000
SOME = ("client metrics", "some")
INTRODUCTION = ApiVersionsRequest(client_software_name="wired", client_software_version="1.2")


@pytest.fixture
def server(tmp_path) -> Iterator[BrokerServer]:
    """Start a broker for this test, because a subscription affects all clients of a broker."""
    config = BrokerConfig.from_text(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "barnabas.metrics.listener": "127.0.0.1:0",
            "telemetry.max.bytes": str(MAX_BYTES),
        }
    )
    with BrokerServer(config) as running:
        yield running


@pytest.fixture
def wire(server):
    connection = Wire(server.bootstrap_servers)
    try:
        connection(INTRODUCTION)
        yield connection
    finally:
        connection.socket.close()


def alter(wire, name, operation=0, **settings):
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=operation, value=value)
        for key, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    (result,) = wire(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return result


def subscribe(wire, name="all", metrics="*", interval_ms="100", **settings):
    assert alter(wire, name, metrics=metrics, interval_ms=interval_ms, **settings).error_code == 0


def advertised(wire):
    return {key.api_key for key in wire(INTRODUCTION).api_keys}


def scraped(server):
    host = server.metrics_url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()


def pushing(answer, **fields):
    """Return a push of the client that got `answer`."""
    return PushTelemetryRequest(
        client_instance_id=answer.client_instance_id, subscription_id=answer.subscription_id, **fields
    )


def test_the_requests_are_advertised_while_there_is_a_subscription(wire):
    assert not {71, 72} & advertised(wire)
    subscribe(wire)
    assert {71, 72} <= advertised(wire)
    listed = wire(ListConfigResourcesRequest(), 0).config_resources
    assert [resource.resource_name for resource in listed] == ["all"]
    assert alter(wire, "all", operation=1, metrics=None, interval_ms=None).error_code == 0
    assert not {71, 72} & advertised(wire)
    assert wire(ListConfigResourcesRequest(), 0).config_resources == []


def test_a_subscription_is_described_with_the_source_of_each_value(wire):
    subscribe(wire, "some", match="client_id=a.*, client_software_name=librdkafka")
    resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name="some")
    (result,) = wire(DescribeConfigsRequest(resources=[resource])).results
    told = {config.name: (config.value, config.config_source) for config in result.configs}
    assert told == {
        "metrics": ("*", 7),
        "interval.ms": ("100", 7),
        "match": ("client_id=a.*,client_software_name=librdkafka", 7),
    }


@pytest.mark.parametrize(
    "name, settings, expected",
    [
        ("", {"metrics": "*"}, ErrorCode.INVALID_REQUEST),
        ("a", {"interval_ms": "99"}, ErrorCode.INVALID_REQUEST),
        ("a", {"interval_ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ("a", {"nothing": "1"}, ErrorCode.INVALID_REQUEST),
        ("a", {"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "color=red"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(wire, name, settings, expected):
    result = alter(wire, name, **settings)
    assert result.error_code == expected, result.error_message
    assert wire(ListConfigResourcesRequest(), 0).config_resources == []


def test_a_client_gets_an_id_and_what_the_matching_subscriptions_want(wire):
    subscribe(wire, metrics="a.", interval_ms="60000", match="client_software_name=wired,client_id=w.*")
    subscribe(wire, "others", metrics="b.", match="client_id=somebody")
    answer = wire(GetTelemetrySubscriptionsRequest())
    assert answer.error_code == 0 and any(answer.client_instance_id)
    assert (answer.requested_metrics, answer.push_interval_ms) == (["a."], 60_000)
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert answer.telemetry_max_bytes == MAX_BYTES and answer.delta_temporality
    again = wire(GetTelemetrySubscriptionsRequest(client_instance_id=answer.client_instance_id))
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_push_is_shown_on_the_page_of_metrics(server, wire):
    subscribe(wire, interval_ms="60000")
    answer = wire(GetTelemetrySubscriptionsRequest())
    metrics = pushed(gauge("org.apache.kafka.x", whole(5)), total("y", whole(7), temporality=1))
    push = pushing(answer, metrics=gzip.compress(metrics), compression_type=1)
    assert wire(push).error_code == 0
    assert wire(push).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    last = pushing(answer, metrics=metrics, terminating=True)
    assert wire(last).error_code == 0
    assert wire(last).error_code == ErrorCode.INVALID_REQUEST, "it has said that it pushes no more"
    lines = scraped(server)
    (shown,) = [line for line in lines if line.startswith("barnabas_client_metric{")]
    assert 'metric="org.apache.kafka.x",client_id="wire"' in shown and shown.endswith(" 5")
    (shown,) = [line for line in lines if line.startswith("barnabas_client_metric_total{")]
    assert 'metric="y"' in shown and 'client_software_name="wired"' in shown and shown.endswith(" 14")
    assert "kafka_server_client_metrics_instance_count 1" in lines
    assert 'barnabas_client_pushes_total{error="NONE"} 2' in lines


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({"client_instance_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(MAX_BYTES + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": gzip.compress(bytes(10**6)), "compression_type": 1}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": gzip.compress(bytes(10))[:-1], "compression_type": 1}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"\x0a\x05a"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b""}, ErrorCode.NONE),
    ],
    ids=["id", "subscription", "compression", "large", "bomb", "damaged", "no-protobuf", "empty"],
)
def test_what_is_wrong_with_a_push_is_told(wire, fields, expected):
    subscribe(wire, interval_ms="60000")
    answer = wire(GetTelemetrySubscriptionsRequest())
    push = pushing(answer)
    for name, value in fields.items():
        setattr(push, name, value)
    assert wire(push).error_code == expected


def test_after_a_change_of_the_subscription_a_push_of_the_old_one_is_refused(wire):
    subscribe(wire, interval_ms="60000")
    answer = wire(GetTelemetrySubscriptionsRequest())
    subscribe(wire, metrics="a.", interval_ms="60000")
    assert wire(pushing(answer)).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = wire(GetTelemetrySubscriptionsRequest(client_instance_id=answer.client_instance_id))
    assert again.error_code == 0 and again.requested_metrics == ["a."]
    assert again.client_instance_id == answer.client_instance_id


def test_librdkafka_pushes_its_metrics(server, wire):
    subscribe(wire)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "client.id": "pushing",
            "allow.auto.create.topics": True,
        }
    )
    end = time.monotonic() + 60
    while True:
        producer.produce("pushed", b"x")
        producer.poll(0.2)
        lines = [line for line in scraped(server) if 'client_id="pushing"' in line]
        if any(line.startswith("barnabas_client_metric_total{") for line in lines):
            break
        assert time.monotonic() < end, lines
    assert producer.flush(60) == 0
    assert all(
        'client_software_name="confluent-kafka-python"' in line or "librdkafka" in line for line in lines
    )
    assert any('metric="org.apache.kafka.producer.connection.creation.total"' in line for line in lines)


def test_the_command_line_makes_shows_and_deletes_a_subscription(server):
    admin = Admin(server.bootstrap_servers)
    admin.alter_configs("client metrics", "some", set={"metrics": "a.,b.", "interval.ms": "5000"})
    told = {value.name: (value.value, value.source, value.is_default) for value in admin.configs(*SOME)}
    assert told == {
        "metrics": ("a.,b.", "client metrics", False),
        "interval.ms": ("5000", "client metrics", False),
        "match": ("", "default", True),
    }
    admin.alter_configs("client metrics", "some", append={"metrics": "c."})
    admin.alter_configs("client metrics", "some", subtract={"metrics": "a."}, delete=["interval.ms"])
    assert {v.name: v.value for v in admin.configs(*SOME)}["metrics"] == "b.,c."
    with pytest.raises(KafkaError, match="client_id"):
        admin.alter_configs("client metrics", "some", set={"match": "client_id"})
