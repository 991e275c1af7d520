"""Checks consumer groups: where members begin, which records they skip, and whether groups and producers make
progress.
"""

from __future__ import annotations

from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import (
    NEVER,
    NOTHING_COMMITTED,
    READ_UNCOMMITTED,
    Commit,
    History,
    Outcome,
    Place,
    Session,
)
from soak.checker.writes import must_be_received, named

#: how long a producer must have lived in the calm for its idleness to count, in nanoseconds
GRACE = 10_000_000_000
#: the roles of clients that get acknowledgements
PRODUCERS = ("produce", "transact")


def check(history: History) -> Iterator[Finding]:
    last_reads: dict[tuple[str, Place], int] = {}
    for session in history.sessions:
        if not (session.reads and session.process.group) or session.place[0] in history.removals:
            continue
        own = (session.process.name, session.place)
        if session.start is None:
            yield from _start(history, session, last_reads.get(own, -1))
        last_reads[own] = session.reads[-1].offset
    for group, offsets in history.group_offsets.items():
        for place, offset in offsets.items():
            if place[0] in history.removals:
                continue  # a member may have committed its position in a topic that was deleted
            yield from _final(history, group, place, offset)
            yield from _skipped(history, group, place, offset)
    yield from _stalled_groups(history)
    yield from _stalled_producers(history)


def possible(commits: list[Commit], since: int, until: int) -> set[int]:
    """Return the offsets that OffsetFetch may return for a partition at some time from `since` to `until`.

    A commit can take effect from the moment of its call. A later successful commit replaces it, if the later
    one began after the first had ended. A commit with an unknown outcome can take effect late, so only a
    later commit ends it.
    """
    begun = [commit for commit in commits if commit.at < until and commit.outcome is not Outcome.FAILED]
    over = [commit for commit in begun if commit.outcome is Outcome.OK and commit.done < since]
    latest = max((_began(commit) for commit in over), default=-1)
    offsets = {
        commit.offset for commit in begun if not (commit.outcome is Outcome.OK and commit.done < latest)
    }
    return offsets if over else offsets | {NOTHING_COMMITTED}


def _began(commit: Commit) -> int:
    """Return the earliest time at which a commit can take effect. In a transaction, this is the call of
    commit.
    """
    return commit.at if commit.transaction is None else commit.transaction.committing


def _start(history: History, session: Session, own: int) -> Iterator[Finding]:
    """Check that a member begins at its group's offset, or after records that its isolation level hides.

    Args:
        own: the last offset that the same member received from this partition, or -1.
    """
    first = session.reads[0]
    commits = history.commits.get((session.process.group, session.place), [])
    offsets = possible(commits, session.began, first.at)
    log = history.log(session.place, session.process.isolation)
    if log is None or any(
        offset <= first.offset and not log.between(offset, first.offset) for offset in offsets
    ):
        return
    yield Finding(
        "offset-jump",
        f"{session.process.name} began {named(session.place)} at {first.offset}",
        {
            "committed may be": sorted(offsets)[-10:],
            "assigned": session.began,
            "read": first.at,
            "goes on where it was": 0 <= own < first.offset and not log.between(own + 1, first.offset),
        },
        session.process.client,
    )


def _final(history: History, group: str, place: Place, offset: int) -> Iterator[Finding]:
    commits = history.commits.get((group, place), [])
    offsets = possible(commits, NEVER - 1, NEVER)
    if offset not in offsets:
        yield Finding(
            "offset-jump",
            f"{group} has committed {named(place)} {offset} in the end",
            {"committed may be": sorted(offsets)[-10:]},
        )


def _skipped(history: History, group: str, place: Place, committed: int) -> Iterator[Finding]:
    members = [session for session in history.sessions if session.process.group == group]
    read = {read.offset for session in members if session.place == place for read in session.reads}
    isolation = members[0].process.isolation if members else READ_UNCOMMITTED
    log = history.log(place, isolation)
    if log is None:
        return
    skipped = [offset for offset in must_be_received(history, place, log, 0, committed) if offset not in read]
    if skipped:
        yield Finding(
            "group-skip",
            f"{group} has committed {named(place)} {committed}, and passed over {len(skipped)} records",
            {"offsets": skipped[:10]},
            members[0].process.client if members else "",
        )


def _stalled_groups(history: History) -> Iterator[Finding]:
    """Find groups that have not reached the end of their topics, although all faults have ended."""
    reads: dict[str, set[Place]] = {}
    isolation: dict[str, str] = {}
    for session in history.sessions:
        if session.process.group:
            reads.setdefault(session.process.group, set()).add(session.place)
            isolation[session.process.group] = session.process.isolation
    for group, places in reads.items():
        topics = {topic for topic, _ in places}
        for place in history.places():
            log = history.log(place, isolation[group])
            if place[0] not in topics or place[0] in history.removals or log is None:
                continue
            committed = history.group_offsets.get(group, {}).get(place, 0)
            left = log.between(committed, NEVER)
            if left:
                yield Finding(
                    "stalled-group",
                    f"{group} stands at {named(place)} {committed}, {len(left)} records before the end",
                    {"end": log.end},
                )


def _stalled_producers(history: History) -> Iterator[Finding]:
    if history.calm == NEVER:
        return
    lively = {
        send.process.name: send.process.client_name
        for send in history.sends.values()
        if send.outcome is Outcome.OK and NEVER > send.done > history.calm
    }
    clients = set(lively.values())
    gave_up = {process.name for process, _ in history.gave_up}  # `waiting` has a finding for each
    for process in history.processes.values():
        if process.role not in PRODUCERS or process.name in lively or process.name in gave_up:
            continue
        lived = history.stopped.get(process.name, NEVER) - process.began
        if process.began > history.calm and lived < GRACE and process.client_name in clients:
            continue  # it took over from one that got something done, and had hardly begun
        if history.stopped.get(process.name, NEVER) > history.calm + GRACE:
            yield Finding(
                "stalled-producer",
                f"{process.name} got nothing acknowledged after the last fault",
                client=process.client,
            )
