"""The decision of a broker that cannot reach others: is it isolated, or are they?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
from immutables import Map
from tests.views import view_of

from barnabas.broker.interbroker.errors import RequestTimeoutError
from barnabas.broker.metadata.image import BrokerImage, ClusterImage
from barnabas.broker.server.isolation import LOOKS, IsolationWatch

#: failed checks after which a controller is isolated, and any other broker
AS_CONTROLLER = LOOKS + 1
AS_ANOTHER = LOOKS + 2


class Cut:
    """Broker 1 of three, which leads a partition. Its followers, the other two, have stopped to fetch."""

    def __init__(self, controller: int) -> None:
        self.view = view_of(ClusterImage(controller_id=controller))
        self.register(1, 2, 3)
        #: the brokers that answer
        self.reached: set[int] = set()
        #: called at each request
        self.meanwhile: Callable[[], None] = lambda: None
        self.changes: list[bool] = []
        loader = SimpleNamespace(is_certain=True)
        leads = SimpleNamespace(is_leader=True, state=SimpleNamespace(isr=[1, 2, 3]))
        followers = SimpleNamespace(of_replica=lambda broker: None)
        peers = SimpleNamespace(channel=lambda broker, purpose: SimpleNamespace(send=self._sender(broker)))
        self.watch = IsolationWatch(self.view, loader, peers, 2.0, [leads], followers, self.changes.append)  # type: ignore[arg-type,list-item]

    def register(self, *brokers: int, isolated: tuple[int, ...] = ()) -> None:
        images = {broker: BrokerImage(broker, (), is_isolated=broker in isolated) for broker in brokers}
        self.view.image = self.view.image._replace(brokers=Map(images))

    def elect(self, controller: int) -> None:
        self.view.image = self.view.image._replace(controller_id=controller)

    def _sender(self, broker: int) -> Callable[..., Awaitable[None]]:
        async def send(request: object, timeout_s: float) -> None:
            self.meanwhile()
            if broker not in self.reached:
                raise RequestTimeoutError("no answer")

        return send

    def look(self, times: int) -> bool:
        for _ in range(times):
            asyncio.run(self.watch.look())
        return self.watch.is_isolated


@pytest.mark.parametrize(("controller", "checks"), [(1, AS_CONTROLLER), (2, AS_ANOTHER)])
def test_broker_that_reaches_nobody_is_isolated_after_some_checks(controller: int, checks: int) -> None:
    cut = Cut(controller)
    cut.look(1)  # learns who the controller is
    assert not cut.look(checks - 2)
    assert cut.look(1)
    assert cut.changes == [True]


def test_broker_that_reaches_another_one_waits_twice_as_long_for_its_controller() -> None:
    cut = Cut(controller=2)
    cut.reached = {3}
    assert not cut.look(2 * LOOKS + 1)
    assert cut.look(1)


def test_check_that_a_new_controller_has_overtaken_decides_nothing() -> None:
    """The former controller is cut off, and makes way during the last check of broker 1."""
    cut = Cut(controller=2)
    cut.look(AS_ANOTHER - 1)
    cut.meanwhile = lambda: cut.elect(1)
    assert not cut.look(1)
    cut.reached = {3}
    assert not cut.look(3 * LOOKS)
    assert cut.changes == []


def test_isolated_broker_that_reaches_another_one_ends_its_isolation_if_the_controller_is_isolated() -> None:
    cut = Cut(controller=2)
    assert cut.look(AS_ANOTHER)
    cut.register(1, 2, 3, isolated=(1, 2, 3))
    assert cut.look(1)
    cut.reached = {3}
    assert not cut.look(1)
    assert cut.changes == [True, False]


def test_isolated_controller_makes_way_again_once_another_broker_is_not_isolated() -> None:
    cut = Cut(controller=2)
    assert cut.look(AS_ANOTHER)
    cut.elect(1)
    cut.register(1, 2, 3, isolated=(1, 2, 3))
    cut.look(AS_CONTROLLER + 1)
    assert cut.changes == [True]
    cut.register(1, 2, 3, isolated=(1, 2))
    cut.look(1)
    assert cut.changes == [True, True]


def test_controller_of_two_brokers_is_not_isolated() -> None:
    """Neither of two brokers knows which one is cut off."""
    cut = Cut(controller=1)
    cut.register(1, 2)
    assert not cut.look(3 * LOOKS)
