"""Checks clients that stopped waiting for an answer: whether the broker caused the wait."""

from __future__ import annotations

from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import History

#: states in which it is the broker's turn: it has yet to end the transaction
_BROKERS_TURN = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}


def check(history: History) -> Iterator[Finding]:
    for process, event in history.gave_up:
        states = event["states"]
        owes = bool(states) and set(states) <= _BROKERS_TURN
        yield Finding(
            "stalled-client",
            f"{process.name} gave up after {event['seconds']:.0f} s: {event['why']}",
            {"broker answered others": event["answered"], "broker's turn": owes, "states": states},
            client=process.client,
        )
