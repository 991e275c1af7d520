"""Clients that push metrics, with a clock of the tests."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.server.telemetry import clients as module
from barnabas.broker.server.telemetry.clients import TelemetryClients
from barnabas.broker.server.telemetry.otlp import Point, Pushed
from barnabas.broker.server.telemetry.subscriptions import Subscriptions

JAVA = {"client_id": "orders-1", "client_software_name": "apache-kafka-java", "client_source_port": "9"}


class House:
    """Clients with everything that they need."""

    def __init__(self, **resources: dict[str, str]) -> None:
        self.now = 0.0
        self.view = view_of(ClusterImage(client_metrics=resources))
        self.subscriptions = Subscriptions(self.view)
        clock: Any = self
        self.clients = TelemetryClients(self.subscriptions, clock, Random(1))

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0


def push(*points: tuple[str, float, bool]) -> Pushed:
    return Pushed([Point(name, (), value, is_delta, is_delta) for name, value, is_delta in points])


def test_what_a_client_is_to_push_are_the_subscriptions_that_match_it() -> None:
    house = House(
        all={"metrics": "a.,b.", "interval.ms": "5000"},
        java={"metrics": "b.,c.", "interval.ms": "1000", "match": "client_software_name=apache-.*"},
        other={"metrics": "*", "interval.ms": "100", "match": "client_id=orders-1,client_source_port=8"},
    )
    wanted = house.subscriptions.subscription_of(JAVA)
    assert (wanted.metrics, wanted.interval_ms) == (("a.", "b.", "c."), 1000)
    wanted = house.subscriptions.subscription_of({"client_id": "x"})
    assert (wanted.metrics, wanted.interval_ms) == (("a.", "b."), 5000)
    wanted = house.subscriptions.subscription_of({**JAVA, "client_source_port": "8"})
    assert (wanted.metrics, wanted.interval_ms) == (("*",), 100)


def test_without_a_subscription_a_client_is_to_push_nothing() -> None:
    wanted = House().subscriptions.subscription_of(JAVA)
    assert (wanted.metrics, wanted.interval_ms) == ((), 300_000)


def test_a_resource_that_another_version_has_written_is_ignored() -> None:
    house = House(bad={"match": "client_id=("}, worse={"interval.ms": "0"}, good={"metrics": "*"})
    assert house.subscriptions.subscription_of(JAVA).metrics == ("*",)


def test_the_id_of_a_subscription_follows_what_is_wanted() -> None:
    house = House(all={"metrics": "a."})
    client = house.clients.find(bytes(15) + b"1", JAVA)
    other = house.clients.find(bytes(15) + b"2", JAVA)
    before = client.subscription_id
    assert before != other.subscription_id
    assert -(2**31) <= before < 2**31
    house.view.image = house.view.image._replace(client_metrics={"all": {"metrics": "b."}})
    assert house.clients.find(client.id, JAVA) is client
    assert client.subscription_id != before


def test_a_client_asks_and_pushes_once_an_interval() -> None:
    house = House(all={"metrics": "a.", "interval.ms": "1000"})
    client = house.clients.find(bytes(15) + b"1", JAVA)
    assert client.may_ask(0) and not client.may_ask(999)
    assert client.may_push(1), "the first push after the question comes when it likes"
    assert not client.may_push(1000) and client.may_push(1001)
    assert not client.may_ask(2000) and client.may_ask(2001)
    house.view.image = house.view.image._replace(
        client_metrics={"all": {"metrics": "b.", "interval.ms": "1000"}}
    )
    assert house.clients.find(client.id, JAVA).may_ask(2002), "it may ask for a new subscription at once"


def test_the_latest_gauge_and_the_sum_of_differences_are_kept() -> None:
    house = House(all={"metrics": "*"})
    client = house.clients.find(bytes(15) + b"1", JAVA)
    house.clients.keep(client, push(("g", 1, False), ("d", 2, True)))
    house.clients.keep(client, push(("g", 5, False), ("d", 3, True)))
    assert client.series == {("g", (), False): 5, ("d", (), True): 5}
    assert list(house.clients.shown()) == [client]


def test_series_and_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    monkeypatch.setattr(module, "MAX_OF_A_CLIENT", 3)
    monkeypatch.setattr(module, "MAX_SERIES", 5)
    house = House(all={"metrics": "*"})
    four = push(*[(name, 1.0, False) for name in "abcd"])
    first, second = (house.clients.find(bytes(15) + bytes([n]), JAVA) for n in (1, 2))
    house.clients.keep(first, four)
    house.clients.keep(second, four)
    assert (len(first.series), len(second.series), house.clients.dropped) == (3, 2, 3)
    house.clients.find(bytes(15) + b"3", JAVA)
    assert len(house.clients) == 2
    with pytest.raises(KafkaError) as refused:
        house.clients.keep(first, four)
    assert refused.value.code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    house.clients.keep(second, four)
    assert len(second.series) == 3, "what the first one had is free again"


def test_a_silent_client_is_forgotten_whichever_comes_first() -> None:
    house = House(
        slow={"metrics": "*", "interval.ms": "3600000", "match": "client_id=slow"},
        quick={"metrics": "*", "interval.ms": "100", "match": "client_id=quick"},
    )
    slow = house.clients.find(bytes(15) + b"1", {"client_id": "slow"})
    quick = house.clients.find(bytes(15) + b"2", {"client_id": "quick"})
    for client in (slow, quick):
        house.clients.keep(client, push(("g", 1, False)))
    house.now = 61
    assert list(house.clients.shown()) == [slow]
    house.clients.find(bytes(15) + b"3", JAVA)
    assert len(house.clients) == 2
    house.now = 3 * 3600 + 1
    assert list(house.clients.shown()) == []
