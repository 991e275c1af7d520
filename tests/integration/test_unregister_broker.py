"""UnregisterBroker: permanently lost brokers get no new replicas."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.cli.app import app
from barnabas.kafka.protocol.messages.unregister_broker import UnregisterBrokerRequest


@pytest.mark.parametrize(
    ("broker", "code"), [(1, ErrorCode.INVALID_REQUEST), (7, ErrorCode.BROKER_ID_NOT_REGISTERED)]
)
def test_broker_that_is_alive_or_not_registered_is_refused(wire, broker, code):
    response = wire(UnregisterBrokerRequest(broker_id=broker))
    assert response.error_code == code
    assert f"broker {broker}" in response.error_message


def test_broker_that_is_gone_gets_no_replicas_until_it_comes_back(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3)
    admin = cluster.admin()
    cluster.create_topic("before", 1)
    cluster.wait_in_sync("before")
    gone = next(broker for broker in cluster.brokers if broker != cluster.controller())
    cluster.kill(gone)
    deadline = time.monotonic() + 60
    while len(admin.cluster().nodes) == 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    command = ["brokers", "unregister", str(gone), "--bootstrap-server", cluster.bootstrap_servers]
    called = CliRunner().invoke(app, command)
    assert called.exit_code == 0, called.output
    assert f"broker {gone} is unregistered" in called.output
    assert f"`barnabas brokers drain {gone}`" in called.output
    with pytest.raises(KafkaError) as refused:
        admin.create_topic("after", 1, replication_factor=3)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 1
    assert "is not currently registered" in again.output
    cluster.restart(gone)
    admin.create_topic("after", 1, replication_factor=3)
    for topic in "before", "after":
        cluster.wait_in_sync(topic)
