"""The console's page of clients: the metrics that clients push, and the resources that request them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.conftest import Wire
from tests.integration.test_telemetry import INTRODUCTION, pushing, subscribe
from tests.unit.broker.server.telemetry.test_otlp import attribute, double, gauge, pushed, text, total, whole

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.console.client_metrics import check_urls, parse_series
from barnabas.kafka.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest


@pytest.fixture
def server(tmp_path) -> Iterator[BrokerServer]:
    config = BrokerConfig.from_text(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "barnabas.metrics.listener": "127.0.0.1:0",
        }
    )
    with BrokerServer(config) as running:
        yield running


def test_what_is_asked_for_and_what_a_client_has_pushed_is_shown(start_console, server):
    wire = Wire(server.bootstrap_servers)
    try:
        wire(INTRODUCTION)
        subscribe(wire, "all", metrics="*", interval_ms="60000", match="client_id=w.*")
        answer = wire(GetTelemetrySubscriptionsRequest())
        topic = attribute("topic", text(1, 'a"b\\'))
        metrics = pushed(gauge("org.x.rate", double(1.5, topic)), total("org.x.total", whole(7)))
        assert wire(pushing(answer, metrics=metrics)).error_code == 0
    finally:
        wire.socket.close()
    console = start_console(server.bootstrap_servers, metrics=(f"{server.metrics_url}/metrics/",))
    told = console.get("clients")
    assert told["subscriptions"] == [
        {"name": "all", "metrics": "*", "interval.ms": "60000", "match": "client_id=w.*"}
    ]
    (client,) = told["clients"]
    assert (client["client_id"], client["client_software_name"], client["series"]) == ("wire", "wired", 2)
    assert told["problems"] == [] and told["numbers"] == []
    numbers = console.get("clients", id=client["client_instance_id"])["numbers"]
    assert [(n["metric"], n["attributes"], float(n["value"]), n["sum"]) for n in numbers] == [
        ("org.x.rate", {"topic": 'a"b\\'}, 1.5, False),
        ("org.x.total", {}, 7, True),
    ]
    found = console.get("clients", id=client["client_instance_id"], search="TOTAL")["numbers"]
    assert [n["metric"] for n in found] == ["org.x.total"]


def test_a_page_that_cannot_be_read_is_named_and_the_rest_shown(start_console, barnabas_broker):
    console = start_console(barnabas_broker.bootstrap_servers, metrics=("http://127.0.0.1:1",))
    told = console.get("clients")
    assert told["subscriptions"] == [] and told["subscriptions_problem"] is None
    (problem,) = told["problems"]
    assert problem.startswith("http://127.0.0.1:1/metrics cannot be read")


def test_without_a_page_of_metrics_the_subscriptions_are_shown(console):
    told = console.get("clients")
    assert told["pages"] == told["clients"] == told["problems"] == []


def test_lines_that_are_no_series_are_left_out():
    lines = ["# HELP barnabas_client_metric x", 'barnabas_client_metric{metric="a"', "other 1", ""]
    assert list(parse_series(lines)) == []


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r"--metrics-url 127\.0\.0\.1:9404: write http://"):
        check_urls(["127.0.0.1:9404"])
