"""One connection: order, back-pressure, bad input, limits."""

import asyncio
import socket
import struct
from types import SimpleNamespace

import pytest
from tests.property.connections import connect
from tests.unit.broker.server.conftest import reset_when_closed

from barnabas.base.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.broker.awaitables import SecondPhase
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.close_log import CloseLog
from barnabas.broker.server.network.listener import max_per_ip
from barnabas.broker.server.network.session import MAX_HELD_BYTES, MAX_UNANSWERED
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, encode_response, parse_response
from barnabas.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.wire import uvarint


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def test_replies_leave_in_the_order_of_requests_however_they_finish(run):
    async def scenario(server):
        futures = {group: asyncio.get_running_loop().create_future() for group in ("slow", "slower")}
        server.heartbeat = lambda request: futures.get(request.group_id) or HeartbeatResponse()
        client = await server.connect()
        client.send(client.heartbeat(1, "slow") + client.heartbeat(2) + client.heartbeat(3, "slower"))
        client.send(client.heartbeat(4))
        futures["slower"].set_result(HeartbeatResponse(error_code=3))
        await asyncio.sleep(0)
        futures["slow"].set_result(HeartbeatResponse(error_code=1))
        assert [(await client.answer(n)).error_code for n in (1, 2, 3, 4)] == [1, 0, 3, 0]

    run(scenario, order=BetweenBrokers())


def test_a_request_without_a_reply_leaves_no_gap(run):
    async def scenario(server):
        server.heartbeat = lambda request: None if request.group_id == "mute" else HeartbeatResponse()
        client = await server.connect()
        client.send(client.heartbeat(1, "mute") + client.heartbeat(2))
        await client.answer(2)

    run(scenario)


def test_requests_fed_byte_by_byte_are_answered(run):
    async def scenario(server):
        client = await server.connect()
        for byte in client.heartbeat(1) + client.heartbeat(2):
            client.send(bytes([byte]))
            await client.writer.drain()
        await client.answer(1)
        await client.answer(2)

    run(scenario)


def test_an_error_of_a_handler_fails_its_request_alone(run, caplog):
    def heartbeat(request):
        if request.group_id == "bug":
            raise ZeroDivisionError
        if request.group_id == "refused":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return HeartbeatResponse()

    async def scenario(server):
        server.heartbeat = heartbeat
        client = await server.connect()
        client.send(client.heartbeat(1, "bug") + client.heartbeat(2, "refused") + client.heartbeat(3))
        codes = [(await client.answer(n)).error_code for n in (1, 2, 3)]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_MEMBER_ID, 0]

    run(scenario)
    assert "ZeroDivisionError" in caplog.text


def test_an_error_of_a_parked_request_fails_it_alone(run):
    async def late(request):
        await asyncio.sleep(0)
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)

    async def scenario(server):
        server.heartbeat = lambda request: (
            late(request) if request.group_id == "late" else HeartbeatResponse()
        )
        client = await server.connect()
        client.send(client.heartbeat(1, "late") + client.heartbeat(2))
        assert (await client.answer(1)).error_code == ErrorCode.FENCED_INSTANCE_ID
        assert (await client.answer(2)).error_code == 0

    run(scenario)


HEADER = struct.Struct(">ihhih")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative-size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="size-above-the-limit"),
        pytest.param(struct.pack(">i", 0), id="empty-frame"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="shorter-than-a-header"),
        pytest.param(HEADER.pack(10, 999, 0, 1, -1), id="unknown-api-key"),
        pytest.param(HEADER.pack(10, 12, 99, 1, -1), id="unknown-version"),
        pytest.param(HEADER.pack(10, 12, -1, 1, -1), id="negative-version"),
        pytest.param(HEADER.pack(10, 12, 0, 1, 500), id="client-id-longer-than-the-frame"),
        pytest.param(HEADER.pack(10, 12, 0, 1, -1), id="body-missing"),
        pytest.param(HEADER.pack(11, 18, 0, 1, -1) + b"x", id="bytes-left-over"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512), id="tls-hello"),
    ],
)
def test_what_is_no_request_closes_that_connection_alone(run, caplog, data):
    async def scenario(server):
        other, hostile = await server.connect(), await server.connect()
        hostile.send(data)
        assert await hostile.is_closed()
        other.send(other.heartbeat(7))
        await other.answer(7)

    run(scenario)
    assert [r.message.startswith("closing connection") for r in caplog.records] == [True]


def test_replies_before_bad_input_still_arrive(run):
    async def scenario(server):
        client = await server.connect()
        client.send(client.heartbeat(1))
        await client.writer.drain()
        await client.answer(1)
        client.send(client.heartbeat(2) + HEADER.pack(10, 999, 0, 3, -1))
        await client.answer(2)
        assert await client.is_closed()

    run(scenario)


@pytest.mark.parametrize("size", [-1, 104_857_601])
def test_the_log_names_a_refused_size_also_after_an_earlier_request(run, caplog, size):
    async def scenario(server):
        client = await server.connect()
        client.send(client.heartbeat(1) + size.to_bytes(4, signed=True))
        await client.answer(1)
        assert await client.is_closed()

    run(scenario)
    (line,) = [message for message in caplog.messages if "closing" in message]
    assert f"a frame of {size} bytes; 0 to " in line


@pytest.mark.parametrize("is_in_one_read", [True, False])
def test_a_request_whose_reply_waits_is_answered_before_a_size_is_refused(is_in_one_read):
    produce, size = b"\0\0produce", (-1).to_bytes(4, signed=True)
    pieces = [len(produce).to_bytes(4) + produce, size]

    async def scenario():
        reply = SecondPhase()
        dispatcher = SimpleNamespace(
            serve=lambda frame, client: client.park(reply, lambda done: [done.result()], True, 0)
        )
        session, transport = connect(dispatcher)
        for piece in [b"".join(pieces)] if is_in_one_read else pieces:
            session.data_received(piece)
        assert transport.is_open
        reply.set_result(b"produced")
        await asyncio.sleep(0)
        assert (transport.sent, transport.is_open) == (b"produced", False)
        session.connection_lost(None)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_invalid", [False, True])
def test_one_write_has_the_replies_to_all_requests_of_one_read(is_invalid):
    writes = []

    def serve(frame, client):
        if frame == b"invalid":
            raise ProtocolError("invalid")
        client.reply([frame])

    async def scenario():
        session, transport = connect(SimpleNamespace(serve=serve))
        transport.writelines = lambda chunks: writes.append((b"".join(chunks), transport.is_open))
        ends = [b"invalid"] if is_invalid else []
        frames = [b"first", b"second", b"third", *ends]
        session.data_received(b"".join(len(frame).to_bytes(4) + frame for frame in frames))
        assert transport.is_open is not is_invalid
        session.connection_lost(None)

    asyncio.run(scenario())
    assert writes == [(b"firstsecondthird", True)]


def test_api_versions_of_an_unknown_version_is_answered_in_v0_and_the_connection_stays(run):
    async def scenario(server):
        client = await server.connect()
        client.send(HEADER.pack(13, 18, 77, 5, -1) + b"\x00\x01\x01")
        response = parse_response(RequestHeader(18, 0, 5, None), await client.frame())
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [(18, 0, 4)]
        client.send(client.heartbeat(6))
        await client.answer(6)

    run(scenario)


def test_no_more_requests_are_started_than_may_be_unanswered(run):
    started = []

    async def scenario(server):
        gate = asyncio.get_running_loop().create_future()

        def heartbeat(request):
            started.append(request.group_id)
            waiting = asyncio.get_running_loop().create_future()
            gate.add_done_callback(lambda _: waiting.set_result(HeartbeatResponse()))
            return waiting

        server.heartbeat = heartbeat
        client = await server.connect()
        total = 5 * MAX_UNANSWERED
        client.send(b"".join(client.heartbeat(n) for n in range(total)))
        await until(lambda: len(started) == MAX_UNANSWERED)
        await asyncio.sleep(0.02)
        assert len(started) == MAX_UNANSWERED
        server.heartbeat = lambda request: HeartbeatResponse()
        gate.set_result(None)
        for n in range(total):
            await client.answer(n)

    run(scenario, order=BetweenBrokers())


def test_no_more_replies_are_held_back_than_memory_allows(run):
    started = []

    async def scenario(server):
        gate = asyncio.get_running_loop().create_future()

        def join(request):
            started.append(1)
            return gate if len(started) == 1 else ApiVersionsResponse(api_keys=[ApiVersion()] * 50_000)

        server.api_versions = join
        client = await server.connect()
        client.send(b"".join(client.api_versions(n) for n in range(1, 30)))
        await until(lambda: len(started) > 3)
        await asyncio.sleep(0.02)
        assert len(started) * 50_000 * 6 < 3 * MAX_HELD_BYTES
        gate.set_result(ApiVersionsResponse())
        for _ in range(1, 30):
            await client.frame()
        assert len(started) == 29

    run(scenario, order=BetweenBrokers())


def test_a_client_that_does_not_read_is_served_no_further(run):
    served = []

    async def scenario(server):
        def heartbeat(request):
            served.append(1)
            return HeartbeatResponse()

        server.heartbeat = heartbeat
        other = await server.connect()
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", server.listener.endpoint.port))
            sender = asyncio.ensure_future(loop.sock_sendall(sock, other.heartbeat(1) * 400_000))
            before = -1
            while before != len(served):  # until nothing moves any more
                before = len(served)
                await asyncio.sleep(0.1)
            assert len(served) < 400_000
            assert not sender.done()
            other.send(other.heartbeat(3))
            await other.answer(3)
            sender.cancel()

    run(scenario, socket_send_buffer_bytes=4096)


def test_an_idle_connection_is_closed(run, caplog):
    async def scenario(server):
        client = await server.connect()
        client.send(client.heartbeat(1))
        await client.answer(1)
        assert await client.is_closed()

    with caplog.at_level("DEBUG"):
        run(scenario, connections_max_idle_ms=300)
    [closing] = [each for each in caplog.records if "connections.max.idle.ms=300" in each.getMessage()]
    assert closing.levelname == "DEBUG"  # an operator has nothing to do


def test_a_connection_that_waits_for_an_answer_is_not_idle(run):
    async def scenario(server):
        waiting = asyncio.get_running_loop().create_future()
        server.heartbeat = lambda request: waiting
        client = await server.connect()
        client.send(client.heartbeat(1))
        await asyncio.sleep(0.7)
        waiting.set_result(HeartbeatResponse())
        await client.answer(1)

    run(scenario, connections_max_idle_ms=300)


def test_connections_above_the_limit_are_refused_and_a_free_place_is_taken_again(run, caplog):
    async def scenario(server):
        first = await server.connect()
        first.send(first.heartbeat(1))
        await first.answer(1)
        assert await (await server.connect()).is_closed()
        first.close()
        await until(lambda: len(server.connections) == 0)
        again = await server.connect()
        again.send(again.heartbeat(2))
        await again.answer(2)

    run(scenario, max_connections=1)
    assert "max.connections=1" in caplog.text


def test_connections_leave_the_logs_the_files_they_need(run, caplog):
    async def scenario(server):
        server.connections._max_descriptors = 1
        first = await server.connect()
        first.send(first.heartbeat(1))
        await first.answer(1)
        assert await (await server.connect()).is_closed()

    run(scenario)
    assert "ulimit -n" in caplog.text


def test_connections_of_one_address_are_limited(run, caplog):
    async def scenario(server):
        first = await server.connect()
        first.send(first.heartbeat(1))
        await first.answer(1)
        assert await (await server.connect()).is_closed()
        elsewhere = await server.connect(local_addr=("127.0.0.2", 0))
        elsewhere.send(elsewhere.heartbeat(2))
        await elsewhere.answer(2)

    run(scenario, max_connections_per_ip=1)
    assert "max.connections.per.ip=1" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_an_address_of_ipv4_is_the_same_on_a_listener_for_both(run, caplog, host):
    """On ``[::]`` the system shows 127.0.0.1 as ::ffff:127.0.0.1."""

    async def scenario(server):
        first = await server.connect()
        first.send(first.heartbeat(1))
        await first.answer(1)
        (session,) = server.connections._open
        assert session.client_host == "127.0.0.1"
        assert await (await server.connect()).is_closed()

    run(scenario, host=host, max_connections_per_ip_overrides=("127.0.0.1:1",))
    assert "from 127.0.0.1: max.connections.per.ip.overrides=1 reached" in caplog.text


@pytest.mark.parametrize("written", ["2001:db8::7", "2001:DB8:0:0:0:0:0:7", "::ffff:192.0.2.7", "192.0.2.7"])
def test_an_address_may_be_written_in_any_of_its_forms(written):
    host = "2001:db8::7" if "d" in written.lower() else "192.0.2.7"
    config = BrokerConfig(max_connections_per_ip_overrides=(f"{written}:3", "10.0.0.1:4"))
    assert max_per_ip(config, host) == (3, "max.connections.per.ip.overrides")
    assert max_per_ip(config, "10.0.0.2") == (config.max_connections_per_ip, "max.connections.per.ip")


def test_connections_of_one_address_make_room_one_by_one(run):
    async def scenario(server):
        clients = [await server.connect() for _ in range(2)]
        for client in clients:
            client.send(client.heartbeat(1))
            await client.answer(1)
        assert await (await server.connect()).is_closed()
        clients[0].close()
        await until(lambda: len(server.connections) == 1)
        again = await server.connect()
        again.send(again.heartbeat(2))
        await again.answer(2)
        assert await (await server.connect()).is_closed()

    run(scenario, max_connections_per_ip=2)


def test_a_request_that_the_broker_gives_up_closes_its_connection(run, caplog):
    async def scenario(server):
        waiting = asyncio.get_running_loop().create_future()
        server.heartbeat = lambda request: waiting
        client = await server.connect()
        client.send(client.heartbeat(1))
        await until(lambda: len(server.connections) == 1)
        await asyncio.sleep(0.01)
        waiting.cancel()
        assert await client.is_closed()  # an answer left out would be taken for that of the next request

    run(scenario)
    assert "a request was cancelled" in caplog.text


@pytest.mark.parametrize("is_parked", [True, False])
def test_an_error_while_a_response_is_encoded_closes_its_connection(run, caplog, monkeypatch, is_parked):
    """Without a response, the client would wait until its own timeout."""

    def encode(header, response):
        if response.error_code:
            raise ZeroDivisionError
        return encode_response(header, response)

    async def scenario(server):
        waiting = asyncio.get_running_loop().create_future()
        server.heartbeat = lambda request: waiting if is_parked else HeartbeatResponse(error_code=1)
        client = await server.connect()
        client.send(client.heartbeat(1))
        await until(lambda: len(server.connections) == 1)
        await asyncio.sleep(0.01)
        if is_parked:
            waiting.set_result(HeartbeatResponse(error_code=1))
        assert await client.is_closed()
        again = await server.connect()
        server.heartbeat = lambda request: HeartbeatResponse()
        again.send(again.heartbeat(2))
        await again.answer(2)

    monkeypatch.setattr("barnabas.broker.server.requests.dispatch.encode_response", encode)
    run(scenario)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("cancels", [True, False])
def test_only_what_merely_waits_is_given_up_when_its_client_goes(run, cancels):
    async def scenario(server):
        waiting = asyncio.get_running_loop().create_future()
        server.heartbeat = lambda request: waiting
        client = await server.connect()
        client.send(client.heartbeat(1))
        await until(lambda: len(server.connections) == 1)
        await asyncio.sleep(0.01)
        reset_when_closed(client.writer)
        client.close()
        await until(lambda: len(server.connections) == 0)
        assert waiting.cancelled() is cancels
        if not cancels:
            waiting.set_result(HeartbeatResponse())  # answers no one, harms no one
            await asyncio.sleep(0)

    run(scenario, cancel_on_disconnect=cancels)


def test_a_callback_is_called_at_the_close_or_at_once_after_it():
    called = []

    async def scenario():
        session, _ = connect(SimpleNamespace(serve=None))
        session.when_closed(lambda: called.append("before"))
        assert not called
        session.connection_lost(None)
        assert called == ["before"]
        session.when_closed(lambda: called.append("after"))

    asyncio.run(scenario())
    assert called == ["before", "after"]


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP"),
        (bytes.fromhex("16030100c8010000c40303"), "TLS"),
    ],
)
def test_a_client_of_another_protocol_is_named_in_one_line(run, caplog, start, named):
    async def scenario(server):
        for _ in range(3):
            client = await server.connect()
            client.send(start)
            assert await client.is_closed()

    run(scenario)
    (line,) = [message for message in caplog.messages if "closing" in message]
    assert named in line
    assert line.isprintable()


def test_closed_connections_for_one_reason_are_logged_now_and_then():
    close_log = CloseLog()
    assert close_log.line("a", "reason", 100) == "reason"
    assert [close_log.line("a", "reason", 100 + n) for n in range(3)] == [None] * 3
    assert close_log.line("b", "reason", 100) == "reason"
    assert close_log.line("a", "another", 100) == "another"
    assert close_log.line("a", "reason", 111) == "reason (3 more like it since)"
    for number in range(5 * CloseLog.MAX_KNOWN):
        assert close_log.line("a", f"reason {number}", 111) == f"reason {number}"
    assert len(close_log._known) <= CloseLog.MAX_KNOWN


def test_clients_are_silent_from_the_last_request_of_any_of_them(run):
    async def scenario(server):
        loop = asyncio.get_running_loop()
        assert server.connections.silent_for() == float("inf")
        clients = [await server.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            before = loop.time()
            client.send(client.heartbeat(number))
            await client.answer(number)
            assert server.connections.silent_for() <= loop.time() - before
        clients[-1].close()
        while len(server.connections) == 3:
            await asyncio.sleep(0)
        assert server.connections.silent_for() <= loop.time() - before  # it may just have sent something

    run(scenario)


LARGE_ID = "x" * 30_000


def large_request(correlation_id, size=1_200_000):
    """Return a request of more than a megabyte, most of it in an unknown tagged field."""
    request = HeartbeatRequest(group_id=LARGE_ID)
    frame = b"".join(encode_request(RequestHeader(12, 4, correlation_id, "test"), request))
    body = frame[4:-1] + b"\x01" + b"\x07" + uvarint(size) + bytes(size)
    return len(body).to_bytes(4, "big") + body


def test_a_large_request_is_received_in_place_and_small_ones_around_it_in_order(run):
    async def scenario(server):
        server.heartbeat = lambda request: HeartbeatResponse(throttle_time_ms=len(request.group_id))
        client = await server.connect()
        for turn in range(3):
            first = 10 * turn
            client.send(client.heartbeat(first) + large_request(first + 1) + client.heartbeat(first + 2))
            client.send(large_request(first + 3) + large_request(first + 4) + client.heartbeat(first + 5))
        for turn in range(3):
            sizes = [(await client.answer(10 * turn + n)).throttle_time_ms for n in range(6)]
            assert sizes == [1, 30_000, 1, 30_000, 30_000, 1]

    run(scenario)


def test_a_large_request_waits_its_turn_behind_what_is_not_answered(run):
    async def scenario(server):
        gate = asyncio.get_running_loop().create_future()
        server.heartbeat = lambda request: gate
        client = await server.connect()
        client.send(b"".join(client.heartbeat(n) for n in range(MAX_UNANSWERED)) + large_request(1000))
        client.send(large_request(1001) + client.heartbeat(1002))
        await asyncio.sleep(0.1)
        gate.set_result(HeartbeatResponse())
        for n in [*range(MAX_UNANSWERED), 1000, 1001, 1002]:
            await client.answer(n)

    run(scenario, order=BetweenBrokers())


def test_a_connection_that_ends_amid_a_large_request_is_forgotten(run):
    async def scenario(server):
        client = await server.connect()
        client.send(large_request(1)[:800_000])
        await client.writer.drain()
        await until(lambda: len(server.connections) == 1)
        client.close()
        await until(lambda: len(server.connections) == 0)

    run(scenario)


def test_answers_still_leave_while_a_large_request_is_received(run):
    async def scenario(server):
        waiting = asyncio.get_running_loop().create_future()
        server.heartbeat = lambda request: waiting if request.group_id == "g" else HeartbeatResponse()
        client = await server.connect()
        large = large_request(2)
        client.send(client.heartbeat(1) + large[:600_000])
        await client.writer.drain()
        await asyncio.sleep(0.05)
        waiting.set_result(HeartbeatResponse())
        await client.answer(1)
        client.send(large[600_000:])
        await client.answer(2)

    run(scenario)


def test_a_large_request_that_is_no_request_closes_its_connection(run, caplog):
    async def scenario(server):
        client = await server.connect()
        client.send((1_000_000).to_bytes(4, "big") + HEADER.pack(10, 999, 0, 1, -1)[4:] + bytes(1_000_000))
        assert await client.is_closed()

    run(scenario)
    assert "closing connection" in caplog.text


def test_an_idle_connection_amid_a_large_request_is_closed(run):
    async def scenario(server):
        client = await server.connect()
        client.send(large_request(1)[:800_000])
        assert await client.is_closed()

    run(scenario, connections_max_idle_ms=300)
