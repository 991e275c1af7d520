"""Decides which requests of a connection can begin while an earlier one is unanswered.

Apache Kafka begins a request when the previous one on the connection is answered. Clients rely on this: they
send a commit, and request the committed offset before the answer arrives. So a request sees the effects of
all earlier ones on its connection.

Two exceptions let more requests of the same API begin; those of other APIs never do. A request in its
`SecondPhase` has had its effects already. And some APIs between brokers declare an `Order`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: in place of the key of the API whose requests may begin
NOTHING = -1


class Order(Protocol):
    """Says whether the requests of an API depend on each other."""

    @property
    def text(self) -> str:
        """One sentence for the reference; "" for the rule of nearly all APIs."""

    def is_of_brokers(self, version: int) -> bool:
        """Whether only brokers send this version of the API.

        Then more requests can begin while one is unanswered.
        """


class InTurn:
    """No other request begins, because this request can still change something."""

    text = ""

    def is_of_brokers(self, version: int) -> bool:
        return False


@dataclass(frozen=True)
class BetweenBrokers:
    """More requests of the API begin at once.

    A broker's connection has requests of many clients, which do not depend on each other. If a request
    depends on an answer, the broker sends it after that answer.

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
