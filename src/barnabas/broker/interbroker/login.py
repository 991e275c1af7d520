"""Logins of a broker to another (SASL; KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from barnabas.kafka.security.sasl_client import ClientExchange

#: Calls a function that computes for milliseconds where the event loop does not wait for it.
RunElsewhere: TypeAlias = Callable[[Callable[[], bytes | None]], Awaitable[bytes | None]]


class PeerLogin(NamedTuple):
    """A mechanism, how an exchange of it is begun, and where its keys are derived."""

    mechanism: str
    begin: Callable[[], ClientExchange]
    run: RunElsewhere


async def next_message(login: PeerLogin, exchange: ClientExchange, answer: bytes | None) -> bytes | None:
    """Return the message after `answer` (None: no message was sent yet); None once the exchange is complete.

    Raises:
        SaslError: the peer does not prove what it should.
    """

    def step() -> bytes | None:
        try:
            return next(exchange) if answer is None else exchange.send(answer)
        except StopIteration:
            return None

    return await login.run(step)
