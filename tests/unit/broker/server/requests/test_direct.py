"""Requests that a direct function answers from their bytes, and the checks before it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode
from barnabas.broker.server.handlers.heartbeat import heartbeat
from barnabas.broker.server.requests.api import Served, handles
from barnabas.broker.server.requests.authorized import authorized
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Anyone
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.kafka.security.acls import Access, Acls, Authorizer, SubjectRules
from barnabas.kafka.security.principal import Principal

FRAME = b"".join(map(bytes, encode_request(RequestHeader(12, 4, 7, "c"), HeartbeatRequest())))[4:]


class Client:
    """A connection that keeps its replies."""

    connection_id, client_port = 1, 0
    client_host, listener = "10.0.0.9", "PLAINTEXT"
    client_software_name = client_software_version = ""
    principal = Principal("alice")

    def __init__(self) -> None:
        self.caches: dict[int, Any] = {}
        self.access: Access | None = None
        self.replies: list[bytes] = []

    def reply(self, chunks: list[Any]) -> None:
        self.replies.append(b"".join(map(bytes, chunks)))

    def park(self, *_: Any) -> None:
        raise AssertionError

    def mute(self, seconds: float) -> None:
        raise AssertionError

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def serve(direct: Any, *, metering: Any = None, authorizer: Authorizer | None = None) -> tuple[Served, bytes]:
    """Serve one request. The handler answers it with error 5."""
    served = Served(heartbeat, lambda context, request: HeartbeatResponse(error_code=5), direct)
    if authorizer is not None:
        served = authorized(served, authorizer, SimpleNamespace())  # type: ignore[arg-type]
    client = Client()

    async def scenario() -> None:
        work = LongWork(Environment.of_system())
        Dispatcher({12: served}, work, metering).serve(FRAME, client)
        work.stop()

    asyncio.run(scenario())
    (reply,) = client.replies
    return served, reply


def error_of(reply: bytes) -> int:
    response = parse_response(RequestHeader(12, 4, 7, "c"), reply[4:])
    assert isinstance(response, HeartbeatResponse)
    return response.error_code


def test_request_that_is_answered_directly_does_not_reach_the_handler():
    served, reply = serve(lambda *_: b"answer")
    assert reply == b"answer"
    assert served.durations.count == 1


def test_handler_answers_what_is_left_to_it():
    served, reply = serve(lambda *_: None)
    assert error_of(reply) == 5
    assert served.durations.count == 1


def test_error_of_a_direct_answer_fails_its_request_alone(caplog):
    def bug(*_: Any) -> None:
        raise ZeroDivisionError

    _, reply = serve(bug)
    assert error_of(reply) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text


def test_metered_request_goes_to_the_handler():
    metering = SimpleNamespace(quotas=SimpleNamespace(is_idle=False), begin=lambda *_: None)
    _, reply = serve(lambda *_: b"answer", metering=metering)
    assert error_of(reply) == 5


def test_direct_answer_is_told_what_its_client_may_do():
    given = []

    def direct(frame: Any, client: Any, access: Any, began: float) -> None:
        given.append(access.is_unrestricted)

    for name in ("root", "alice"):
        serve(direct, authorizer=Authorizer(lambda: Acls.of(()), SubjectRules(frozenset({f"User:{name}"}))))
    assert given == [False, True]


def test_direct_answer_cannot_pass_by_other_guards():
    with pytest.raises(TypeError, match="passes by"):
        handles(HeartbeatRequest, needs=[Anyone()], unconfirmed="x", needs_login=True, direct=lambda: None)
