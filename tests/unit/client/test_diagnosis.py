"""The checks of `barnabas doctor` against a broker that fails in the middle of them."""

from __future__ import annotations

import pytest

from barnabas.client import diagnosis
from barnabas.client.addresses import Address
from barnabas.client.connection import BrokerConnection
from barnabas.client.diagnosis import examine
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.testing import BarnabasBroker


def test_a_broker_that_stops_to_answer_after_the_login_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    real = BrokerConnection.ask

    def ask(self, request, **more):
        if isinstance(request, MetadataRequest) and request.include_topic_authorized_operations:
            raise ClientError("the broker does not answer: it was killed")
        return real(self, request, **more)

    monkeypatch.setattr(diagnosis.BrokerConnection, "ask", ask)
    with BarnabasBroker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        findings = list(examine(broker.bootstrap_servers, Address(host, int(port))))
    assert [finding.is_good for finding in findings] == [True, True, True, False]
    assert (findings[-1].subject, findings[-1].words) == (
        "cluster",
        "the broker does not answer: it was killed",
    )
