"""Logs this broker in to another broker (SASL; KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from barnabas.kafka.security.sasl_client import ClientExchange

#: Calls, in another thread, a function that computes for milliseconds. Returns its result.
RunElsewhere: TypeAlias = Callable[[Callable[[], bytes | None]], Awaitable[bytes | None]]


class PeerLogin(NamedTuple):
    """A SASL login to other brokers.

    `begin` is called without arguments, and starts the exchange of messages on a connection. `run` executes a
    function in a thread pool, because keys take long to derive.
    """

    mechanism: str
    begin: Callable[[], ClientExchange]
    run: RunElsewhere


async def next_message(login: PeerLogin, exchange: ClientExchange, answer: bytes | None) -> bytes | None:
    """Return the next message to send in the exchange; None when the exchange is complete.

    Args:
        login: the login that began the exchange.
        exchange: yields the messages to send, and receives the peer's answers.
        answer: the peer's answer to the last message; None before the first message.

    Raises:
        SaslError: the peer cannot prove its identity.
    """

    def step() -> bytes | None:
        try:
            return next(exchange) if answer is None else exchange.send(answer)
        except StopIteration:
            return None

    return await login.run(step)
