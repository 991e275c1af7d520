"""Decides which requests of a connection can begin while an earlier one is unanswered.

Apache Kafka begins a request when the previous request on the connection is answered. So a request sees the
effects of all earlier requests on its connection. Clients rely on this: they send a commit, and request the
committed offset before the response arrives.

There are two exceptions, in which more requests of the same API can begin. First, a request in its
`SecondPhase` has already had its effects. Second, some APIs between brokers declare `BetweenBrokers`. All
other requests wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: stands for an API key: no request can begin
NOTHING = -1


class Order(Protocol):
    """Tells whether the requests of an API depend on each other."""

    @property
    def text(self) -> str:
        """Sentence about the order for docs/reference/protocol.md; "" if requests wait for each other."""

    def is_of_brokers(self, version: int) -> bool:
        """Whether only brokers send this version, so that more requests can begin while one is unanswered."""


class InTurn:
    """The usual order: no other request begins while a request of this API can still have effects."""

    text = ""

    def is_of_brokers(self, version: int) -> bool:
        return False


@dataclass(frozen=True)
class BetweenBrokers:
    """The order of an API between brokers: more requests of this API can begin while one is unanswered.

    A connection between brokers has requests of many clients, which do not depend on each other. If a request
    depends on an earlier response, the sender waits for that response first.

    Args:
        since: lowest version that only brokers send.
    """

    since: int = 0

    @property
    def text(self) -> str:
        versions = f" from v{self.since} on" if self.since else ""
        return f"Requests of this API{versions} do not wait for each other."

    def is_of_brokers(self, version: int) -> bool:
        return version >= self.since


IN_TURN = InTurn()
