"""Share groups: which records their members got, again and at the same time, and whether each was finished.

A broker that was replaced as the leader, and does not know it yet, delivers records that its successor has
delivered, too. Apache Kafka's brokers do the same. Such a delivery has no `lease`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from soak.checker.deliveries import (
    FINAL,
    NEVER,
    RELEASE,
    RENEW,
    Delivery,
    ShareSettings,
    Verdict,
)
from soak.checker.findings import Finding
from soak.checker.model import History, Outcome, Place, Read, Session
from soak.checker.writes import must_be_received, named

#: nanoseconds for which a leader can continue with the state of a deleted group
_AFTER_DELETION = 10_000_000_000


def check(history: History) -> Iterator[Finding]:
    shares = history.shares
    for (group, place, offset), deliveries in shares.deliveries.items():
        what = f"{named(place)} {offset} of {group}"
        settings = shares.settings[group]
        ordered = sorted(deliveries, key=lambda delivery: delivery.at)
        log = history.log(place, settings.isolation)
        if log is not None:
            yield from _acknowledged(history, what, ordered, settings, is_deleted=offset not in log.records)
        yield from _locked(history, what, ordered, settings)
        yield from _counts(history, what, ordered, settings)
    for group, offsets in shares.start_offsets.items():
        for place, start in offsets.items():
            yield from _unfinished(history, group, place, start)


def sessions(history: History) -> Iterator[Session]:
    """Yield the deliveries as sessions of readers, so that `reads` checks their records."""
    for deliveries in history.shares.deliveries.values():
        for delivery in deliveries:
            reads = [Read(delivery.offset, delivery.id, delivery.at)]
            yield Session(delivery.request.process, delivery.place, delivery.asked, delivery.offset, reads)


def _acknowledged(
    history: History,
    what: str,
    deliveries: Sequence[Delivery],
    settings: ShareSettings,
    *,
    is_deleted: bool,
) -> Iterator[Finding]:
    """Yield a finding if a member no longer had the record when a broker accepted its acknowledgement.

    Also yield a finding if any member gets the record after a final acknowledgement.

    The broker also accepts late acknowledgements of records before the start offset. These are deleted, or
    finished by other deliveries.
    """
    for delivery in deliveries:
        verdict = delivery.accepted
        if verdict is None:
            continue
        others = [each for each in deliveries if each is not delivery]
        may_be_late = is_deleted or _may_be_finished(
            history, delivery.request.process.group, others, settings.limit, before=verdict.answered
        )
        for other in others:
            if other.lease is None or other.asked <= delivery.at or _begins_anew(history, delivery, other):
                continue
            if verdict.kind in FINAL and other.asked > verdict.answered:
                yield Finding(
                    "delivered-after-acknowledgement",
                    f"{what} went to {_member(other)} after {_member(delivery)} had acknowledged it",
                    _evidence(delivery, other) | {"called": verdict.at, "answered": verdict.answered},
                )
            elif (other.at < verdict.at or verdict.kind in FINAL) and not may_be_late:
                yield Finding(
                    "locked-twice",
                    f"{what} went to {_member(other)}, and {_member(delivery)} acknowledged it",
                    _evidence(delivery, other) | {"called": verdict.at},
                )


def _locked(
    history: History, what: str, deliveries: Sequence[Delivery], settings: ShareSettings
) -> Iterator[Finding]:
    """While a lock lasts, no other member gets the record, and its member can acknowledge it."""
    for delivery in deliveries:
        if delivery.lease is None:
            continue
        end = _certain_end(history, delivery, settings.lock)
        for other in deliveries:
            if (
                other.lease == delivery.lease
                and delivery.at < other.asked
                and other.at < end
                and not _begins_anew(history, delivery, other)
            ):
                yield Finding(
                    "locked-twice",
                    f"{what} went to {_member(other)} while {_member(delivery)} had it",
                    _evidence(delivery, other) | {"locked until": end},
                )


def _certain_end(history: History, delivery: Delivery, lock: int) -> int:
    """Return the time until which the member certainly has the record: its lock and its session last."""
    end = delivery.asked + lock
    for verdict in delivery.verdicts:
        if verdict.kind == RENEW and verdict.is_accepted:
            end = verdict.at + lock
        elif verdict.kind != RENEW:
            end = min(end, verdict.at)
    request = delivery.request
    requests = history.shares.sessions[request.process.name, request.session]
    return min(end, max(each.at for each in requests if each.answered < NEVER))


def _counts(
    history: History, what: str, deliveries: Sequence[Delivery], settings: ShareSettings
) -> Iterator[Finding]:
    """Yield a finding if a delivery count falls while one broker leads, or below a stored count."""
    for delivery in deliveries:
        if delivery.count > settings.limit:
            yield Finding(
                "delivered-too-often",
                f"{what} went to {_member(delivery)} for the {delivery.count}th time",
                {"limit": settings.limit, "at": delivery.at},
            )
        release = delivery.accepted
        if release is not None and release.kind != RELEASE:
            release = None
        for other in deliveries:
            if other.lease is None or other.asked <= delivery.at or _begins_anew(history, delivery, other):
                continue
            is_stored = release is not None and other.asked > release.answered
            least = delivery.count + 1 if is_stored else delivery.count
            if other.count < least and (is_stored or other.lease == delivery.lease):
                yield Finding(
                    "count-fell",
                    f"{what} went to {_member(delivery)} as delivery {delivery.count}, then to "
                    f"{_member(other)} as delivery {other.count}",
                    _evidence(delivery, other),
                )


def _unfinished(history: History, group: str, place: Place, start: int) -> Iterator[Finding]:
    """Yield a finding if the group has not read to the end, or has skipped a record that is not finished."""
    settings = history.shares.settings[group]
    log = history.log(place, settings.isolation)
    if log is None or place[0] in history.removals:
        return
    left = log.between(start, NEVER)
    if left:
        yield Finding(
            "stalled-share-group",
            f"{group} stands at {named(place)} {start}, {len(left)} records before the end",
            {
                "end": log.end,
                "delivered": [(group, place, offset) in history.shares.deliveries for offset in left[:5]],
            },
        )
    deletions = history.commits.get((group, place), ())
    anew = max((each.at for each in deletions if each.outcome is Outcome.OK), default=-1)
    for offset in must_be_received(history, place, log, history.may_be_deleted_to(place), start):
        known = history.shares.deliveries.get((group, place, offset), [])
        deliveries = [each for each in known if each.at > anew]
        if not _may_be_finished(history, group, deliveries, settings.limit):
            yield Finding(
                "lost-in-share-group",
                f"{group} stands at {named(place)} {start}, and {offset} is not finished",
                {"deliveries": [(_member(each), each.count, each.at) for each in deliveries]},
            )


def _begins_anew(history: History, delivery: Delivery, other: Delivery) -> bool:
    """Whether the group can have been deleted and created again between two deliveries.

    The new group knows no earlier delivery. The history has the deletions as commits of the group. A leader
    with a session of the former group can deliver by its state until an acknowledgement cannot be stored.
    """
    return any(
        deletion.outcome is not Outcome.FAILED
        and deletion.at < other.at
        and delivery.asked < deletion.done + _AFTER_DELETION
        for deletion in history.commits.get((delivery.request.process.group, delivery.place), ())
    )


def _may_be_finished(
    history: History, group: str, deliveries: Sequence[Delivery], limit: int, *, before: int = NEVER
) -> bool:
    """Whether a member may have finished the record before a time, or the broker may have given it up.

    Any request without an answer may have delivered it once.
    """
    verdicts = (each for delivery in deliveries for each in delivery.verdicts if each.at < before)
    if any(map(_may_finish, verdicts)):
        return True
    earlier = (each for each in deliveries if each.asked < before)
    count, since = max(((each.count, each.at) for each in earlier), default=(0, -1))
    return count + history.shares.unanswered(group, since, before) >= limit


def _may_finish(verdict: Verdict) -> bool:
    return verdict.kind in FINAL and verdict.may_count


def _member(delivery: Delivery) -> str:
    return delivery.request.process.name


def _evidence(one: Delivery, other: Delivery) -> dict[str, object]:
    return {
        "the first": (one.asked, one.at, one.count, one.lease),
        "the second": (other.asked, other.at, other.count, other.lease),
    }
