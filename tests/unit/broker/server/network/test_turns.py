"""Requests that arrive together begin in several turns of the event loop."""

import asyncio

from tests.property.connections import connect, host_of

from barnabas.base.errors import ProtocolError
from barnabas.broker.server.network.in_place import InPlaceReceiver
from barnabas.broker.server.network.session import WORTH_IN_PLACE
from barnabas.broker.server.network.turns import SLICE


def framed(*contents):
    return b"".join(len(content).to_bytes(4) + content for content in contents)


class Broker:
    """A broker whose requests take 0.4 of a slice each, by a clock of its own. It echoes requests.

    `served` has the requests in the order in which they began, and "-" for each turn of the event loop.
    """

    def __init__(self):
        self.served = []
        self._time = 0.0
        self.seconds_a_reading = 0.0
        self._host = host_of(self, self._now)

    def _now(self):
        self._time += self.seconds_a_reading
        return self._time

    def serve(self, frame, client):
        self._time += 0.4 * SLICE
        self.served.append(bytes(frame[:1]).decode())
        if frame == b"!":
            raise ProtocolError("not a request")
        client.reply([frame])

    def connect(self):
        session, transport = connect(self, self._host)
        transport.is_reading = True
        transport.pause_reading = lambda: setattr(transport, "is_reading", False)
        transport.resume_reading = lambda: setattr(transport, "is_reading", True)
        transport.set_protocol = lambda protocol: setattr(transport, "protocol", protocol)
        return session, transport

    def busy(self, *contents):
        """Return a connection whose requests wait, behind requests of another connection in the same turn."""
        self.connect()[0].data_received(framed(b"x", b"x", b"x"))
        session, transport = self.connect()
        session.data_received(framed(*contents))
        assert "".join(self.served) == "xxx"
        self.served.clear()
        return session, transport

    async def turns(self, count):
        for _ in range(count):
            self.served.append("-")
            await asyncio.sleep(0)
        return "".join(self.served)


def in_loop(scenario):
    async def main():
        await scenario(Broker())

    asyncio.run(main())


def test_requests_that_arrive_together_begin_in_several_turns_in_the_order_of_their_arrival():
    async def scenario(broker):
        clients = {name: broker.connect() for name in "abcdefgh"}
        for name, (session, _) in clients.items():
            session.data_received(framed(name.encode()))
        assert await broker.turns(4) == "abc-def-gh--"
        assert {name: transport.sent.decode() for name, (_, transport) in clients.items()} == {
            name: name for name in clients
        }

    in_loop(scenario)


def test_a_connection_keeps_its_place_if_the_slice_ends_just_before_its_request_begins():
    async def scenario(broker):
        broker.seconds_a_reading = SLICE / 27
        names = [chr(ord("A") + number) for number in range(50)]
        for name in names:
            broker.connect()[0].data_received(framed(name.encode()))
        while len(broker.served) < 50:
            await asyncio.sleep(0)
        assert broker.served == names

    in_loop(scenario)


def test_a_client_with_many_requests_in_one_read_waits_for_its_turn_like_others():
    async def scenario(broker):
        (one, transport), (other, _) = broker.connect(), broker.connect()
        one.data_received(framed(*[b"a"] * 7))
        other.data_received(framed(b"b"))
        assert await broker.turns(4) == "aaa-aaa-ba--"
        assert transport.sent == b"a" * 7

    in_loop(scenario)


def test_a_request_that_arrives_while_others_wait_begins_after_them():
    async def scenario(broker):
        broker.busy(b"a")
        later, _ = broker.connect()
        later.data_received(framed(b"b"))
        assert await broker.turns(3) == "-ab--"

    in_loop(scenario)


def test_requests_of_different_turns_do_not_wait():
    async def scenario(broker):
        session, _ = broker.connect()
        for _ in range(10):
            session.data_received(framed(b"a"))
            await broker.turns(1)
        assert "".join(broker.served) == "a-" * 10

    in_loop(scenario)


def test_a_connection_that_waits_reads_once_more_and_then_pauses_until_its_requests_have_begun():
    async def scenario(broker):
        session, transport = broker.busy(b"a")
        assert transport.is_reading
        session.data_received(framed(b"b"))
        assert not transport.is_reading
        assert await broker.turns(2) == "-ab-"
        assert transport.is_reading
        assert transport.sent == b"ab"

    in_loop(scenario)


def test_a_large_request_waits_for_its_turn():
    async def scenario(broker):
        large = b"L" * (WORTH_IN_PLACE + 100_000)
        session, transport = broker.connect()
        session.data_received(framed(large)[:50_000])
        receiver = transport.protocol
        assert isinstance(receiver, InPlaceReceiver)
        broker.busy(b"a")
        rest = framed(large)[50_000:]
        while rest:
            buffer = receiver.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            buffer.release()
            receiver.buffer_updated(count)
            rest = rest[count:]
        assert await broker.turns(2) == "-aL-"
        assert len(transport.sent) == len(large)

    in_loop(scenario)


def test_requests_of_a_connection_that_ends_while_they_wait_do_not_begin():
    async def scenario(broker):
        session, _ = broker.busy(b"a")
        session.connection_lost(None)
        assert await broker.turns(2) == "--"

    in_loop(scenario)


def test_a_connection_that_is_closed_while_its_requests_wait_serves_none():
    async def scenario(broker):
        session, transport = broker.busy(b"a")
        session.close("its user was deleted")
        assert await broker.turns(2) == "--"
        assert not transport.is_open

    in_loop(scenario)


def test_a_client_that_ends_its_sending_while_its_request_waits_gets_its_reply_before_the_close():
    async def scenario(broker):
        session, transport = broker.busy(b"a")
        assert session.eof_received()
        assert transport.is_open
        assert await broker.turns(2) == "-a-"
        assert transport.sent == b"a"
        assert not transport.is_open

    in_loop(scenario)


def test_a_client_that_is_muted_while_its_request_waits_stays_muted():
    async def scenario(broker):
        session, transport = broker.busy(b"a")
        session.mute(0.01)
        assert await broker.turns(2) == "--"
        assert not transport.is_reading
        while not transport.sent:
            await asyncio.sleep(0.001)
        assert transport.is_reading

    in_loop(scenario)


def test_a_client_that_ends_its_sending_while_it_is_muted_is_closed_after_its_reply():
    async def scenario(broker):
        session, transport = broker.connect()
        session.mute(0.01)
        session.data_received(framed(b"a"))
        assert session.eof_received()
        while transport.is_open:
            await asyncio.sleep(0.001)
        assert transport.sent == b"a"

    in_loop(scenario)


def test_a_request_that_closes_its_connection_does_not_hold_up_those_that_wait_behind_it():
    async def scenario(broker):
        _, closed = broker.busy(b"!", b"b")
        other, _ = broker.connect()
        other.data_received(framed(b"c"))
        assert await broker.turns(2) == "-!c-"
        assert not closed.is_open

    in_loop(scenario)


def test_an_error_of_the_broker_does_not_hold_up_those_that_wait():
    async def scenario(broker):
        def fail(frame, client):
            raise ZeroDivisionError

        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        broken, transport = broker.busy(b"a")
        broken._serve = fail
        other, _ = broker.connect()
        other.data_received(framed(b"b"))
        assert await broker.turns(3) == "--b-"
        assert not transport.is_open
        assert isinstance(errors[0]["exception"], ZeroDivisionError)

    in_loop(scenario)


def test_a_request_waits_for_its_turn_and_for_the_response_before_it():
    async def scenario(broker):
        session, transport = broker.connect()
        answer = asyncio.get_running_loop().create_future()
        session.park(answer, lambda done: [b"first"], False)
        broker.busy(b"b")
        session.data_received(framed(b"a"))
        assert await broker.turns(2) == "-b-"
        assert not transport.is_reading
        answer.set_result(None)
        assert await broker.turns(2) == "-b--a-"
        assert transport.sent == b"firsta"
        assert transport.is_reading

    in_loop(scenario)


def test_timers_run_while_connections_wait():
    async def scenario(broker):
        loop = asyncio.get_running_loop()
        for _ in range(100):
            broker.connect()[0].data_received(framed(b"a"))
        loop.call_later(0, broker.served.append, "timer")
        while broker.served.count("a") < 100:
            await asyncio.sleep(0)
        assert broker.served.index("timer") < 10

    in_loop(scenario)
