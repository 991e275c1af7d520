"""Whatever happens to a simulated connection, the received bytes are those that were sent, and none cross a
cut.
"""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.network import NetworkConditions, SimulatedNetwork
from simulation.virtual_time import run_virtual
from tests.effort import examples

END = "client", "server"


class Peer(asyncio.Protocol):
    """Sends numbered bytes, and keeps the received ones."""

    def __init__(self, name, world):
        self.name = name
        self.world = world
        self.sent = bytearray()
        self.received = bytearray()
        self.told_of_the_end = False
        self.closed_cleanly = False
        self.writable = True

    def connection_made(self, transport):
        self.transport = transport

    def send(self, size):
        if not self.transport.is_closing():
            start = len(self.sent)
            data = bytes((start + n) % 251 for n in range(size))
            self.sent += data
            self.transport.write(data)

    def data_received(self, data):
        other = END[1 - END.index(self.name)]
        assert not self.world.is_cut(other, self.name)
        assert self.transport.is_reading()
        assert not self.told_of_the_end
        self.received += data

    def pause_writing(self):
        assert self.writable
        self.writable = False

    def resume_writing(self):
        assert not self.writable
        self.writable = True

    def eof_received(self):
        self.told_of_the_end = True

    def connection_lost(self, exc):
        self.told_of_the_end = True
        assert exc is None or isinstance(exc, OSError)


ACTS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(END), st.integers(1, 5000)),
    st.tuples(st.just("wait"), st.floats(0.0001, 5.0)),
    st.tuples(st.just("cut"), st.sampled_from([END, END[::-1]]), st.booleans()),
    st.tuples(st.just("heal"), st.sampled_from([END, END[::-1]]), st.booleans()),
    st.tuples(st.just("pause"), st.sampled_from(END)),
    st.tuples(st.just("resume"), st.sampled_from(END)),
    st.tuples(st.just("slow"), st.sampled_from([END, END[::-1]]), st.sampled_from([100.0, 5000.0, None])),
    st.tuples(st.just("close"), st.sampled_from(END)),
    st.tuples(st.just("abort"), st.sampled_from(END)),
    st.tuples(st.just("reset")),
    st.tuples(st.just("power"), st.sampled_from(END)),
)


def play(seed, window, acts):
    """Return the trace of a connection with the events in `acts`, which is healed at the end."""
    trace = []

    async def scenario():
        loop = asyncio.get_running_loop()
        world = SimulatedNetwork(
            random.Random(seed),
            NetworkConditions(window=window, splits=0.5),
            observe=lambda *what: trace.append((loop.time(), *what)),
        )
        hosts = {name: world.host(name) for name in END}
        server = Peer("server", world)
        await hosts["server"].bind("", 1).accept(lambda: server, backlog=1)
        _, client = await hosts["client"].connect(lambda: Peer("client", world), "server", 1)
        await asyncio.sleep(1)
        peers = {"client": client, "server": server}
        harmed = False
        dark = set()
        for act, *arguments in acts:
            match act, arguments:
                case "send", [name, size]:
                    peers[name].send(size)
                case "wait", [seconds]:
                    await asyncio.sleep(seconds)
                case "cut", [(source, target), one_way]:
                    world.cut(source, target, one_way=one_way)
                case "heal", [(source, target), one_way]:
                    world.heal(source, target, one_way=one_way)
                case "pause", [name]:
                    peers[name].transport.pause_reading()
                case "resume", [name]:
                    peers[name].transport.resume_reading()
                case "slow", [(source, target), speed]:
                    world.slow(source, target, speed)
                case "close", [name]:
                    peers[name].transport.close()
                case "abort", [name]:
                    harmed = True
                    peers[name].transport.abort()
                case "reset", []:
                    harmed = True
                    world.reset(*END)
                case "power", [name]:
                    harmed = True
                    dark.add(name)
                    world.power_off(name)
        world.heal_all()
        for peer in peers.values():
            peer.transport.resume_reading()
        await asyncio.sleep(2000)
        for one, other in ((client, server), (server, client)):
            assert other.sent.startswith(one.received)
            whole = one.received == other.sent
            # nobody says that a machine has lost its power
            assert whole or one.told_of_the_end or one.transport.is_closing() or other.name in dark
            if not harmed and not any(act == "close" for act, *_ in acts):
                assert whole
                assert not one.told_of_the_end

    run_virtual(scenario())
    return trace


@settings(max_examples=examples(300, 3000), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([100, 4096, 131072]), st.lists(ACTS, max_size=30))
def test_bytes_arrive_whole_and_in_order_or_the_connection_is_told(seed, window, acts):
    assert play(seed, window, acts) == play(seed, window, acts)
