"""Data for a client: in order, complete, and with limited memory."""

import asyncio
import random
import ssl

import pytest

from barnabas.base.environment.filesystem import IOV_MAX
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.system import event_loop
from barnabas.broker.server.network.outbox import PIECE_BYTES, Outbox
from barnabas.broker.storage import OpenFiles
from barnabas.broker.storage.open_files import FileSlice, LogFile

CONTENT = random.Random(0).randbytes(8 << 20)


@pytest.fixture
def files():
    return OpenFiles(OsFileSystem())


@pytest.fixture
def file(files, tmp_path):
    file = LogFile(files, str(tmp_path / "records"))
    file.write_at([CONTENT], 0)
    return file


class Sender(asyncio.Protocol):
    """The broker's side of a connection."""

    def connection_made(self, transport):
        self.outbox = Outbox(transport)
        self.lost = asyncio.get_running_loop().create_future()

    def resume_writing(self):
        self.outbox.resume()

    def connection_lost(self, exc):
        self.outbox.clear()
        self.lost.set_result(None)


@pytest.fixture(params=[None, "TLSv1_2", "TLSv1_3"], ids=["plaintext", "TLS 1.2", "TLS 1.3"])
def tls(request, certificates):
    """Return the TLS contexts of the broker and of the client; None without TLS."""
    if request.param is None:
        return None, None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.server)
    server.maximum_version = ssl.TLSVersion[request.param]
    return server, ssl.create_default_context(cafile=certificates.authority)


@pytest.fixture(params=[asyncio.new_event_loop, event_loop.new_event_loop], ids=["asyncio", "broker's"])
def connected(request, tls):
    """Run a scenario with both ends of a connection: the sender, and the client's reader and writer."""

    def run(scenario):
        async def main():
            loop = asyncio.get_running_loop()
            sender = Sender()
            server = await loop.create_server(lambda: sender, "127.0.0.1", 0, ssl=tls[0])
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=tls[1])
            while not hasattr(sender, "outbox"):
                await asyncio.sleep(0)
            await scenario(sender.outbox, reader, writer)
            sender.outbox._transport.abort()
            writer.transport.abort()
            await sender.lost
            server.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(main(), 20))

    return run


@pytest.mark.parametrize("seed", range(5))
def test_replies_of_all_kinds_arrive_whole_and_in_order(connected, file, seed):
    chance = random.Random(seed)

    def chunk():
        size = chance.choice([1, 50, 100_000, 3_000_000])
        start = chance.randrange(len(CONTENT) - size)
        data = CONTENT[start : start + size]
        return data, chance.choice([data, FileSlice(file, start, size), FileSlice(file, start, size)])

    async def scenario(outbox, reader, writer):
        expected = b""
        for _ in range(4):
            parts = [chunk() for _ in range(chance.randint(1, 6))]
            expected += b"".join(data for data, _ in parts)
            outbox.send([chunk for _, chunk in parts])
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        assert await reader.readexactly(len(expected)) == expected
        assert not outbox.waiting

    connected(scenario)


def test_more_chunks_than_one_system_call_takes_arrive(connected, file):
    async def scenario(outbox, reader, writer):
        chunks = [b"%06d" % number for number in range(5 * IOV_MAX)]
        outbox.send(chunks)
        outbox.send([*chunks, FileSlice(file, 0, 70_000), *chunks])
        expected = b"".join([*chunks, *chunks, CONTENT[:70_000], *chunks])
        assert await reader.readexactly(len(expected)) == expected

    connected(scenario)


def test_bytes_wait_in_their_file_until_the_client_takes_them(connected, file):
    async def scenario(outbox, reader, writer):
        outbox.send([FileSlice(file, 0, len(CONTENT)) for _ in range(8)])
        assert outbox.waiting
        assert outbox._transport.get_write_buffer_size() <= 2 * PIECE_BYTES
        assert await reader.readexactly(8 * len(CONTENT)) == 8 * CONTENT

    connected(scenario)


def test_a_file_deleted_meanwhile_is_sent_to_its_end_and_closed_then(connected, file, files):
    async def scenario(outbox, reader, writer):
        outbox.send([FileSlice(file, 0, len(CONTENT)) for _ in range(8)])
        file.remove()
        assert await reader.readexactly(8 * len(CONTENT)) == 8 * CONTENT
        assert file.pins == 0

    connected(scenario)


def test_what_a_client_that_left_will_not_read_is_let_go(connected, file):
    async def scenario(outbox, reader, writer):
        outbox.send([FileSlice(file, 0, len(CONTENT)) for _ in range(8)])
        assert file.pins
        writer.transport.abort()
        while file.pins:
            await asyncio.sleep(0.001)
        assert not outbox.waiting

    connected(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_replies_kept_while_the_outbox_is_corked_arrive_whole_and_in_order(connected, file, seed):
    chance = random.Random(seed)

    async def scenario(outbox, reader, writer):
        expected = b""
        for _ in range(6):
            outbox.cork()
            for _ in range(chance.choice([1, 5, 200])):
                size = chance.choice([1, 40, 40, 4096, 5000])
                reply = chance.choice([bytes, bytearray])(CONTENT[:size])
                chunks = chance.choice([[reply], [reply], [reply], [reply, FileSlice(file, 0, size)]])
                expected += CONTENT[:size] * len(chunks)
                outbox.send(chunks)
            outbox.uncork()
        assert await reader.readexactly(len(expected)) == expected
        assert not outbox.waiting

    connected(scenario)


class Channel:
    """A transport to which the kernel cannot send, for example an encrypted one. It keeps the data that it
    gets.
    """

    def __init__(self):
        self.written = b""
        self.held = 0

    def get_extra_info(self, name):
        return object() if name == "sslcontext" else None

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        return self.held

    def is_closing(self):
        return False

    def write(self, data):
        self.written += data
        self.held += len(data)


def test_where_the_kernel_cannot_send_bytes_are_read_piece_by_piece(file):
    channel = Channel()
    outbox = Outbox(channel)
    outbox.send([b"header", FileSlice(file, 0, 3 * PIECE_BYTES + 1), b"footer"])
    expected = b"header" + CONTENT[: 3 * PIECE_BYTES + 1] + b"footer"
    while outbox.waiting:
        assert channel.held <= PIECE_BYTES
        channel.held = 0
        outbox.resume()
    assert channel.written == expected


class Emptied(Channel):
    """A transport that sends its data at once."""

    def get_write_buffer_size(self):
        return 0


def test_bytes_that_their_file_has_lost_are_an_error(file):
    file.truncate(100)
    with pytest.raises(OSError, match="no longer in their file"):
        Outbox(Emptied()).send([b"header", FileSlice(file, 0, len(CONTENT))])
