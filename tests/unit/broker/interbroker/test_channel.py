"""Requests to one peer: order, limits, and errors after each fault."""

import asyncio
import logging
import random
import socket
import threading
import time

import pytest
from tests.unit.broker.interbroker.conftest import SERVED, heartbeat

from barnabas.base.environment.network import SocketNetwork
from barnabas.base.errors import ErrorCode, ProtocolError
from barnabas.base.system import event_loop
from barnabas.broker.interbroker import (
    Channel,
    ChannelClosedError,
    ChannelFullError,
    DisconnectedError,
    NotConnectedError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, encode_response, parse_request
from barnabas.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.produce import ProduceRequest


def now():
    return asyncio.get_running_loop().time()


def parked():
    return asyncio.get_running_loop().create_future()


def is_connected(channel):
    return channel._connection is not None and channel._connection.is_open


async def failure(future, kind):
    """Return the error of a request, and check its type."""
    with pytest.raises(kind) as caught:
        await future
    return caught.value


def test_a_request_is_answered(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: HeartbeatResponse(throttle_time_ms=7)
        channel = world.channel()
        assert not is_connected(channel)
        assert (await channel.send(heartbeat())).throttle_time_ms == 7
        assert is_connected(channel)
        assert world.peer.client_ids == {"tests"}
        assert len(world.peer.sessions) == 1

    run(scenario)


def test_a_response_is_handed_over_in_the_turn_in_which_it_arrives(run):
    told = []

    async def scenario(world):
        channel = world.channel()
        await channel.send(heartbeat())

        def then(future):
            told.append(future.result())
            later = channel.submit(heartbeat("behind"))  # from within it, too
            later.add_done_callback(told.append)

        future = channel.submit(heartbeat(), then=then)
        future.add_done_callback(lambda future: told.append("a turn later"))
        await future
        assert told == [future.result(), "a turn later"]
        await asyncio.sleep(1)
        assert len(told) == 3

    run(scenario)


class Encoded:
    """A heartbeat that encodes itself, and decodes only responses without an error."""

    api_key = HeartbeatRequest.api_key
    versions = (4, 4)

    def encode(self, correlation_id):
        header = RequestHeader(self.api_key, 4, correlation_id, "me")
        return b"".join(map(bytes, encode_request(header, HeartbeatRequest(group_id="encoded"))))

    def decode(self, frame):
        return None if frame[-3:-1] != b"\0\0" else "usual"


def test_an_encoded_request_decodes_its_usual_responses(run):
    async def scenario(world):
        answers = [HeartbeatResponse(), HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
        world.peer.heartbeat = lambda request: answers.pop(0)
        channel = world.channel()
        assert await channel.submit(Encoded()) == "usual"
        response = await channel.submit(Encoded())
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert world.peer.heartbeats == ["encoded", "encoded"]

    run(scenario)


def test_a_failure_is_handed_over_and_a_cancelled_request_is_not(run):
    told = []

    async def scenario(world):
        channel = world.channel()
        world.peer.heartbeat = lambda request: parked()
        cancelled = channel.submit(heartbeat("cancelled"), then=told.append)
        failed = channel.submit(heartbeat("failed"), timeout_s=1, then=told.append)
        cancelled.cancel()
        await failure(failed, RequestTimeoutError)
        assert told == [failed]
        await channel.close()
        refused = channel.submit(heartbeat(), then=told.append)
        assert told == [failed, refused]
        await failure(refused, ChannelClosedError)

    run(scenario)


def test_requests_are_pipelined_and_each_gets_its_own_answer(run):
    async def scenario(world):
        futures = {}
        world.peer.heartbeat = lambda request: futures.setdefault(request.group_id, parked())
        channel = world.channel()
        calls = [channel.submit(heartbeat(number)) for number in range(20)]
        await asyncio.sleep(1)
        assert world.peer.heartbeats == [str(number) for number in range(20)]
        for number in reversed(range(20)):
            futures[str(number)].set_result(HeartbeatResponse(throttle_time_ms=number))
        assert [(await call).throttle_time_ms for call in calls] == list(range(20))
        assert channel.in_flight == 0

    run(scenario)


def test_a_request_goes_in_the_highest_common_version(run):
    async def scenario(world):
        world.peer.served = [ApiVersion(api_key=12, min_version=1, max_version=2)]
        channel = world.channel()
        await channel.send(HeartbeatRequest(group_id="g", group_instance_id=None))
        error = await failure(channel.submit(MetadataRequest()), UnsupportedVersionError)
        assert "Metadata" in str(error)
        assert not error.may_have_been_carried_out
        await failure(channel.submit(heartbeat(), max_version=0), UnsupportedVersionError)
        await channel.send(heartbeat(), max_version=1)
        assert len(world.peer.sessions) == 1

    run(scenario)


@pytest.mark.parametrize("highest", [0, 3])
def test_a_peer_with_an_older_apiversions_is_asked_again(run, highest):
    async def scenario(world):
        world.peer.api_versions = highest
        await world.channel().send(heartbeat())

    run(scenario)


def test_a_request_that_cannot_be_encoded_harms_no_other(run):
    async def scenario(world):
        channel = world.channel()
        first, wrong, last = (channel.submit(heartbeat(g)) for g in ("first", "x" * 40_000, "last"))
        await first
        await last
        assert isinstance(wrong.exception(), ProtocolError)
        assert world.peer.heartbeats == ["first", "last"]

    run(scenario)


def test_no_more_requests_are_in_flight_than_allowed(run):
    async def scenario(world):
        gate = parked()
        world.peer.heartbeat = lambda request: gate
        channel = world.channel()
        calls = [channel.submit(heartbeat(number)) for number in range(10)]
        await asyncio.sleep(1)
        assert len(world.peer.heartbeats) == channel.in_flight == 3
        assert channel.queued == 7
        gate.set_result(HeartbeatResponse())
        await asyncio.gather(*calls)
        assert world.peer.heartbeats == [str(number) for number in range(10)]

    run(scenario, max_in_flight=3)


def test_no_more_bytes_are_in_flight_than_allowed(run):
    async def scenario(world):
        gate = parked()
        world.peer.heartbeat = lambda request: gate
        channel = world.channel()
        calls = [channel.submit(heartbeat("x" * 600)) for _ in range(5)]
        await asyncio.sleep(1)
        assert channel.in_flight == 2
        gate.set_result(HeartbeatResponse())
        await asyncio.gather(*calls)

    run(scenario, max_in_flight_bytes=1000)


def test_one_request_too_many_is_refused_and_was_not_sent(run):
    async def scenario(world):
        channel = world.channel()
        calls = [channel.submit(heartbeat(number)) for number in range(3)]
        error = await failure(calls.pop(), ChannelFullError)
        assert not error.may_have_been_carried_out
        await asyncio.gather(*calls)
        assert world.peer.heartbeats == ["0", "1"]

    run(scenario, max_queued=2)


def test_requests_wait_while_the_peer_does_not_read(run):
    async def scenario(world):
        channel = world.channel()
        await channel.send(heartbeat())
        world.peer.sessions[0].transport.pause_reading()
        calls = [channel.submit(heartbeat("x" * 30_000)) for _ in range(30)]
        await asyncio.sleep(1)
        assert channel.in_flight < 10
        world.peer.sessions[0].transport.resume_reading()
        await asyncio.gather(*calls)

    run(scenario, conditions={"window": 10_000})


def test_a_disconnect_fails_what_was_sent_and_keeps_what_was_not(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: parked()
        channel = world.channel()
        calls = [channel.submit(heartbeat(number)) for number in range(3)]
        await asyncio.sleep(1)
        world.peer.heartbeat = lambda request: HeartbeatResponse()
        assert world.network.reset("client", "peer") == 1
        for call in calls[:2]:
            error = await failure(call, DisconnectedError)
            assert error.may_have_been_carried_out
            assert "the peer" in str(error) and "Heartbeat" in str(error)
        await calls[2]
        assert world.peer.heartbeats == ["0", "1", "2"]

    run(scenario, max_in_flight=2)


def test_a_peer_that_ends_the_connection_is_connected_to_again(run):
    async def scenario(world):
        channel = world.channel()
        for _ in range(5):
            await channel.send(heartbeat())
            world.peer.sessions[0].transport.close()
            await asyncio.sleep(0.01)
            assert not is_connected(channel)
        assert now() >= 4 * 0.05 * 0.8  # a pause between two connections, however the first ended

    run(scenario)


def test_nobody_listens_at_the_address(run, caplog):
    async def scenario(world):
        world.address = ("peer", 9999)
        channel = world.channel()
        calls = [channel.submit(heartbeat(number)) for number in range(3)]
        for call in calls:
            error = await failure(call, NotConnectedError)
            assert not error.may_have_been_carried_out
            assert "peer:9999" in str(error) and "refused" in str(error)
        for _ in range(8):
            await failure(channel.submit(heartbeat()), NotConnectedError)
        began = now()
        await failure(channel.submit(heartbeat()), NotConnectedError)
        assert 0.8 <= now() - began <= 1.3  # the longest back-off
        world.address = ("peer", 9092)
        await channel.send(heartbeat())
        world.network.reset("client", "peer")
        await asyncio.sleep(0.1)
        began = now()
        await channel.send(heartbeat())
        assert now() - began < 0.1  # what failed before does not count any more

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]


def test_an_address_that_is_not_known_may_become_known(run):
    async def scenario(world):
        known, world.address = world.address, None
        channel = world.channel()
        error = await failure(channel.submit(heartbeat()), NotConnectedError)
        assert "not known" in str(error)
        world.address = known
        await channel.send(heartbeat())

    run(scenario)


def test_a_peer_that_does_not_answer_the_connect_is_given_up(run):
    async def scenario(world):
        world.network.cut("client", "peer")
        error = await failure(world.channel().submit(heartbeat()), NotConnectedError)
        assert "no answer within 10 s" in str(error)
        assert 10 <= now() < 11
        world.network.heal_all()
        await asyncio.sleep(100)
        assert list(world.network.connections()) == []

    run(scenario)


def test_a_peer_that_does_not_answer_the_handshake_is_given_up(run):
    async def scenario(world):
        world.peer.answer = lambda request: parked()
        await failure(world.channel().submit(heartbeat()), NotConnectedError)
        await asyncio.sleep(1)
        assert not world.peer.sessions

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x06\x00\x00\x00\x09\x00\x00",  # to request 9
        b"\x00\x00\x00\x02\x00\x00",
        b"\xff\xff\xff\xff",
    ],
)
def test_a_peer_that_speaks_something_else_is_disconnected(run, answer):
    async def scenario(world):
        versions, world.peer.answer = world.peer.answer, lambda request: answer
        channel = world.channel()
        await failure(channel.submit(heartbeat()), NotConnectedError)
        world.peer.answer = versions
        world.peer.heartbeat = lambda request: answer
        error = await failure(channel.submit(heartbeat()), DisconnectedError)
        assert error.may_have_been_carried_out
        world.peer.heartbeat = lambda request: HeartbeatResponse()
        await channel.send(heartbeat())

    run(scenario)


def test_an_answer_that_nobody_asked_for_ends_the_connection(run):
    async def scenario(world):
        channel = world.channel()
        await channel.send(heartbeat())
        world.peer.sessions[0].transport.write(b"\x00\x00\x00\x04\x00\x00\x00\x01")
        await asyncio.sleep(1)
        assert not is_connected(channel)
        await channel.send(heartbeat())

    run(scenario)


def test_an_answer_that_is_too_large_ends_the_connection(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: (1 << 28).to_bytes(4, "big") + bytes(100)
        error = await failure(world.channel().submit(heartbeat()), DisconnectedError)
        assert "268435456 bytes" in str(error)

    run(scenario, max_response_bytes=(1 << 28) - 1)


def test_an_answer_that_does_not_come_ends_the_connection_and_what_waits_goes_over_another(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: parked()
        channel = world.channel()
        first = channel.submit(heartbeat("first"), timeout_s=5)
        second = channel.submit(heartbeat("second"), timeout_s=50)
        third = channel.submit(heartbeat("third"), timeout_s=50)
        error = await failure(first, RequestTimeoutError)
        assert error.may_have_been_carried_out
        assert now() == 5
        world.peer.heartbeat = lambda request: HeartbeatResponse()
        assert (await failure(second, DisconnectedError)).may_have_been_carried_out
        await third

    run(scenario, max_in_flight=2)


def test_a_request_that_was_never_sent_may_time_out_alone(run):
    async def scenario(world):
        gate = parked()
        world.peer.heartbeat = lambda request: gate
        channel = world.channel()
        first = channel.submit(heartbeat("first"))
        second = channel.submit(heartbeat("second"), timeout_s=5)
        error = await failure(second, RequestTimeoutError)
        assert not error.may_have_been_carried_out
        gate.set_result(HeartbeatResponse())
        await first
        assert world.peer.heartbeats == ["first"]
        assert channel.queued == 0

    run(scenario, max_in_flight=1)


def test_a_half_open_connection_is_found_by_the_timeout(run):
    async def scenario(world):
        channel = world.channel()
        await channel.send(heartbeat())
        world.network.power_off("peer")
        assert is_connected(channel)
        error = await failure(channel.submit(heartbeat()), RequestTimeoutError)
        assert error.may_have_been_carried_out
        world.network.power_on("peer")
        await world.peer.start()
        await channel.send(heartbeat())

    run(scenario)


def test_a_short_cut_is_not_noticed_but_as_delay(run):
    async def scenario(world):
        channel = world.channel()
        await channel.send(heartbeat())
        world.network.cut("peer", "client", one_way=True)
        call = channel.submit(heartbeat())
        await asyncio.sleep(5)
        assert not call.done()
        world.network.heal_all()
        await call

    run(scenario)


def test_a_request_cancelled_before_it_is_sent_is_withdrawn(run):
    async def scenario(world):
        channel = world.channel()
        calls = [channel.submit(heartbeat(number)) for number in range(3)]
        calls[1].cancel()
        await calls[0]
        await calls[2]
        assert world.peer.heartbeats == ["0", "2"]
        assert channel.queued == channel.in_flight == 0

    run(scenario)


def test_the_answer_to_a_cancelled_request_is_dropped(run):
    async def scenario(world):
        futures = {"0": parked(), "1": parked()}
        world.peer.heartbeat = lambda request: futures[request.group_id]
        channel = world.channel()
        first, second = (channel.submit(heartbeat(number)) for number in range(2))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        assert channel.in_flight == 2
        futures["0"].set_result(HeartbeatResponse(throttle_time_ms=1))
        futures["1"].set_result(HeartbeatResponse(throttle_time_ms=2))
        assert (await second).throttle_time_ms == 2

    run(scenario)


def test_a_silent_peer_is_found_out_even_if_nobody_waits_any_more(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: parked()
        channel = world.channel()
        call = channel.submit(heartbeat())
        await asyncio.sleep(1)
        call.cancel()
        await asyncio.sleep(60)
        assert not is_connected(channel)

    run(scenario)


def test_closing_fails_everything_and_says_what_was_sent(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: parked()
        channel = world.channel()
        sent, waiting = (channel.submit(heartbeat(number)) for number in range(2))
        await asyncio.sleep(1)
        await channel.close()
        assert (await failure(sent, ChannelClosedError)).may_have_been_carried_out
        assert not (await failure(waiting, ChannelClosedError)).may_have_been_carried_out
        assert not (await failure(channel.submit(heartbeat()), ChannelClosedError)).may_have_been_carried_out
        await asyncio.sleep(1)
        assert list(world.network.connections()) == []
        await channel.close()

    run(scenario, max_in_flight=1)


def test_closing_may_wait_for_the_answers(run):
    async def scenario(world):
        gate = parked()
        world.peer.heartbeat = lambda request: gate
        channel = world.channel()
        call = channel.submit(heartbeat())
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_later(2, gate.set_result, HeartbeatResponse())
        await channel.close(grace=10)
        await call
        assert 3 <= now() < 4

    run(scenario)


def test_closing_waits_for_no_longer_than_its_grace(run):
    async def scenario(world):
        world.peer.heartbeat = lambda request: parked()
        channel = world.channel()
        call = channel.submit(heartbeat())
        await asyncio.sleep(1)
        await channel.close(grace=10)
        assert now() == 11
        await failure(call, ChannelClosedError)

    run(scenario)


def test_closing_while_connecting_leaves_nothing(run):
    async def scenario(world):
        channel = world.channel()
        call = channel.submit(heartbeat())
        await asyncio.sleep(0.001)
        await channel.close()
        await failure(call, ChannelClosedError)
        await asyncio.sleep(1)
        assert list(world.network.connections()) == []

    run(scenario)


def test_a_connection_that_was_idle_for_long_is_not_used_again(run):
    async def scenario(world):
        channel = world.channel()
        await channel.send(heartbeat())
        (old,) = world.peer.sessions
        await asyncio.sleep(539)
        await channel.send(heartbeat())
        assert world.peer.sessions == [old]
        await asyncio.sleep(541)
        await channel.send(heartbeat())
        assert old not in world.peer.sessions

    run(scenario)


def test_what_has_no_answer_cannot_be_asked(run):
    async def scenario(world):
        with pytest.raises(ValueError, match="acks=0"):
            world.channel().submit(ProduceRequest(acks=0))

    run(scenario)


def test_an_address_that_cannot_be_found_out_fails_what_waits_at_once(run):
    async def scenario(world):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        channel = world.channel()
        channel._address = lambda: 1 // 0
        await failure(channel.submit(heartbeat()), NotConnectedError)
        assert now() < 1

    run(scenario)


def test_an_answer_that_came_while_the_event_loop_stood_still_is_taken():
    """A pause of this process is not a pause of the peer: the event loop reads data before it runs timers."""
    listening = socket.create_server(("127.0.0.1", 0))
    is_received, is_still = threading.Event(), threading.Event()

    def serve():
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as stream:
            for _ in range(3):
                header, request = parse_request(stream.read(int.from_bytes(stream.read(4), "big")))
                if header.correlation_id == 3:
                    is_received.set()
                    is_still.wait(60)
                answer = HeartbeatResponse()
                if isinstance(request, ApiVersionsRequest):
                    answer = ApiVersionsResponse(api_keys=SERVED)
                connection.sendall(b"".join(map(bytes, encode_response(header, answer))))

    async def scenario():
        channel = Channel(
            SocketNetwork(), listening.getsockname, name="peer", client_id="tests", rng=random.Random(1)
        )
        await channel.send(heartbeat())
        call = channel.submit(heartbeat(), timeout_s=0.3)
        while not is_received.is_set():  # a longer sleep could outlast the timeout
            await asyncio.sleep(0)
        is_still.set()
        peer.join()
        time.sleep(0.5)
        await call
        await channel.close()

    with listening:
        peer = threading.Thread(target=serve)
        peer.start()
        event_loop.run(scenario())
