"""The limit of new connections a second."""

from __future__ import annotations

import pytest

from barnabas.broker.quotas import DEFAULT, ConnectionRates, QuotaEntity


@pytest.fixture
def rates(time):
    return ConnectionRates(time)


def limit(rates, address, value):
    texts = {} if value is None else {"connection_creation_rate": str(value)}
    rates.set(QuotaEntity(ip=address), texts)


def test_an_address_may_begin_so_many_a_second(rates, time):
    limit(rates, "192.0.2.7", 2)
    assert [rates.admit("192.0.2.7") for _ in range(21)] == [True] * 20 + [False]
    assert rates.admit("192.0.2.8")
    time.now += 12
    assert rates.admit("192.0.2.7")


def test_refused_connections_do_not_count(rates, time):
    limit(rates, "192.0.2.7", 1)
    for _ in range(1000):
        rates.admit("192.0.2.7")
    time.now += 11.5
    assert rates.admit("192.0.2.7")


def test_the_default_is_of_each_address_and_not_of_those_with_their_own(rates):
    limit(rates, DEFAULT, 1)
    limit(rates, "192.0.2.7", 100)
    assert [rates.admit("192.0.2.8") for _ in range(11)][-1] is False
    assert rates.admit("192.0.2.9")
    assert all(rates.admit("192.0.2.7") for _ in range(500))
    limit(rates, DEFAULT, None)
    assert rates.admit("192.0.2.8")


def test_all_connections_together_wait_a_sample_at_most(rates):
    delays = [rates.delay(1) for _ in range(30)]
    assert delays[:10] == [0.0] * 10
    assert 0 < delays[10] <= delays[-1] == 1.0


def test_each_listener_is_counted_for_itself(rates):
    outside = [rates.delay(1, "OUTSIDE") for _ in range(11)]
    assert outside[9] == 0.0 < outside[10]
    assert rates.delay(1, "INSIDE") == rates.delay(1) == 0.0


def test_many_addresses_are_forgotten(rates):
    limit(rates, DEFAULT, 1)
    for number in range(25_000):
        rates.admit(f"2001:db8::{number:x}")
    assert len(rates._by_address) <= 10_000
