"""The requests of a connection that may begin while an earlier one is unanswered.

Apache Kafka begins a request when the one before it on the connection has been answered. Clients rely on it:
they send a commit, and ask for the committed offset before its answer is there. So a request sees the effects
of all those before it on its connection.

Two exceptions let more requests of the same API begin; those of other APIs never do. A request in its
`SecondPhase` has had its effects. And brokers declare an `Order` for what they send each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: in place of the key of the API whose requests may begin
NOTHING = -1


class Order(Protocol):
    """Whether requests of an API depend on each other."""

    @property
    def text(self) -> str:
        """One sentence for the reference; "" for the rule of nearly all APIs."""

    def is_of_brokers(self, version: int) -> bool:
        """Whether only brokers send the API in this version: more requests begin while one is unanswered."""


class InTurn:
    """Nothing begins: the request may still change something."""

    text = ""

    def is_of_brokers(self, version: int) -> bool:
        return False


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

    def is_of_brokers(self, version: int) -> bool:
        return version >= self.since


IN_TURN = InTurn()
