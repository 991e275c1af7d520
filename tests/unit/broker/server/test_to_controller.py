"""A broker reaches the present controller, even itself, and the other brokers of its image."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace

import pytest
from simulation.network import SimulatedNetwork
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import ChannelClosedError, NotConnectedError, RequestTimeoutError
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage, ClusterImage, ImageDelta
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.peers import forget_gone, open_peers
from barnabas.broker.server.to_controller import OwnRequests, ToController
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def broker(number: int, epoch: int = 1, listener: str = "INTERNAL") -> BrokerImage:
    return BrokerImage(number, (BrokerEndpoint(listener, f"broker-{number}", 9092),), epoch=epoch)


class World:
    """Broker 1 with its connection to the controller."""

    def __init__(self, controller_id: int) -> None:
        self.view = view_of(
            ClusterImage(
                controller_id=controller_id,
                brokers={1: broker(1), 2: broker(2), 3: broker(3, listener="CLIENTS")},
            )
        )
        self.network = SimulatedNetwork(Random(1))
        environment = Environment.of_system()
        environment = Environment(
            clock=environment.clock,
            filesystem=environment.filesystem,
            blocking=environment.blocking,
            network=self.network.host("broker-1"),
            random=Random(1),
        )
        config = BrokerConfig(request_timeout_ms=5000)
        self.peers = open_peers(config, environment, Endpoint("INTERNAL", "127.0.0.1", 0), self.view, None)
        self.own = OwnRequests(1, "INTERNAL")
        self.to_controller = ToController(self.view, self.peers, self.own, request_timeout=5.0)


def test_there_may_be_no_controller():
    async def scenario():
        with pytest.raises(KafkaError) as raised:
            await World(-1).to_controller.send(HeartbeatRequest())
        assert raised.value.code is ErrorCode.NOT_CONTROLLER

    run_virtual(scenario())


def test_the_controller_asks_itself_without_the_network_once_it_serves():
    async def scenario():
        world = World(1)
        with pytest.raises(KafkaError) as raised:
            await world.to_controller.send(HeartbeatRequest())
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        asked = []

        async def serve(context, request):
            asked.append(request)
            return HeartbeatResponse()

        world.own.serve_with(SimpleNamespace(answer=serve))
        request = HeartbeatRequest(group_id="g")
        assert await world.to_controller.send(request) == HeartbeatResponse()
        assert asked == [request]

    run_virtual(scenario())


def test_what_the_controller_asks_of_itself_goes_on_after_its_time():
    async def scenario():
        world = World(1)
        finished = asyncio.get_running_loop().create_future()

        async def serve(context, request):
            await asyncio.sleep(10)
            finished.set_result(None)

        world.own.serve_with(SimpleNamespace(answer=serve))
        with pytest.raises(RequestTimeoutError) as raised:
            await world.to_controller.send(HeartbeatRequest())
        assert raised.value.may_have_been_carried_out
        assert asyncio.get_running_loop().time() == pytest.approx(5)
        await finished

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("controller", "where"), [(2, "broker-2:9092"), (3, "its address is not known"), (4, "is not known")]
)
def test_another_controller_is_asked_at_the_address_of_the_listener_between_brokers(controller, where):
    async def scenario():
        world = World(controller)
        with pytest.raises(NotConnectedError, match=where):
            await world.to_controller.send(HeartbeatRequest())
        await world.peers.close()

    run_virtual(scenario())


@pytest.mark.parametrize("now", [None, broker(2, epoch=5)])
def test_connections_to_a_broker_that_left_or_bounced_are_closed(now):
    async def scenario():
        world = World(2)
        before = world.view.image
        gone, stays = world.peers.channel(2, "control"), world.peers.channel(3, "control")
        brokers = {1: before.brokers[1], 3: before.brokers[3]} | ({} if now is None else {2: now})
        forget_gone(world.peers, ImageDelta(before, before._replace(brokers=brokers), brokers=True))
        assert world.peers.channel(2, "control") is not gone
        assert world.peers.channel(3, "control") is stays
        with pytest.raises(ChannelClosedError):
            await gone.send(HeartbeatRequest())
        await world.peers.close()

    run_virtual(scenario())
