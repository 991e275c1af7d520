"""A client that ends its sending still receives the replies to all its requests, as from Apache Kafka."""

import asyncio
import struct

import pytest
from tests.property.connections import connect, host_of
from tests.unit.broker.server.conftest import Client, reset_when_closed

from barnabas.broker.awaitables import LongPoll, SecondPhase
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatResponse

LARGE = 200_000


def waiting_for(server, count=1):
    """Let the heartbeats of groups "0", "1", … wait, and return their futures."""
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(count)]
    server.heartbeat = lambda request: (
        futures[int(request.group_id)] if request.group_id != "g" else HeartbeatResponse()
    )
    return futures


async def half_closed(server, data):
    """Return a client that has sent `data` and has ended its sending."""
    client = await server.connect()
    client.send(data)
    client.writer.write_eof()
    await asyncio.sleep(0.02)
    return client


def test_a_request_that_waits_is_answered_before_the_close(run):
    async def scenario(server):
        (first,) = waiting_for(server)
        client = await half_closed(server, Client.heartbeat(1, "0"))
        assert not first.cancelled()
        first.set_result(HeartbeatResponse())
        await client.answer(1)
        assert await client.is_closed()
        assert not server.connections

    run(scenario, cancel_on_disconnect=True)


def test_a_request_that_had_to_wait_for_the_second_phase_of_another_is_answered_before_the_close():
    class Phased:
        def serve(self, frame, client):
            if frame != b"first":
                client.reply([frame])
                return
            self.second = SecondPhase()
            client.park(self.second, lambda done: [done.result()], False)

    async def main():
        phased = Phased()
        session, transport = connect(phased, host_of(phased))
        transport.set_protocol = lambda protocol: None
        session.data_received(b"".join(len(frame).to_bytes(4) + frame for frame in (b"first", b"last")))
        assert session.eof_received()
        phased.second.set_result(b"first")
        for _ in range(3):
            await asyncio.sleep(0)
        assert transport.sent == b"firstlast"
        assert not transport.is_open

    asyncio.run(main())


@pytest.mark.parametrize("order", [None, BetweenBrokers()], ids=["in turn", "together"])
def test_all_pipelined_requests_are_answered_in_order(run, order):
    async def scenario(server):
        first, second = waiting_for(server, 2)
        requests = [Client.heartbeat(n, group) for n, group in enumerate(["g", "0", "g", "1", "g"])]
        client = await half_closed(server, b"".join(requests))
        second.set_result(HeartbeatResponse(error_code=2))
        await asyncio.sleep(0.01)
        first.set_result(HeartbeatResponse(error_code=1))
        assert [(await client.answer(n)).error_code for n in range(5)] == [0, 1, 0, 2, 0]
        assert await client.is_closed()

    run(scenario, **({} if order is None else {"order": order}))


def test_a_long_poll_responds_at_once(run):
    """Most clients that end their sending have ended. A share fetch must not acquire records for them."""

    async def scenario(server):
        poll = LongPoll(12)
        poll.ended_by(lambda: poll.set_result(HeartbeatResponse(error_code=3)))
        server.heartbeat = lambda request: poll
        client = await half_closed(server, Client.heartbeat(1))
        assert poll.done()
        assert (await client.answer(1)).error_code == 3
        assert await client.is_closed()

    run(scenario, cancel_on_disconnect=True)


def test_a_request_without_a_reply_is_executed_before_the_close(run):
    async def scenario(server):
        (first,) = waiting_for(server)
        client = await half_closed(server, Client.heartbeat(1, "0"))
        first.set_result(None)
        assert await client.is_closed()

    run(scenario)


def test_an_incomplete_request_does_not_keep_the_connection(run):
    async def scenario(server):
        (first,) = waiting_for(server)
        large = struct.pack(">i", 90_000_000) + b"x" * 1_000_000
        client = await half_closed(server, Client.heartbeat(1, "0") + large)
        first.set_result(HeartbeatResponse())
        await client.answer(1)
        assert await client.is_closed()

    run(scenario)


def test_large_replies_arrive_although_the_client_reads_them_late(run):
    async def scenario(server):
        keys = [ApiVersion(api_key=1)] * LARGE
        server.api_versions = lambda request: ApiVersionsResponse(api_keys=keys)
        data = b"".join(Client.api_versions(n) for n in range(8))
        client = await half_closed(server, data)
        await asyncio.sleep(0.1)
        for _ in range(8):
            assert len(await client.frame()) > LARGE
        assert await client.is_closed()

    run(scenario)


def test_a_client_does_not_wait_longer_than_an_idle_one(run):
    async def scenario(server):
        (first,) = waiting_for(server)
        client = await half_closed(server, Client.heartbeat(1, "0"))
        assert await client.is_closed()
        assert first.cancelled()
        assert not server.connections

    run(scenario, cancel_on_disconnect=True, connections_max_idle_ms=200)


def test_a_client_that_resets_the_connection_waits_for_nothing(run):
    async def scenario(server):
        (first,) = waiting_for(server)
        client = await server.connect()
        client.send(Client.heartbeat(1, "0"))
        await asyncio.sleep(0.02)
        reset_when_closed(client.writer)
        client.writer.transport.abort()
        async with asyncio.timeout(5):
            while not first.cancelled() or server.connections:
                await asyncio.sleep(0.001)

    run(scenario, cancel_on_disconnect=True)
