"""Logins, and the threads that check them."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.views import view_of

from barnabas.base.environment.blocking import Threads
from barnabas.base.environment.environment import Environment
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.network.login import Logins
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.security.principal import ANONYMOUS


class SlowExchange:
    """An exchange whose key takes a given time to derive."""

    is_complete = False
    user = "alice"

    def __init__(self):
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def respond(self, message):
        self.begun.set()
        assert self.let_go.wait(60)
        return b"go on"

    def begin(self, mechanism, listener):
        return self


class Client:
    principal = ANONYMOUS

    listener = client_host = client_id = "test"

    def __init__(self):
        self.parked = []
        self.principals = []

    def logged_in(self, principal, serve):
        self.principals.append(principal)

    def reply(self, chunks):
        pass

    def park(self, answer, finish, cancel_on_disconnect, beside=-1):
        self.parked.append(answer)


class Named:
    """An exchange that is complete at once, for a given user."""

    is_complete = True
    token_id = expires_ms = None

    def __init__(self, user):
        self.user = user

    def respond(self, message):
        return b""

    def begin(self, mechanism, listener):
        return self


@pytest.mark.parametrize(
    ("user", "reason"),
    [("ANONYMOUS", "no client can log in as ANONYMOUS"), ("anonymous", None), ("alice", None)],
)
def test_nobody_logs_in_by_the_name_of_those_who_have_not(user, reason):
    async def scenario():
        client = Client()
        config = BrokerConfig.from_text(
            {"sasl.enabled.mechanisms": "PLAIN", "connection.failed.authentication.delay.ms": "0"}
        )
        trail = AuditTrail(config, Environment.of_system())
        logins = Logins(view_of(config=config), Named(user), lambda frame, client: None, Threads(), trail)
        login = logins.begin("SASL_SSL")
        login.serve(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1), client)
        login.serve(frame(SaslAuthenticateRequest(auth_bytes=b"token"), 2), client)
        (answer,) = client.parked
        failure = (await answer).failure
        logins.stop()
        assert [str(each) for each in client.principals] == ([] if reason else [f"User:{user}"])
        assert failure is None if reason is None else reason in failure

    asyncio.run(scenario())


def frame(request, number):
    return b"".join(encode_request(RequestHeader(request.api_key, 1, number, "test"), request))[4:]


def test_a_login_that_takes_long_keeps_no_long_request_of_others_waiting():
    async def scenario():
        exchange, client = SlowExchange(), Client()
        config = BrokerConfig.from_text({"sasl.enabled.mechanisms": "PLAIN"})
        trail = AuditTrail(config, Environment.of_system())
        logins = Logins(view_of(config=config), exchange, lambda frame, client: None, Threads(), trail)
        long_work = LongWork(Environment.of_system())
        login = logins.begin("SASL_SSL")
        login.serve(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1), client)
        login.serve(frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2), client)
        try:
            await asyncio.to_thread(exchange.begun.wait, 20)
            assert await asyncio.wait_for(long_work.run(lambda: "done"), 20) == "done"
            (answer,) = client.parked
            assert not answer.done()
        finally:
            exchange.let_go.set()
        assert (await answer).failure is None
        logins.stop()
        long_work.stop()

    asyncio.run(scenario())
