"""The simulated network: connections, back-pressure and each fault, in virtual time."""

import asyncio

import pytest
from simulation.virtual_time import VirtualProcess
from tests.unit.simulation.conftest import Recorder

from barnabas.base.environment.network import BindError, sendfile_descriptor, set_buffer_sizes


def test_bytes_arrive_in_order_and_the_end_after_them(run):
    async def scenario(world):
        client, server = await world.pair()
        for number in range(100):
            client.transport.write(b"%3d" % number)
        client.transport.close()
        assert not server.received  # they take their time
        await asyncio.sleep(1)
        assert server.received == b"".join(b"%3d" % number for number in range(100))
        assert server.has_ended
        assert server.lost == client.lost == [None]
        assert list(world.network.connections()) == []

    run(scenario)


def test_both_ends_know_their_names_and_have_no_socket(run):
    async def scenario(world):
        client, server = await world.pair()
        assert client.transport.get_extra_info("peername") == ("server", 9092)
        assert server.transport.get_extra_info("peername")[0] == "client"
        assert server.transport.get_extra_info("peername") == client.transport.get_extra_info("sockname")
        assert sendfile_descriptor(client.transport) is None
        set_buffer_sizes(client.transport, send=4096, receive=4096)
        assert world.client.machine_name() == "client"

    run(scenario)


def test_a_writer_is_paused_while_the_reader_does_not_read(run):
    async def scenario(world):
        client, server = await world.pair()
        server.transport.pause_reading()
        client.transport.write(bytes(900))
        assert not client.is_paused  # the network takes a window of it
        client.transport.write(bytes(70_000))
        assert client.is_paused
        await asyncio.sleep(1)
        assert client.is_paused
        assert not server.received
        assert client.transport.get_write_buffer_size() == 69_900
        server.transport.resume_reading()
        await asyncio.sleep(10)
        assert not client.is_paused
        assert len(server.received) == 70_900

    run(scenario, window=1000)


def test_a_protocol_that_wants_to_hear_of_an_empty_buffer_does(run):
    async def scenario(world):
        client, server = await world.pair()
        client.transport.set_write_buffer_limits(high=0)
        client.transport.write(bytes(1001))
        assert client.is_paused
        await asyncio.sleep(1)
        assert not client.is_paused
        assert client.transport.get_write_buffer_size() == 0
        assert len(server.received) == 1001

    run(scenario, window=1000)


def test_a_reader_that_pauses_amid_its_data_gets_the_rest_later(run):
    class Hesitant(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.transport.pause_reading()

    async def scenario(world):
        await world.listen(Hesitant)
        client = await world.connect()
        client.transport.write(b"one")
        await asyncio.sleep(1)
        client.transport.write(b"two")
        client.transport.close()
        await asyncio.sleep(1)
        (server,) = world.served
        assert server.received == b"one"
        assert not server.has_ended
        while not server.has_ended:
            server.transport.resume_reading()
            await asyncio.sleep(1)
        assert server.received == b"onetwo"

    run(scenario, splits=0)


def test_a_buffered_protocol_receives_in_place(run):
    class InPlace(asyncio.BufferedProtocol):
        def __init__(self):
            self.buffer = bytearray(7)
            self.received = bytearray()

        def get_buffer(self, sizehint):
            return self.buffer

        def buffer_updated(self, nbytes):
            self.received += self.buffer[:nbytes]

    async def scenario(world):
        await world.listen(InPlace)
        client = await world.connect()
        client.transport.write(bytes(range(100)))
        await asyncio.sleep(1)
        assert world.served[0].received == bytes(range(100))

    run(scenario)


def test_half_a_connection_can_be_ended(run):
    class Answering(Recorder):
        def eof_received(self):
            super().eof_received()
            self.transport.write(b"answer to " + self.received)
            self.transport.close()
            return True

    async def scenario(world):
        await world.listen(Answering)
        client = await world.connect()
        client.transport.write(b"question")
        client.transport.write_eof()
        await asyncio.sleep(1)
        assert client.received == b"answer to question"
        assert client.lost == [None]

    run(scenario)


def test_a_close_still_sends_what_waits(run):
    async def scenario(world):
        client, server = await world.pair()
        client.transport.write(bytes(100_000))
        client.transport.close()
        assert client.transport.is_closing()
        await asyncio.sleep(0.01)
        assert not client.lost
        await asyncio.sleep(10)
        assert len(server.received) == 100_000
        assert client.lost == server.lost == [None]

    run(scenario, window=1000)


def test_the_end_of_half_a_connection_comes_behind_what_waits(run):
    async def scenario(world):
        client, server = await world.pair()
        client.transport.write(bytes(100_000))
        client.transport.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            client.transport.write(b"more")
        await asyncio.sleep(10)
        assert len(server.received) == 100_000
        assert server.has_ended

    run(scenario, window=1000)


def test_an_abort_forgets_what_waits(run):
    async def scenario(world):
        client, server = await world.pair()
        client.transport.write(bytes(100_000))
        client.transport.abort()
        await asyncio.sleep(10)
        assert len(server.received) == 1000
        assert client.lost == server.lost == [None]

    run(scenario, window=1000)


def test_whoever_writes_to_a_closed_end_is_reset(run):
    async def scenario(world):
        client, server = await world.pair()
        server.transport.abort()
        client.transport.write(b"too late")
        await asyncio.sleep(1)
        assert client.lost == [None]  # the end came first
        client, server = await world.connect(), world.served[-1]
        server.transport.pause_reading()
        client.transport.write(b"unread")
        await asyncio.sleep(1)
        server.transport.close()
        await asyncio.sleep(1)
        assert isinstance(client.lost[0], ConnectionResetError)

    run(scenario)


def test_nobody_listens(run):
    async def scenario(world):
        with pytest.raises(ConnectionRefusedError):
            await world.client.connect(Recorder, "server", 9092)
        with pytest.raises(OSError, match="nowhere"):
            await world.client.connect(Recorder, "nowhere", 9092)
        listening = await world.listen()
        await world.connect()
        listening.close()
        with pytest.raises(ConnectionRefusedError):
            await world.client.connect(Recorder, "server", 9092)
        assert len(list(world.network.connections())) == 1

    run(scenario)


def test_a_port_is_taken_once_and_only_on_ones_own_host(run):
    async def scenario(world):
        listening = await world.listen()
        with pytest.raises(BindError, match="in use"):
            world.server.bind("0.0.0.0", 9092)
        with pytest.raises(BindError, match="not an address"):
            world.server.bind("client", 9092)
        assert world.client.bind("localhost", 9092).port == 9092
        assert world.server.bind("server", 0).port != 9092
        listening.close()
        world.server.bind("", 9092)

    run(scenario)


def test_a_host_connects_to_itself(run):
    async def scenario(world):
        await world.listen()
        _, protocol = await world.server.connect(Recorder, "localhost", 9092)
        protocol.transport.write(b"me")
        await asyncio.sleep(1)
        assert world.served[0].received == b"me"

    run(scenario)


def test_a_connection_waits_until_it_is_accepted(run):
    async def scenario(world):
        listening = world.server.bind("", 9092)
        _, client = await world.client.connect(Recorder, "server", 9092)
        client.transport.write(b"early")
        await asyncio.sleep(1)
        served = Recorder()
        await listening.accept(lambda: served, backlog=5)
        await asyncio.sleep(1)
        assert served.received == b"early"

    run(scenario)


def test_a_listener_that_closes_resets_what_it_has_not_accepted(run):
    async def scenario(world):
        listening = world.server.bind("", 9092)
        _, client = await world.client.connect(Recorder, "server", 9092)
        client.transport.write(b"early")
        await asyncio.sleep(1)
        listening.close()
        await asyncio.sleep(1)
        assert isinstance(client.lost[0], ConnectionResetError)

    run(scenario)


@pytest.mark.parametrize("one_way", [("client", "server"), ("server", "client"), None])
def test_a_connect_over_a_cut_takes_until_it_is_given_up(run, one_way):
    async def scenario(world):
        await world.listen()
        world.network.cut(*(one_way or ("client", "server")), one_way=one_way is not None)
        with pytest.raises(TimeoutError):
            await world.client.connect(Recorder, "server", 9092)
        assert asyncio.get_running_loop().time() == 127
        world.network.heal_all()
        await asyncio.sleep(100)
        assert not world.served
        assert list(world.network.connections()) == []

    run(scenario)


def test_a_connect_that_is_cancelled_leaves_nothing(run):
    async def scenario(world):
        await world.listen()
        for cut_s in (0, 0.0005, 0.0015, 0.002):
            attempt = asyncio.ensure_future(world.client.connect(Recorder, "server", 9092))
            await asyncio.sleep(cut_s)
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
            await asyncio.sleep(1)
            assert list(world.network.connections()) == []

    run(scenario, delay=(0.001, 0.0011))


def test_a_cut_holds_everything_back_and_heals(run):
    async def scenario(world):
        client, server = await world.pair()
        world.network.cut("client", "server")
        client.transport.write(b"there")
        server.transport.write(b"back")
        await asyncio.sleep(300)
        assert not client.received
        assert not server.received
        assert world.network.is_cut("client", "server")
        world.network.heal("client", "server")
        await asyncio.sleep(11)
        assert server.received == b"there"
        assert client.received == b"back"
        assert not client.lost

    run(scenario)


def test_a_healed_connection_is_as_before(run):
    async def scenario(world):
        client, server = await world.pair()
        for turn in range(3):
            world.network.cut("client", "server")
            client.transport.write(b"a")
            await asyncio.sleep(10)
            world.network.heal("client", "server")
            await asyncio.sleep(30)
            client.transport.write(b"b")
            await asyncio.sleep(1)
            assert server.received == b"ab" * (turn + 1)

    run(scenario)


def test_a_sender_gives_up_what_does_not_arrive_though_acknowledgements_do_again(run):
    async def scenario(world):
        client, server = await world.pair()
        world.network.cut("server", "client", one_way=True)
        client.transport.write(b"arrives")
        await asyncio.sleep(1)
        world.network.cut("client", "server", one_way=True)
        client.transport.write(b" and is lost")
        await asyncio.sleep(1)
        world.network.heal("server", "client", one_way=True)
        await asyncio.sleep(910)
        assert server.received == b"arrives"
        assert isinstance(client.lost[0], TimeoutError)

    run(scenario, gives_up_after=900)


def test_what_is_on_its_way_does_not_cross_a_new_cut(run):
    async def scenario(world):
        client, server = await world.pair()
        client.transport.write(b"there")
        world.network.cut("client", "server")
        await asyncio.sleep(1)
        assert not server.received

    run(scenario)


def test_a_cut_one_way_stops_the_acknowledgements_of_the_other(run):
    async def scenario(world):
        client, server = await world.pair()
        world.network.cut("server", "client", one_way=True)
        client.transport.write(bytes(3000))
        await asyncio.sleep(60)
        assert len(server.received) == 1000  # a window
        server.transport.write(b"unheard")
        await asyncio.sleep(1)
        assert not client.received
        world.network.heal("server", "client", one_way=True)
        await asyncio.sleep(60)
        assert len(server.received) == 3000
        assert client.received == b"unheard"

    run(scenario, window=1000)


@pytest.mark.parametrize("cut", [("client", "server"), ("server", "client")])
def test_a_sender_gives_up_and_the_other_side_is_not_told(run, cut):
    async def scenario(world):
        client, server = await world.pair()
        world.network.cut(*cut, one_way=True)
        client.transport.write(b"anybody?")
        await asyncio.sleep(901)
        assert isinstance(client.lost[0], TimeoutError)
        assert not server.lost
        world.network.heal_all()
        await asyncio.sleep(100)
        assert not server.lost  # half open
        server.transport.write(b"who is there?")
        await asyncio.sleep(1)
        assert isinstance(server.lost[0], ConnectionResetError)
        assert list(world.network.connections()) == []

    run(scenario, gives_up_after=900)


def test_an_end_that_is_told_over_a_cut_link_arrives_when_it_is_healed(run):
    async def scenario(world):
        client, server = await world.pair()
        world.network.cut("client", "server")
        client.transport.close()
        await asyncio.sleep(100)
        assert client.lost == [None]
        assert not server.lost
        world.network.heal_all()
        await asyncio.sleep(11)
        assert server.lost == [None]

    run(scenario)


def test_a_reset_tells_both_ends(run):
    async def scenario(world):
        client, server = await world.pair()
        client.transport.write(b"lost")
        assert world.network.reset("server", "client") == 1
        await asyncio.sleep(1)
        assert isinstance(client.lost[0], ConnectionResetError)
        assert isinstance(server.lost[0], ConnectionResetError)
        assert not server.received
        assert world.network.reset("client", "server") == 0

    run(scenario)


def test_a_reset_is_noticed_by_whoever_reads_or_writes(run):
    async def scenario(world):
        for notice in (lambda t: t.resume_reading(), lambda t: t.write(b"x")):
            world.served.clear()
            client, _ = await world.connect(), world.served[-1]
            client.transport.pause_reading()
            world.network.reset("client", "server")
            await asyncio.sleep(1)
            assert not client.lost
            notice(client.transport)
            await asyncio.sleep(1)
            assert isinstance(client.lost[0], ConnectionResetError)

    async def listening(world):
        await world.listen()
        await scenario(world)

    run(listening)


def test_a_process_that_is_killed_ends_its_connections_and_hears_nothing(run):
    async def scenario(world):
        client, server = await world.pair()
        server.transport.write(b"last words")
        world.server.kill()
        await asyncio.sleep(1)
        assert client.received == b"last words"
        assert client.lost == [None]
        assert not server.lost
        with pytest.raises(ConnectionRefusedError):
            await world.client.connect(Recorder, "server", 9092)
        with pytest.raises(OSError):
            world.server.bind("", 9092)
        with pytest.raises(OSError):
            await world.server.connect(Recorder, "client", 1)
        server.transport.write(b"from the grave")
        world.server = world.network.host("server")
        await world.listen()
        await world.connect()

    run(scenario)


def test_a_machine_without_power_tells_nobody(run):
    async def scenario(world):
        client, server = await world.pair()
        server.transport.write(b"lost with the machine")
        world.network.power_off("server")
        client.transport.write(b"hello?")
        await asyncio.sleep(100)
        assert not client.received
        assert not client.lost
        with pytest.raises(TimeoutError):
            await world.client.connect(Recorder, "server", 9092)
        world.network.power_on("server")
        await asyncio.sleep(11)
        assert isinstance(client.lost[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await world.client.connect(Recorder, "server", 9092)

    run(scenario)


def test_a_slow_link_takes_its_time_and_slows_the_writer(run):
    async def scenario(world):
        client, server = await world.pair()
        world.network.slow("client", "server", 1000)
        client.transport.write(bytes(10_000))
        await asyncio.sleep(5)
        assert 4000 <= len(server.received) <= 5000
        await asyncio.sleep(6)
        assert len(server.received) == 10_000

    run(scenario, window=1000)


def test_an_exception_of_a_protocol_ends_its_connection_alone(run):
    class Broken(Recorder):
        def data_received(self, data):
            raise ZeroDivisionError

    async def scenario(world):
        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        await world.listen(Broken)
        client = await world.connect()
        client.transport.write(b"x")
        await asyncio.sleep(1)
        assert isinstance(reported[0]["exception"], ZeroDivisionError)
        assert client.lost == world.served[0].lost == [None]

    run(scenario)


def test_a_protocol_that_cannot_be_made_fails_its_connection_alone(run):
    def fail():
        raise ZeroDivisionError

    async def scenario(world):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        listening = world.server.bind("", 9092)
        await listening.accept(fail, backlog=1)
        _, client = await world.client.connect(Recorder, "server", 9092)
        await asyncio.sleep(1)
        assert client.lost == [None]
        with pytest.raises(ZeroDivisionError):
            await world.client.connect(fail, "server", 9092)
        await asyncio.sleep(1)
        assert list(world.network.connections()) == []

    run(scenario)


def test_streams_work_over_it(run):
    async def scenario(world):
        async def echo(reader, writer):
            writer.write(await reader.read())
            writer.close()

        loop = asyncio.get_running_loop()
        await world.listen(lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), echo))
        reader = asyncio.StreamReader()
        transport, protocol = await world.client.connect(
            lambda: asyncio.StreamReaderProtocol(reader), "server", 9092
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        writer.write(bytes(1_000_000))
        await writer.drain()
        writer.write_eof()
        assert len(await reader.read()) == 1_000_000
        writer.close()
        await writer.wait_closed()

    run(scenario)


def test_a_process_that_dies_takes_nothing_of_the_network_with_it(run):
    async def scenario(world):
        client_process, server_process = VirtualProcess("client"), VirtualProcess("server")
        await server_process.run(world.listen())
        client = await client_process.run(world.connect())
        server = world.served[0]
        client.transport.write(b"before")
        client_process.run(say(client, b" and after"))
        await asyncio.sleep(0)
        client_process.kill()
        world.client.kill()
        await asyncio.sleep(1)
        assert server.received == b"before and after"
        assert server.lost == [None]
        assert not client.lost

    async def say(client, text):
        client.transport.write(text)
        await asyncio.sleep(1000)

    run(scenario)


def test_what_a_connection_calls_belongs_to_the_process_that_listens(run):
    class Aware(Recorder):
        def data_received(self, data):
            super().data_received(data)
            self.process = VirtualProcess.current()

    async def scenario(world):
        client_process, server_process = VirtualProcess("client"), VirtualProcess("server")
        await server_process.run(world.listen(Aware))
        client = await client_process.run(world.connect(Aware))
        server = world.served[0]
        client.transport.write(b"to")
        server.transport.write(b"fro")
        await asyncio.sleep(1)
        assert client.process is client_process
        assert server.process is server_process
        server_process.kill()
        world.server.kill()
        client.transport.write(b"to")
        await asyncio.sleep(1)
        assert server.received == b"to"

    run(scenario)
