"""A connection to a broker: its time limits, and whether an idle one is still open."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client import connection
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.testing import BarnabasBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[BarnabasBroker]:
    with BarnabasBroker() as broker:
        yield broker


def connect(broker: BarnabasBroker, **more: Any) -> BrokerConnection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return BrokerConnection(host, int(port), **more)


def test_an_answer_that_comes_byte_by_byte_has_one_time_limit_for_all_of_it(broker, monkeypatch):
    ended = threading.Event()

    def drip(to: socket.socket) -> None:
        with to:
            to.sendall((1000).to_bytes(4, "big"))
            while not ended.wait(0.05):
                to.sendall(b"x")

    with connect(broker) as client:
        ours, theirs = socket.socketpair()
        client.send(ApiVersionsRequest())
        client._socket.close()
        monkeypatch.setattr(client, "_socket", ours)
        dripping = threading.Thread(target=drip, args=(theirs,))
        dripping.start()
        client.wait_for(0.3)
        began = time.monotonic()
        try:
            with pytest.raises(ClientError, match="timed out"):
                client.receive()
            assert time.monotonic() - began < 30  # all 1,000 bytes would take 50 s
        finally:
            ended.set()
            dripping.join()


@pytest.mark.parametrize("selector", [connection._Selector, selectors.SelectSelector])
def test_an_idle_connection_is_usable_until_the_broker_closes_it(selector, monkeypatch):
    monkeypatch.setattr(connection, "_Selector", selector)
    with BarnabasBroker() as broker:
        client = connect(broker)
        assert client.is_usable()
    with client:
        assert not client.is_usable()
