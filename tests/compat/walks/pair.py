"""Random conversations with two brokers: both get the same requests, and give the same answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.compat.wire import Wire, differences, error_codes

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.schema import Request

#: how long both brokers may take until they tell the same of a change
SETTLING_SECONDS = 30.0


class Different(AssertionError):
    """The brokers gave different answers. The message has the requests of the walk until then."""


class Pair:
    """Two brokers, Barnabas and Apache Kafka, that get the same random requests.

    Args:
        bootstraps: addresses of Barnabas and of Apache Kafka, as host:port.
        seed: determines all random choices.
        prefix: start of all names of the walk; new in both brokers.
        user: who logs in to both brokers; if empty, nobody.
    """

    def __init__(self, bootstraps: tuple[str, str], seed: int, prefix: str, user: str = "") -> None:
        self.random = random.Random(seed)
        self.wires = tuple(Wire(bootstrap, 99, f"{prefix}-{seed}", user=user) for bootstrap in bootstraps)
        self._told: list[str] = []
        for wire in self.wires:
            wire.ask(FindCoordinatorRequest(key="any"), 0)

    def close(self) -> None:
        for wire in self.wires:
            wire.close()

    def note(self, told: str) -> None:
        """Add a line to the messages of errors."""
        self._told.append(told)

    def each(self, work: Callable[[Wire], Any]) -> tuple[Any, ...]:
        """Return the results of `work` for both brokers."""
        return tuple(work(wire) for wire in self.wires)

    def ask(
        self,
        make: Callable[[Wire, int], Request],
        told: str,
        shape: Callable[[Any], Any] = lambda plain: plain,
        version: int | None = None,
        patient: bool = False,
    ) -> tuple[Any, Any]:
        """Send a request to both brokers, and return both answers.

        Args:
            make: called with a broker's wire and its number (0 or 1), returns the request.
            told: describes the request in the messages of errors.
            version: version of the request; if None, the highest one.
            shape: returns the part of a plain answer (`Wire.plain`) that has to be the same.
            patient: ask again while the answers differ: a broker of Kafka learns a change only after the
                controller has confirmed it.

        Raises:
            Different: the answers differ.
        """
        deadline = time.monotonic() + (SETTLING_SECONDS if patient else 0)
        while True:
            mine, theirs = (
                self._ask(wire, make(wire, number), version) for number, wire in enumerate(self.wires)
            )
            found = self._differences((mine, theirs), shape)
            if not found or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self._tell(told, theirs, found)
        return mine, theirs

    def compare(
        self, answers: Sequence[Any], told: str, shape: Callable[[Any], Any] = lambda plain: plain
    ) -> None:
        """Compare the answers of Barnabas and Kafka to one request: see `ask`."""
        self._tell(told, answers[1], self._differences(answers, shape))

    def _differences(self, answers: Sequence[Any], shape: Callable[[Any], Any]) -> list[str]:
        plain = [shape(wire.plain(answer)) for wire, answer in zip(self.wires, answers, strict=True)]
        return list(differences(*plain))

    def _tell(self, told: str, theirs: Any, found: list[str]) -> None:
        """Add a request to the walk's story. Raise Different if there are differences."""
        self._told.append(f"{told} -> {sorted(set(error_codes(theirs)))}")
        if found:
            raise Different("\n    ".join(["", *found, "after", *self._told[-25:]]))

    def _ask(self, wire: Wire, request: Request, version: int | None) -> Any:
        """Return the answer to a request. Ask again while an earlier change of the transaction goes on."""
        for _ in range(40):
            answer = wire.ask(request, version)
            if ErrorCode.CONCURRENT_TRANSACTIONS not in error_codes(answer):
                break
            time.sleep(0.05)
        return answer
