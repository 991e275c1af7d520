"""The limits of new connections, of the broker and of single listeners."""

from __future__ import annotations

import asyncio

import pytest
from tests.views import view_of

from barnabas.broker.config import BrokerConfig
from barnabas.broker.quotas import ConnectionRates
from barnabas.broker.server.network.listener import Connections
from barnabas.broker.server.network.turns import Turns

RATE = "max.connection.creation.rate"
OUTSIDE = f"listener.name.outside.{RATE}"


class Begun:
    client_host = "192.0.2.7"

    def __init__(self, listener):
        self.listener = listener


def connections(**settings):
    text = {name: str(value) for name, value in settings.items()}
    config = BrokerConfig.from_text(text)
    turns = Turns(lambda: 0.0)
    return Connections(view_of(config=config), turns, rates=ConnectionRates(lambda: 0.0))


def delays(of, listener, count=11):
    """Return the seconds for which each of `count` simultaneous connections waits."""
    return [of.admit(Begun(listener)) for _ in range(count)]


def test_a_listener_may_have_a_rate_of_its_own():
    of = connections(**{OUTSIDE: 1})
    outside = delays(of, "OUTSIDE")
    assert outside[9] == 0.0 < outside[10]
    assert not any(delays(of, "INSIDE", 1000))


def test_the_rate_of_the_broker_holds_for_listeners_with_their_own():
    of = connections(**{RATE: 1, OUTSIDE: 1000})
    assert delays(of, "OUTSIDE")[-1] > 0
    assert delays(of, "INSIDE", 1)[0] > 0


def test_connections_of_brokers_wait_only_for_the_rate_of_their_own_listener():
    of = connections(**{RATE: 1})
    of.protected = "INSIDE"
    assert delays(of, "OUTSIDE")[-1] > 0
    assert not any(delays(of, "INSIDE"))
    of = connections(**{RATE: 1, f"listener.name.inside.{RATE}": 1})
    of.protected = "INSIDE"
    inside = delays(of, "INSIDE")
    assert inside[9] == 0.0 < inside[10]
    assert delays(of, "OUTSIDE", 1) == [0.0]  # those of brokers do not count for others


@pytest.mark.parametrize("rate", [1, 3])
def test_a_connection_waits_for_the_slower_of_both_rates(rate):
    alone = delays(connections(**{RATE: 1}), "OUTSIDE", 12)
    assert delays(connections(**{RATE: 1, OUTSIDE: rate}), "OUTSIDE", 12) == alone


def test_a_connection_that_comes_out_of_the_accept_queue_after_the_end_is_not_admitted():
    """Nothing would close it before the event loop closes."""
    of = connections()
    assert of.admit(Begun("OUTSIDE")) == 0.0
    of = connections()
    asyncio.run(of.end())
    assert of.admit(Begun("OUTSIDE")) is None
    assert len(of) == 0
