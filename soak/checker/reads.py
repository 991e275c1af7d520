"""What readers were given: what is not there, not committed, not yet committed, again, or not at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import (
    NEVER,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    History,
    Log,
    Outcome,
    Place,
    Read,
    Send,
    Session,
    Transaction,
)
from soak.checker.writes import may_be_gone, may_be_replaced, named


def check(history: History) -> Iterator[Finding]:
    for session in history.sessions:
        yield from _content(history, session)
        yield from _order(history, session)
    yield from _past_stable(history)


def _content(history: History, session: Session) -> Iterator[Finding]:
    """Each record as the logs have it; a record's transaction must have been on its way to be committed."""
    place = session.place
    everything = history.log(place, READ_UNCOMMITTED)
    committed = history.log(place, READ_COMMITTED)
    if everything is None or committed is None:
        return
    only_committed = session.process.isolation == READ_COMMITTED
    for read in session.reads:
        if history.may_be_removed(place[0], read.at):
            continue
        evidence = {"reader": session.process.name, "offset": read.offset, "at": read.at}
        client = session.process.client
        send = history.sends.get(read.id)
        there = everything.records.get(read.offset)
        gone = there is None and (send is None or may_be_gone(history, send, everything, read.offset))
        if there is None and not gone:
            yield Finding("lost-read", f"{read.id} was read and is not in {named(place)}", evidence, client)
        elif (there or read.id) != read.id and not _is_former(history, send):
            yield Finding(
                "moved-offset", f"{read.id} was read where {named(place)} has {there}", evidence, client
            )
        elif (
            only_committed
            and not gone
            and read.offset >= committed.start
            and read.offset not in committed.records
            and not _may_be_compacted_since(history, send, read.offset)
        ):
            yield Finding(
                "aborted-read", f"{read.id} of {named(place)} was read and not committed", evidence, client
            )
        elif only_committed and send and send.transaction and read.at < send.transaction.committing:
            yield Finding(
                "dirty-read",
                f"{read.id} of {named(place)} was read before its transaction was to be committed",
                evidence | {"commit called at": send.transaction.committing},
                client,
            )


def _may_be_compacted_since(history: History, send: Send | None, offset: int) -> bool:
    """Whether compaction may have taken a record between the two readings of its log at the end.

    What was certainly aborted was never a reader's, whatever became of it.
    """
    if send is None or (send.transaction is not None and send.transaction.outcome is Outcome.FAILED):
        return False
    return may_be_replaced(history, send, offset)


def _is_former(history: History, send: Send | None) -> bool:
    """Whether a record may be of a topic that was deleted: a reader may have had it in its buffer."""
    return send is not None and history.may_be_removed(send.place[0], send.at)


def _order(history: History, session: Session) -> Iterator[Finding]:
    """Within a session offsets go up, and nothing that its isolation level shows is left out."""
    place = session.place
    if place[0] in history.removals:
        return  # a position in a topic that was deleted may mean anything in the next
    log = history.log(place, session.process.isolation)
    previous: int | None = None
    if session.start is not None:
        previous = session.start - 1
    for read in session.reads:
        if previous is not None:
            if read.offset <= previous:
                yield Finding(
                    "nonmonotonic-poll",
                    f"{session.process.name} was given {named(place)} {read.offset} after {previous}",
                    {"at": read.at},
                    session.process.client,
                )
            elif log is not None and (skipped := _skipped(history, log, previous + 1, read.offset)):
                yield Finding(
                    "poll-skip",
                    f"{session.process.name} was given {named(place)} {read.offset} after {previous}",
                    {"at": read.at, "skipped": skipped[:10]},
                    session.process.client,
                )
        previous = read.offset


def _skipped(history: History, log: Log, low: int, high: int) -> list[int]:
    """The offsets of what a reader should have been given between two others."""
    missing = log.between(low, high)
    if log.is_compacted_apart:
        missing = [
            at for at in missing if not (send := history.sends.get(log.records[at])) or not send.tombstone
        ]
    return missing


def _past_stable(history: History) -> Iterator[Finding]:
    """No reader of committed records gets past the first record of an open transaction.

    A read is noted after the broker has answered it, so one noted before the transaction could end was
    answered while it was open; and what lies behind its first record was written after that.
    """
    reads: dict[Place, list[tuple[int, Read, Session]]] = {}
    for session in history.sessions:
        if session.process.isolation == READ_COMMITTED:
            reads.setdefault(session.place, []).extend((read.at, read, session) for read in session.reads)
    for listed in reads.values():
        listed.sort(key=lambda item: item[0])
    for transaction in history.transactions:
        end = _earliest_end(history, transaction)
        firsts: dict[Place, int] = {}
        for send in transaction.sends:
            if send.outcome is Outcome.OK and send.offset >= 0:
                firsts[send.place] = min(firsts.get(send.place, NEVER), send.offset)
        for place, first in firsts.items():
            listed = reads.get(place, [])
            low = bisect_left(listed, transaction.begun, key=lambda item: item[0])
            high = bisect_left(listed, end, key=lambda item: item[0])
            for at, read, session in listed[low:high]:
                if read.offset > first:
                    yield Finding(
                        "read-past-stable",
                        f"{read.id} of {named(place)} was read while a transaction was open before it",
                        {
                            "reader": session.process.name,
                            "at": at,
                            "offset": read.offset,
                            "transaction": (transaction.process.name, transaction.number),
                            "its first offset": first,
                            "its earliest end": end,
                        },
                        session.process.client,
                    )


def _earliest_end(history: History, transaction: Transaction) -> int:
    """When the transaction may have ended at the earliest: ended by its producer, by the coordinator for its
    age, or because another has taken its transactional id.

    A zombie takes it, too, for a moment, when a client aborts by asking for a new epoch (KIP-360): the
    coordinator aborts what is open before it finds that the zombie's own epoch is too old.
    """
    begun, own = transaction.begun, transaction.process
    end = min(transaction.ending, begun + own.transaction_timeout)
    inits = history.inits.get(own.transactional_id, [])
    taken = [max(init.at, begun) for init in inits if init.done > begun]
    taken += [
        max(other.aborting, begun)
        for other in history.aborted.get(own.transactional_id, [])
        if other.process is not own and other.returned > begun
    ]
    return min([end, *taken])
