"""Checks that transactions are atomic: their records, and an input's offset together with its output."""

from __future__ import annotations

from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import READ_COMMITTED, READ_UNCOMMITTED, History, Outcome, Place, Send
from soak.checker.writes import may_be_gone, named


def check(history: History) -> Iterator[Finding]:
    yield from _torn(history)
    yield from _hanging(history)
    yield from _exactly_once(history)


def _visible(history: History, send: Send) -> bool | None:
    """Return whether a read_committed consumer finds the record; None if that is not known any more."""
    log = history.log(send.place, READ_COMMITTED)
    if log is None:
        return None
    if send.id in log.places:
        return True
    return None if may_be_gone(history, send, log, send.offset) else False


def _torn(history: History) -> Iterator[Finding]:
    for transaction in history.transactions:
        seen = [(send.id, _visible(history, send)) for send in transaction.sends]
        there = [identity for identity, visible in seen if visible is True]
        missing = [identity for identity, visible in seen if visible is False]
        client = transaction.process.client
        name = f"transaction {transaction.number} of {transaction.process.name}"
        evidence = {
            "outcome": transaction.outcome.value,
            "ended": (transaction.ending, transaction.ended),
            "visible": there,
            "missing": missing,
        }
        if there and missing:
            yield Finding("torn-transaction", f"{name} is visible in part", evidence, client)
        elif there and transaction.outcome is Outcome.FAILED:
            yield Finding("aborted-visible", f"{name} was not committed and is visible", evidence, client)
        elif missing and transaction.outcome is Outcome.OK:
            yield Finding("lost-write", f"{name} was committed and is not visible", evidence, client)


def _hanging(history: History) -> Iterator[Finding]:
    for place in history.places():
        everything = history.log(place, READ_UNCOMMITTED)
        committed = history.log(place, READ_COMMITTED)
        if everything is not None and committed is not None and committed.end < everything.end:
            yield Finding(
                "hanging-transaction",
                f"{named(place)} ends at {everything.end}, and is stable up to {committed.end}",
            )


def _exactly_once(history: History) -> Iterator[Finding]:
    """Check that each input before the group's committed offset has one output, and that other inputs have
    none.
    """
    outputs: dict[tuple[str, Place], dict[int, list[Send]]] = {}
    for send in history.sends.values():
        if send.source is not None and send.process.group and _visible(history, send):
            place, offset = send.source
            made = outputs.setdefault((send.process.group, place), {})
            made.setdefault(offset, []).append(send)
    loops = {process.group for process in history.processes.values() if process.role == "transform"}
    for group in sorted(loops):
        for place, committed in history.group_offsets.get(group, {}).items():
            inputs = history.log(place, READ_COMMITTED)
            made = outputs.pop((group, place), {})
            done = inputs.between(0, committed) if inputs is not None else []
            for offset in done:
                if offset not in made:
                    yield Finding(
                        "processed-never",
                        f"{group} has committed {named(place)} {committed}, and made nothing of {offset}",
                        client=_client(history, group),
                    )
            yield from _made(group, place, made, committed)
    for (group, place), made in outputs.items():
        yield from _made(group, place, made, 0)


def _made(group: str, place: Place, made: dict[int, list[Send]], committed: int) -> Iterator[Finding]:
    for offset, sends in sorted(made.items()):
        if len(sends) > 1:
            yield Finding(
                "processed-twice",
                f"{group} made {len(sends)} outputs of {named(place)} {offset}",
                {"outputs": [send.id for send in sends]},
                sends[0].process.client,
            )
        if offset >= committed:
            yield Finding(
                "uncommitted-output",
                f"{group} made an output of {named(place)} {offset}, and has committed {committed}",
                {"outputs": [send.id for send in sends]},
                sends[0].process.client,
            )


def _client(history: History, group: str) -> str:
    return next((p.client for p in history.processes.values() if p.group == group), "")
