"""A request that any broker can answer goes to each named broker until one answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from barnabas.client import connection_pool
from barnabas.client.brokers import ask_once
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.testing import BarnabasBroker


@pytest.fixture
def hanging() -> Iterator[str]:
    """Yield the address of a suspended broker: the kernel still accepts its connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_broker_that_hangs_leaves_most_of_the_time_to_the_next_one(hanging, monkeypatch):
    given: list[float] = []

    class Noted(BrokerConnection):
        def __init__(self, host, port, timeout, **more):
            given.append(timeout)
            super().__init__(host, port, 0.05 if len(given) == 1 else timeout, **more)

    monkeypatch.setattr(connection_pool, "BrokerConnection", Noted)
    with BarnabasBroker() as broker:
        answer = ask_once(f"{hanging},{broker.bootstrap_servers}", 60.0, DescribeClusterRequest())
    assert [node.broker_id for node in answer.brokers] == [1]
    assert max(given) <= connection_pool.RESPONSE_TIMEOUT


def test_a_broker_that_lets_us_in_has_all_of_the_time_for_its_answer(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(BrokerConnection, "wait_for", lambda self, timeout: waits.append(timeout))
    with BarnabasBroker() as broker:
        ask_once(broker.bootstrap_servers, 60.0, DescribeClusterRequest())
    assert waits[0] > 50


def test_brokers_that_all_hang_are_given_up(hanging):
    with pytest.raises(ClientError, match="does not answer"):
        ask_once(f"{hanging},{hanging}", 0.2, DescribeClusterRequest())
