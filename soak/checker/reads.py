"""Checks what consumers received: records that do not exist, are not committed, are aborted, come twice or
are missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import (
    NEVER,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    History,
    Outcome,
    Place,
    Read,
    Send,
    Session,
    Transaction,
)
from soak.checker.shares import sessions as share_sessions
from soak.checker.writes import may_be_gone, may_be_replaced, must_be_received, named


def check(history: History) -> Iterator[Finding]:
    for session in history.sessions:
        yield from _content(history, session)
        yield from _order(history, session)
    for session in share_sessions(history):
        yield from _content(history, session)
    yield from _past_stable(history)


def _content(history: History, session: Session) -> Iterator[Finding]:
    """Check that each record is equal to that in the log, and that its transaction was being committed."""
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
        gone = there is None and (
            send is None or send.is_former or may_be_gone(history, send, everything, read.offset)
        )
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
    """Return whether compaction can have removed a record between the two final reads of its log.

    The answer is False for a record that was certainly aborted: no reader may receive it.
    """
    if send is None or (send.transaction is not None and send.transaction.outcome is Outcome.FAILED):
        return False
    return may_be_replaced(history, send, offset)


def _is_former(history: History, send: Send | None) -> bool:
    """Return whether a record can be from a deleted topic. A consumer can still have such a record in its
    buffer, and a broker that does not know of the deletion still serves it.
    """
    return send is not None and (send.is_former or history.may_be_removed(send.place[0], send.at))


def _order(history: History, session: Session) -> Iterator[Finding]:
    """Check that the offsets of a session rise, and that it skips no record of its isolation level."""
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
            elif log is not None and (
                skipped := must_be_received(history, place, log, previous + 1, read.offset)
            ):
                yield Finding(
                    "poll-skip",
                    f"{session.process.name} was given {named(place)} {read.offset} after {previous}",
                    {"at": read.at, "skipped": skipped[:10]},
                    session.process.client,
                )
        previous = read.offset


def _past_stable(history: History) -> Iterator[Finding]:
    """Check that no read_committed consumer receives a record after the first record of an open transaction.

    The history has the read after the broker's answer. So if the read is before the earliest end of the
    transaction, the broker answered while the transaction was open.
    """
    reads: dict[Place, list[tuple[int, Read, Session]]] = {}
    for session in [*history.sessions, *share_sessions(history)]:
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
    """Return the earliest time at which a transaction can have ended.

    The producer can end it, the coordinator can end it because of its age, or another producer can take the
    transactional id. A zombie also takes the id for a moment when its client aborts by a new epoch (KIP-360).
    The coordinator then aborts the open transaction before it rejects the zombie's old epoch.
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
