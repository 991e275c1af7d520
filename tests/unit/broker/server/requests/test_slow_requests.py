"""The broker logs slow requests without their contents."""

import asyncio
import logging

import pytest

from barnabas.base.environment.environment import Environment
from barnabas.broker.server.handlers import heartbeat, join_group
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


class Client:
    """A connection that accepts every answer."""

    connection_id = 1
    client_host = "10.0.0.9"
    listener = "PLAINTEXT"
    client_software_name = client_software_version = ""

    def __init__(self):
        self.replies = []

    def reply(self, chunks):
        self.replies.append(chunks)

    def park(self, future, finish, cancel, beside=-1):
        future.add_done_callback(lambda done: self.replies.append(finish(done)))

    def close(self, reason):
        raise AssertionError(reason)


def frame(request, client_id="shop\n"):
    header = RequestHeader(request.api_key, request.versions[1], 1, client_id)
    return b"".join(map(bytes, encode_request(header, request)))[4:]


async def serve(api, request, answer, *, slow):
    """Serve one request that takes a tenth of a second, by the dispatcher's clock."""
    environment = Environment.of_system()
    work = LongWork(environment)
    now = [0.0]
    work.now = lambda: now[0]

    def handle(context, _request):
        now[0] += 0.1
        return answer()

    served = Served(api, handle)
    client = Client()
    Dispatcher({api.key: served}, work, slow=slow).serve(frame(request), client)
    while not client.replies:
        await asyncio.sleep(0)
    work.stop()
    return served


async def later():
    return HeartbeatResponse()


@pytest.mark.parametrize("answer", [HeartbeatResponse, later], ids=["at once", "later"])
def test_a_slow_request_is_logged_in_one_line_without_its_content(caplog, answer):
    request = HeartbeatRequest(group_id="secret-group", member_id="m")
    served = asyncio.run(serve(heartbeat.heartbeat, request, answer, slow=0.05))
    (line,) = caplog.messages
    assert line == r"slow request: Heartbeat v4 of client 'shop\n' from 10.0.0.9 took 100 ms"
    assert served.durations.count == 1
    assert served.durations.seconds == pytest.approx(0.1)


def test_a_quick_request_is_counted_and_not_logged(caplog):
    served = asyncio.run(serve(heartbeat.heartbeat, HeartbeatRequest(), HeartbeatResponse, slow=1))
    assert not caplog.messages
    assert served.durations.count == 1


def test_a_member_that_waits_for_its_group_is_not_slow(caplog):
    async def joined():
        return JoinGroupResponse()

    served = asyncio.run(serve(join_group.join_group, JoinGroupRequest(), joined, slow=0.05))
    assert not caplog.messages
    assert served.durations.count == 1


def test_a_request_that_fails_is_logged_without_its_content(caplog):
    def fail():
        raise ZeroDivisionError

    request = HeartbeatRequest(group_id="secret-group")
    with caplog.at_level(logging.DEBUG):
        asyncio.run(serve(heartbeat.heartbeat, request, fail, slow=1))
    assert "Heartbeat failed: ZeroDivisionError" in caplog.text
    assert "secret-group" not in caplog.text
