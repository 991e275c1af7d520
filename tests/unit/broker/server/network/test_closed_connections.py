"""A closed connection uses no memory, even if the garbage collector never runs."""

from __future__ import annotations

import asyncio
import gc
import ssl
import tracemalloc
import weakref

import pytest
from tests.certificates import make
from tests.unit.broker.server.conftest import reset_when_closed
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.network import SocketNetwork
from barnabas.base.system import event_loop
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.handlers import load
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.listener import Connections, Listener
from barnabas.broker.server.network.turns import Turns
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest

MB = 1 << 20
CONNECTIONS = 40


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["plaintext", "tls"])
def tls(request, certificates):
    """Return the TLS contexts of the broker and of the client; None without TLS."""
    if request.param == "plaintext":
        return None
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(certificates.server)
    client.load_verify_locations(certificates.authority)
    return server, client


@pytest.fixture(params=[event_loop.run, asyncio.run], ids=["broker's loop", "asyncio's loop"])
def run(request):
    return request.param


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Listening:
    """A listener that never answers Heartbeat requests."""

    def __init__(self, tls):
        self._tls = tls
        config = BrokerConfig()
        self.connections = Connections(view_of(config=config), Turns(lambda: 0.0))
        self.requests = 0
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 0)
        context = None if tls is None else lambda: tls[0]
        self._listener = Listener(endpoint, self.connections, SocketNetwork(), context)

    async def __aenter__(self):
        def handle(context, request):
            self.requests += 1
            return asyncio.get_running_loop().create_future()

        served = {12: Served(load()[12], handle)}
        dispatcher = Dispatcher(served, LongWork(Environment.of_system()))
        self._listener.bind()
        await self._listener.start(lambda: dispatcher.serve)
        return self

    async def __aexit__(self, *_):
        self._listener.unbind()

    async def connect(self):
        return await asyncio.open_connection(
            "127.0.0.1", self._listener.endpoint.port, ssl=None if self._tls is None else self._tls[1]
        )

    async def until(self, condition):
        while not condition():
            await asyncio.sleep(0.002)


#: part of a frame that announces 90 MB
PART = (90 * MB).to_bytes(4, "big") + bytes(MB)
#: what was received beside a request that waits
BEHIND = b"".join(encode_request(RequestHeader(12, 4, 1, "c"), HeartbeatRequest(group_id="g"))) + PART[:3000]


@pytest.mark.parametrize("sent", [PART, PART[: 200 * 1024], PART[:1000], BEHIND], ids=len)
def test_an_ended_connection_is_freed_at_once_with_what_it_has_received(tls, run, without_collector, sent):
    async def scenario():
        async with Listening(tls) as listening:
            reader, writer = await listening.connect()
            writer.write(sent)
            await writer.drain()
            await listening.until(lambda: len(listening.connections) == 1)
            (session,) = listening.connections._open
            ended, frames = weakref.ref(session), session._frames
            await listening.until(
                lambda: listening.requests if sent is BEHIND else frames.pending == len(sent) - 4
            )
            del session
            if tls is None:  # only a reset ends the requests that wait: see test_half_closed.py
                reset_when_closed(writer)
            writer.transport.abort()
            del reader, writer
            await listening.until(lambda: not listening.connections)
            await asyncio.sleep(0.01)
            assert frames.pending == 0
            if sent is not BEHIND:
                assert ended() is None

    run(asyncio.wait_for(scenario(), 60))


def test_a_connection_that_the_broker_closes_is_freed_too(tls, run, without_collector):
    async def scenario():
        async with Listening(tls) as listening:
            reader, writer = await listening.connect()
            await listening.until(lambda: len(listening.connections) == 1)
            (ended,) = map(weakref.ref, listening.connections._open)
            writer.write((12).to_bytes(4, "big") + bytes(12))  # no request
            assert await reader.read() == b""
            del reader
            writer.close()
            del writer
            await listening.until(lambda: not listening.connections)
            await asyncio.sleep(0.01)
            assert ended() is None

    run(asyncio.wait_for(scenario(), 60))


def test_parts_of_large_requests_sent_again_and_again_do_not_add_up(tls, run, without_collector):
    """Earlier, 58 MB of requests kept 1.9 GB of memory with TLS and 1.1 GB without,
    with no open connection.
    """

    async def scenario():
        async with Listening(tls) as listening:
            held = []
            for _ in range(CONNECTIONS):
                reader, writer = await listening.connect()
                writer.write(PART)
                await writer.drain()
                await listening.until(lambda: len(listening.connections) == 1)
                (session,) = listening.connections._open
                frames = session._frames
                del session
                await listening.until(lambda frames=frames: frames.pending == MB)
                writer.transport.abort()
                del reader, writer
                await listening.until(lambda: not listening.connections)
                await asyncio.sleep(0)
                held.append(tracemalloc.get_traced_memory()[0])
            # The client's own buffers are among it: a few, but not more with each connection.
            assert held[-1] - held[4] < 4 * MB, [size // MB for size in held]

    tracemalloc.start()
    try:
        run(asyncio.wait_for(scenario(), 60))
    finally:
        tracemalloc.stop()
