"""GSSAPI's exchange (RFC 4752), with a Kerberos that accepts everything."""

from __future__ import annotations

import pytest

from barnabas.broker.logins.gssapi import GssapiExchange
from barnabas.broker.logins.kerberos import ShortNames
from barnabas.kafka.security.errors import SaslError

NO_LAYER = b"\x01\x00\x00\x00"


class Believer:
    """A security context that is established with the last of `answers`. It wraps messages in brackets."""

    def __init__(self, *answers: bytes, client: str = "alice@EXAMPLE.COM") -> None:
        self._answers = list(answers)
        self.client = client

    @property
    def is_established(self) -> bool:
        return not self._answers

    def step(self, token: bytes) -> bytes:
        return self._answers.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return b"[" + message + b"]"

    def unwrap(self, message: bytes) -> bytes:
        if not (message.startswith(b"[") and message.endswith(b"]")):
            raise SaslError("a message is not whole")
        return message[1:-1]


def exchange(*answers: bytes, client: str = "alice@EXAMPLE.COM") -> GssapiExchange:
    return GssapiExchange(Believer(*answers, client=client), ShortNames(["DEFAULT"], "EXAMPLE.COM"))


def test_a_ticket_logs_a_user_in() -> None:
    login = exchange(b"AP-REP")
    assert login.respond(b"AP-REQ") == b"AP-REP"
    assert login.respond(b"") == b"[" + NO_LAYER + b"]"
    assert not login.is_complete
    assert login.respond(b"[" + NO_LAYER + b"kafka@broker]") == b""  # kafka-python names the broker
    assert (login.is_complete, login.user, login.expires_ms) == (True, "alice", None)


def test_a_client_that_asks_for_no_proof_of_the_broker_is_offered_layers_at_once() -> None:
    login = exchange(b"")
    assert login.respond(b"AP-REQ") == b"[" + NO_LAYER + b"]"
    login.respond(b"[" + NO_LAYER + b"]")
    assert login.is_complete


@pytest.mark.parametrize("chosen", [b"", b"\x01", b"\x02\x00\xff\xff", b"\x04\x00\xff\xffalice"])
def test_a_security_layer_is_refused(chosen: bytes) -> None:
    login = exchange(b"")
    login.respond(b"AP-REQ")
    with pytest.raises(SaslError, match="use TLS"):
        login.respond(b"[" + chosen + b"]")
    assert not login.is_complete


def test_a_changed_message_is_refused() -> None:
    login = exchange(b"")
    login.respond(b"AP-REQ")
    with pytest.raises(SaslError, match="not whole"):
        login.respond(NO_LAYER)


def test_a_principal_that_no_rule_names_is_refused_by_its_name() -> None:
    login = exchange(b"", client="mallory@ELSEWHERE")
    login.respond(b"AP-REQ")
    with pytest.raises(SaslError, match="names mallory@ELSEWHERE"):
        login.respond(b"[" + NO_LAYER + b"]")
    assert (login.is_complete, login.user) == (False, "mallory@ELSEWHERE")


def test_an_exchange_without_end_is_ended() -> None:
    login = exchange(*[b"more"] * 10)
    for _ in range(4):
        assert login.respond(b"token") == b"more"
    with pytest.raises(SaslError, match="after 4 messages"):
        login.respond(b"token")
