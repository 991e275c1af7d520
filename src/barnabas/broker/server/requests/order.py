"""Which requests of a connection may begin while an earlier one is unanswered.

Apache Kafka begins a request when the one before it on the connection has been answered. Clients rely on it:
they send a commit, and ask for the committed offset before its answer is there. So a request sees the effects
of all those before it on its connection. An API's `Order` says whether more of its requests may begin
meanwhile all the same; those of other APIs never do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol

#: in place of the key of the API whose requests may begin
NOTHING = -1


class Order(Protocol):
    """What an unanswered request of an API lets begin."""

    @property
    def text(self) -> str:
        """One sentence for the reference; "" for the rule of nearly all APIs."""

    def beside(self, key: int, version: int, answer: Awaitable[Any]) -> int:
        """Returns `key`, the API's own, if its requests may begin while `answer` is awaited; else NOTHING."""


class InTurn:
    """Nothing begins: the request may still change something."""

    text = ""

    def beside(self, key: int, version: int, answer: Awaitable[Any]) -> int:
        return NOTHING


class Appending:
    """More of them begin while all that is left is to wait for acknowledgements.

    The handler returns a future then. A coroutine has something left to append.
    """

    text = "The next request of this API begins as soon as this one is appended, before it is acknowledged."

    def beside(self, key: int, version: int, answer: Awaitable[Any]) -> int:
        return key if isinstance(answer, asyncio.Future) else NOTHING


@dataclass(frozen=True)
class BetweenBrokers:
    """More of them begin at once. One connection of a broker has the requests of many clients, which do not
    depend on each other; the broker sends what depends on an answer when it has it.

    Args:
        since: the version from which on only brokers send the request.
    """

    since: int = 0

    @property
    def text(self) -> str:
        versions = f" from v{self.since} on" if self.since else ""
        return f"Requests of this API{versions} do not wait for each other."

    def beside(self, key: int, version: int, answer: Awaitable[Any]) -> int:
        return key if version >= self.since else NOTHING


IN_TURN = InTurn()
