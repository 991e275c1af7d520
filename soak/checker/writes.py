"""Checks the records that clients sent: lost, duplicate, out of order, at another offset, or sent by no
client.
"""

from __future__ import annotations

from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import READ_COMMITTED, READ_UNCOMMITTED, History, Log, Outcome, Place, Send


def check(history: History) -> Iterator[Finding]:
    for send in history.sends.values():
        log = history.log(send.place, READ_UNCOMMITTED)
        if log is None or send.place[0] not in history.removals:  # of the others `topics` knows more
            yield from _lost(history, send, log)
    for place in history.places():
        log = history.log(place, READ_UNCOMMITTED)
        if log is not None:
            yield from _in_log(history, place, log)
    yield from _reordered(history)
    for place, isolation in history.unreadable:
        yield Finding("unreadable", f"{named(place)} could not be read to its end", {"isolation": isolation})


def _lost(history: History, send: Send, log: Log | None) -> Iterator[Finding]:
    """Check that each acknowledged record is in the log, at its offset.

    In a transaction, the commit acknowledges a record. Otherwise the answer to the send does.
    """
    committed = send.transaction is not None and send.transaction.outcome is Outcome.OK
    if not (send.outcome is Outcome.OK or committed):
        return
    if log is None:
        if history.logs and not history.may_be_removed(send.place[0], send.at):
            yield Finding(
                "lost-write",
                f"{send.id} was acknowledged, and there is no {named(send.place)}",
                {"place": send.place, "acknowledged at": send.offset, "sent": send.at, "answered": send.done},
                send.process.client,
            )
        return
    offset = send.offset
    found = log.places.get(send.id)
    if found:
        if offset >= 0 and offset not in found:
            yield Finding(
                "moved-offset", f"{send.id} was acknowledged at {offset}", {"send": send.id, "found": found}
            )
    elif not may_be_gone(history, send, log, offset):
        yield Finding(
            "lost-write",
            f"{send.id} is not in {named(send.place)}, which goes from {log.start} to {log.end}",
            {"place": send.place, "acknowledged at": offset, "sent": send.at, "answered": send.done},
            send.process.client,
        )


def may_be_gone(history: History, send: Send, log: Log, offset: int) -> bool:
    """Return whether the log may lack the record. `offset` is the record's offset, or -1 if unknown.

    It may if the log begins after the record, if compaction can have removed it, or if its topic was deleted.
    (`bounds` checks whether the log may begin there.)
    """
    if log.start > max(offset, 0) or history.may_be_removed(send.place[0], send.at):
        return True
    if send.place[0] not in history.compacted:
        return False
    if send.transaction is not None and send.transaction.outcome is not Outcome.OK:
        return True
    return may_be_replaced(history, send, offset)


def may_be_replaced(history: History, send: Send, offset: int) -> bool:
    """Return whether compaction can remove a record at `offset`: it is a tombstone, or not the last record of
    its key.
    """
    if send.place[0] not in history.compacted:
        return False
    if send.tombstone:
        return True
    committed = history.log(send.place, READ_COMMITTED)  # what was aborted stands for no key
    if committed is not None and committed.latest.get(send.key, -1) > offset:
        return True
    return any(
        may_have_deleted(tombstone, offset)
        for tombstone in history.tombstones.get((send.place, send.key), ())
    )


def must_be_received(history: History, place: Place, log: Log, low: int, high: int) -> list[int]:
    """Return the offsets from `low` to `high` (exclusive) of the records that each reader must receive.

    Where each replica compacts its log at a different time, a reader of another replica may miss tombstones,
    and records that were not committed.
    """
    offsets = log.between(low, high)
    committed = history.log(place, READ_COMMITTED)
    if not log.is_compacted_apart or committed is None:
        return offsets
    return [
        offset
        for offset in offsets
        if offset in committed.records
        and not ((send := history.sends.get(log.records[offset])) and send.tombstone)
    ]


def may_have_deleted(tombstone: Send, offset: int) -> bool:
    """Return whether a tombstone can be after this offset in the log, for read_committed consumers."""
    aborted = tombstone.transaction is not None and tombstone.transaction.outcome is Outcome.FAILED
    is_behind = tombstone.offset < 0 or tombstone.offset > offset
    return is_behind and not aborted and tombstone.outcome is not Outcome.FAILED


def _in_log(history: History, place: Place, log: Log) -> Iterator[Finding]:
    for identity, offsets in log.places.items():
        send = history.sends.get(identity)
        if send is None or send.place != place or send.outcome is Outcome.FAILED:
            why = (
                "was never sent" if send is None else f"was sent to {named(send.place)}: {send.outcome.value}"
            )
            yield Finding("phantom", f"{identity} is in {named(place)} and {why}", {"offsets": offsets})
        elif len(offsets) > 1 and send.process.idempotent:
            yield Finding(
                "duplicate",
                f"{identity} is in {named(place)} {len(offsets)} times",
                {"offsets": offsets, "partition": list(place)},
                send.process.client,
            )


def _reordered(history: History) -> Iterator[Finding]:
    """Compare the order of records in the log with the order of the sends.

    If retention has removed a record, use the offset in its acknowledgement.
    """
    last: dict[tuple[str, Place], tuple[int, Send]] = {}
    for send in history.sends.values():
        if not send.process.idempotent:
            continue
        log = history.log(send.place, READ_UNCOMMITTED)
        found = log.places.get(send.id) if log is not None else None
        may_be_elsewhere = send.place[0] in history.removals  # in the log of a topic that was deleted
        offset = found[0] if found else -1 if may_be_elsewhere else send.offset
        if offset < 0:
            continue
        before = last.get((send.process.name, send.place))
        if before is not None and offset <= before[0]:
            yield Finding(
                "reordered",
                f"{send.id} was sent to {named(send.place)} after {before[1].id} and lies before it",
                {"offset": offset, "the other's": before[0], "partition": list(send.place)},
                send.process.client,
            )
        last[send.process.name, send.place] = (offset, send)


def named(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
