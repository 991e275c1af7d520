"""Checks clients that stopped waiting for an answer: whether the broker caused the wait."""

from __future__ import annotations

from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import History, Outcome, Process
from soak.history import Event

#: states in which it is the broker's turn: it has yet to end the transaction
_BROKERS_TURN = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}


def check(history: History) -> Iterator[Finding]:
    for process, event in history.gave_up:
        states = event["states"]
        owes = bool(states) and set(states) <= _BROKERS_TURN
        yield Finding(
            "stalled-client",
            f"{process.name} gave up after {event['seconds']:.0f} s: {event['why']}",
            {
                "broker answered others": event["answered"],
                "broker's turn": owes,
                "states": states,
                "keeps epochs of a deleted topic": _keeps_old_epochs(history, process, event),
            },
            client=process.client,
        )


def _keeps_old_epochs(history: History, process: Process, event: Event) -> bool:
    """Whether the client names partitions with a leader epoch above the brokers', and each one's topic was
    deleted since the client's last acknowledgement there.
    """
    kept = event.get("kept", [])
    for topic, partition, own, newest in kept:
        acknowledged = (
            send.done
            for send in history.sends.values()
            if send.process is process and send.place == (topic, partition) and send.outcome is Outcome.OK
        )
        since = max(acknowledged, default=process.began)
        removals = history.removals.get(topic, [])
        if own <= newest or not any(each.done > since and each.at < event["at"] for each in removals):
            return False
    return bool(kept)
