"""Requests to two brokers that are answered late, because they wait for requests of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.schema import Request


@dataclass
class Late:
    """A request that both brokers have, and the answers that have arrived."""

    client: str
    client_id: str
    told: str
    request: type[Request]
    wires: tuple[Wire, ...]
    headers: tuple[RequestHeader, ...]
    #: None: no answer has arrived
    answers: list[Any] = field(default_factory=lambda: [None, None])

    @property
    def is_answered(self) -> bool:
        """Whether at least one broker has answered."""
        return any(answer is not None for answer in self.answers)

    @property
    def is_answered_by_both(self) -> bool:
        return None not in self.answers

    def poll(self) -> bool:
        """Receive answers that have arrived. Return whether any has."""
        found = False
        for number, (wire, header) in enumerate(zip(self.wires, self.headers, strict=True)):
            if self.answers[number] is None and wire.has_answer():
                self.answers[number] = wire.receive(header)
                found = True
        return found


class LateRequests:
    """The connections of several clients to both brokers, and their requests that wait there.

    A broker serves the next request of a connection after it has answered. So each client has its own
    connections, with at most one request each.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._wires: dict[str, tuple[Wire, ...]] = {}
        self.waiting: list[Late] = []

    def close(self) -> None:
        for client in list(self._wires):
            self.drop(client)

    def send(
        self,
        client: str,
        client_id: str,
        make: Callable[[Wire, int], Request],
        version: int,
        told: str,
    ) -> None:
        """Send a request of a client to both brokers. The client must not have another one that waits."""
        if client not in self._wires:
            self._wires[client] = self._pair.each(lambda wire: wire.another(client_id))
        wires = self._wires[client]
        requests = [make(wire, number) for number, wire in enumerate(wires)]
        headers = tuple(wire.send(request, version) for wire, request in zip(wires, requests, strict=True))
        self.waiting.append(Late(client, client_id, told, type(requests[0]), wires, headers))

    def of(self, client: str) -> Late | None:
        """Return the client's request that waits; None if there is none."""
        return next((late for late in self.waiting if late.client == client), None)

    def drop(self, client: str) -> None:
        """Close the client's connections, and forget its request that waits there."""
        self.waiting = [late for late in self.waiting if late.client != client]
        for wire in self._wires.pop(client, ()):
            wire.close()

    def poll(self) -> bool:
        """Receive answers that have arrived. Return whether any has."""
        found = False
        for late in self.waiting:
            found |= late.poll()
        return found

    def take_answered(self) -> list[Late]:
        """Remove and return the requests that at least one broker has answered."""
        answered = [late for late in self.waiting if late.is_answered]
        self.waiting = [late for late in self.waiting if not late.is_answered]
        return answered
