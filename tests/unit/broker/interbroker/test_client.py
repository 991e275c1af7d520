"""Channels by broker and purpose, on the simulated and on the real network."""

import asyncio

from tests.unit.broker.interbroker.conftest import heartbeat

from barnabas.broker.interbroker import BrokerClient, ChannelClosedError
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatResponse


def client(world):
    return BrokerClient(
        world.client, {1: world.address}.get, client_id="tests", rng=world.rng, settings=world.settings
    )


def test_a_parked_request_holds_up_only_its_own_purpose(run):
    async def scenario(world):
        gate = asyncio.get_running_loop().create_future()
        world.peer.heartbeat = lambda request: gate if request.group_id == "long" else HeartbeatResponse()
        brokers = client(world)
        parked = brokers.channel(1, "fetch").submit(heartbeat("long"))
        behind = brokers.channel(1, "fetch").submit(heartbeat("behind"))
        await brokers.channel(1, "control").send(heartbeat("short"))
        assert not parked.done()
        assert not behind.done()
        assert len(world.peer.sessions) == 2
        gate.set_result(HeartbeatResponse())
        await behind
        await brokers.close()

    run(scenario)


def test_a_broker_that_has_left_is_forgotten(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: asyncio.get_running_loop().create_future()
        brokers = client(world)
        channel = brokers.channel(1, "control")
        assert brokers.channel(1, "control") is channel
        call = channel.submit(heartbeat())
        await asyncio.sleep(1)
        brokers.forget(1)
        brokers.forget(2)
        await asyncio.sleep(0.1)
        assert isinstance(call.exception(), ChannelClosedError)
        assert brokers.channel(1, "control") is not channel
        await brokers.close()
        await asyncio.sleep(1)
        assert not world.peer.sessions

    run(scenario)
