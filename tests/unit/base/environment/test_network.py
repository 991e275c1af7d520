"""The network of the operating system."""

import asyncio
import socket

import pytest

from barnabas.base.environment.network import BindError, SocketNetwork, sendfile_descriptor
from barnabas.base.system import event_loop


class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)


class Client(asyncio.Protocol):
    def __init__(self):
        self.received = bytearray()
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data):
        self.received += data

    def eof_received(self):
        self.ended.set_result(None)


def test_a_connection_carries_bytes_both_ways_until_it_is_closed():
    async def scenario():
        network = SocketNetwork()
        listening = network.bind("127.0.0.1", 0)
        echoes = []
        await listening.accept(lambda: echoes.append(Echo()) or echoes[-1], backlog=5)
        transport, client = await network.connect(Client, "127.0.0.1", listening.port)
        assert sendfile_descriptor(transport) is not None
        transport.write(b"hello")
        while client.received != b"hello":
            await asyncio.sleep(0.001)
        listening.close()
        with pytest.raises(OSError):
            await network.connect(Client, "127.0.0.1", listening.port)
        echoes[0].transport.close()
        await client.ended

    event_loop.run(scenario())


def test_nothing_is_accepted_before_the_word():
    listening = SocketNetwork().bind("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", listening.port)) as early:
        early.settimeout(0.05)
        with pytest.raises(TimeoutError):
            early.recv(1)
    listening.close()


def test_an_address_in_use_names_the_cure():
    hint = "the port is in use.*stop that, or choose another port"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BindError, match=hint):
        SocketNetwork().bind("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "\N{SNOWMAN}" * 70])
def test_a_host_that_is_not_this_machine_names_the_cure(host):
    with pytest.raises(BindError, match=r"use 127\.0\.0\.1 for this machine only"):
        SocketNetwork().bind(host, 0)


def test_a_text_that_is_no_host_name_cannot_be_connected_to():
    async def scenario():
        with pytest.raises(OSError):
            await SocketNetwork().connect(Client, "\N{SNOWMAN}" * 70, 9092)

    event_loop.run(scenario())
