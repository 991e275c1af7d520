"""Checks the start and the end of each log: whether retention and DeleteRecords deleted too much, or not
permanently.
"""

from __future__ import annotations

from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import NEVER, READ_UNCOMMITTED, Bounds, History, Outcome, Place, Retention, Send
from soak.checker.writes import named

MS = 1_000_000
#: how far the time of a send and its record's timestamp may lie apart, in nanoseconds
SLACK = 1_000 * MS
#: bytes that a record has at most beside its key and value: a batch of its own, a header with its id
OVERHEAD = 61 + 14


def check(history: History) -> Iterator[Finding]:
    sends: dict[Place, list[Send]] = {}
    for send in history.sends.values():
        if send.outcome is not Outcome.FAILED:
            sends.setdefault(send.place, []).append(send)
    for place in sorted({*history.bounds, *history.places()}):
        if place[0] in history.removals:
            continue
        seen = sorted([*history.bounds.get(place, []), *_in_the_end(history, place)], key=lambda b: b.noted)
        yield from _truncated(place, seen)
        yield from _undeleted(history, place, seen)
        start = 0
        for bounds in seen:
            if bounds.start > start:
                start = bounds.start
                yield from _deleted_early(history, bounds, sends.get(place, []))
    yield from _read_again(history)


def _in_the_end(history: History, place: Place) -> Iterator[Bounds]:
    log = history.log(place, READ_UNCOMMITTED)
    if log is not None:
        yield Bounds(place, history.surveyed, NEVER, log.start, log.end)


def _truncated(place: Place, seen: list[Bounds]) -> Iterator[Finding]:
    highest: Bounds | None = None
    for bounds in seen:
        if highest is not None and bounds.end < highest.end and highest.noted < bounds.asked:
            yield Finding(
                "truncated",
                f"the high watermark of {named(place)} was {highest.end}, and later {bounds.end}",
                {"seen": highest.noted, "asked again": bounds.asked},
            )
        if highest is None or bounds.end > highest.end:
            highest = bounds


def _undeleted(history: History, place: Place, seen: list[Bounds]) -> Iterator[Finding]:
    """Find logs whose start moves back, after a DeleteRecords or after any other deletion.

    A DeleteRecords without an answer is an exception: it takes effect at once, and a crash can undo it.
    """
    deletions = history.deletions.get(place, [])
    for deletion in deletions:
        again = next((b for b in seen if b.asked > deletion.done and b.start < deletion.offset), None)
        if again is not None:
            yield Finding(
                "undeleted",
                f"{named(place)} began at {again.start} when all before {deletion.offset} had been deleted",
                {"deleted": deletion.done, "asked": again.asked},
            )
    first = seen[0] if seen else None
    for bounds in seen:
        assert first is not None
        lasting = max((deletion.offset for deletion in deletions if deletion.done < bounds.asked), default=0)
        unsure = {deletion.offset for deletion in deletions if deletion.offset > lasting}
        if bounds.start < first.start and bounds.asked > first.noted and first.start not in unsure:
            yield Finding(
                "undeleted",
                f"{named(place)} began at {first.start}, and later at {bounds.start}",
                {"seen": first.noted, "asked again": bounds.asked},
            )
        if bounds.start > first.start:
            first = bounds


def _read_again(history: History) -> Iterator[Finding]:
    """Find consumers that receive a record although DeleteRecords had deleted it before their assignment."""
    for session in history.sessions:
        if session.process.client == "kafka_python" or session.place[0] in history.removals:
            continue  # it keeps what it has in its buffer through a rebalance
        deletions = history.deletions.get(session.place, [])
        deleted = max((deletion.offset for deletion in deletions if deletion.done < session.began), default=0)
        again = next((read for read in session.reads if read.offset < deleted), None)
        if again is not None:
            yield Finding(
                "undeleted",
                f"{session.process.name} was given {named(session.place)} {again.offset} when the records "
                f"before {deleted} had been deleted",
                {"at": again.at, "assigned": session.began},
                session.process.client,
            )


def _deleted_early(history: History, bounds: Bounds, sends: list[Send]) -> Iterator[Finding]:
    """Find deleted records that were younger than `retention.ms`, within `retention.bytes`, and not in a
    DeleteRecords.
    """
    place, start = bounds.place, bounds.start
    retention = history.retention.get(place[0], Retention())
    deletions = history.deletions.get(place, [])
    asked_for = max((deletion.offset for deletion in deletions if deletion.at < bounds.noted), default=0)
    if start <= asked_for or _is_large(retention, bounds, sends):
        return
    noted = min(bounds.noted, history.surveyed)
    expired = -1 if retention.ms is None else noted - retention.ms * MS + SLACK
    young = [send for send in sends if asked_for <= send.offset < start and send.at > expired]
    if young or retention == Retention():
        yield Finding(
            "deleted-early",
            f"{named(place)} begins at {start}",
            {
                "deleted up to": asked_for,
                "asked": bounds.asked,
                "too young": [(send.id, send.offset, send.at) for send in young[:5]],
            },
        )


def _is_large(retention: Retention, bounds: Bounds, sends: list[Send]) -> bool:
    """Return whether the log still has `retention.bytes`, as it must after a deletion by size."""
    if retention.bytes is None:
        return False
    left = sum(
        OVERHEAD + len(send.id) + len(send.key)
        for send in sends
        if send.at < bounds.noted and not 0 <= send.offset < bounds.start
    )
    return left >= retention.bytes
