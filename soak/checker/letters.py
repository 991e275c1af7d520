"""Dead letters of share groups: one for each record that a group gave up, and none for any other record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from soak.checker.deliveries import ACCEPT, REJECT, DeadLetter, Delivery, ShareRecord
from soak.checker.findings import Finding
from soak.checker.model import History
from soak.checker.writes import must_be_received, named


def check(history: History) -> Iterator[Finding]:
    for source, found in history.shares.letters.items():
        yield from _judged(history, source, found)
    yield from _lost(history)


def _judged(history: History, source: ShareRecord, found: Sequence[DeadLetter]) -> Iterator[Finding]:
    """Check the dead letters of one record."""
    group, place, offset = source
    settings = history.shares.settings[group]
    what = f"{named(place)} {offset} of {group}"
    where = {"dead letters": [(named(letter.place), letter.offset, letter.deliveries) for letter in found]}
    if len(found) > 1:
        yield Finding("dead-letter-twice", f"{what} has {len(found)} dead letters", where)
    if not settings.has_letters or not _may_be_given_up(history, source):
        deliveries = [
            (each.request.process.name, each.count, each.at, each.accepted)
            for each in history.shares.deliveries.get(source, ())
        ]
        yield Finding(
            "dead-letter-without-cause", f"{what} was not given up", where | {"deliveries": deliveries}
        )
    log = history.log(place, settings.isolation)
    original = None if log is None else log.records.get(offset)
    for letter in found:
        has_other = original is not None and letter.id not in ("", original)
        if has_other or not 0 < letter.deliveries <= settings.limit:
            yield Finding("dead-letter-differs", f"{what} is {original}", where | {"id": letter.id})


def _lost(history: History) -> Iterator[Finding]:
    """Yield a finding for each finished record that no member can have accepted, and that has no dead letter.

    A record that the log lacks, or that a leader may have deleted for a time, needs no dead letter.
    """
    for group, starts in history.shares.start_offsets.items():
        settings = history.shares.settings[group]
        for place, start in starts.items() if settings.has_letters else ():
            log = history.log(place, settings.isolation)
            if log is None or place[0] in history.removals:
                continue
            for offset in must_be_received(history, place, log, history.may_be_deleted_to(place), start):
                source = group, place, offset
                deliveries = history.shares.deliveries.get(source, ())
                if source not in history.shares.letters and not any(map(_may_be_accepted, deliveries)):
                    yield Finding(
                        "dead-letter-lost",
                        f"{named(place)} {offset} of {group} was given up, and has no dead letter",
                        {"deliveries": [(each.request.process.name, each.count) for each in deliveries]},
                    )


def _may_be_given_up(history: History, source: ShareRecord) -> bool:
    """Whether the broker may have given the record up.

    It gives a record up if a member rejects it, or if its last permitted delivery ends without an acceptance.
    Each request without an answer may have delivered the record once.
    """
    shares, group = history.shares, source[0]
    deliveries = shares.deliveries.get(source, [])
    last = max(deliveries, key=lambda each: each.asked, default=None)
    settings = shares.settings[group]
    if last is not None and not shares.unanswered(group, last.asked) and _is_accepted(last, settings.lock):
        return False
    rejections = (each for delivery in deliveries for each in delivery.verdicts if each.kind == REJECT)
    if any(each.may_count for each in rejections):
        return True
    count, since = max(((each.count, each.at) for each in deliveries), default=(0, -1))
    return count + shares.unanswered(group, since) >= settings.limit


def _is_accepted(delivery: Delivery, lock: int) -> bool:
    """Whether a member certainly accepted the record while it had it.

    The broker also confirms an acknowledgement that comes too late, if the record is before the start offset.
    """
    verdict = delivery.accepted
    is_leader = delivery.lease is not None
    return (
        is_leader
        and verdict is not None
        and verdict.kind == ACCEPT
        and verdict.answered < delivery.asked + lock
    )


def _may_be_accepted(delivery: Delivery) -> bool:
    return any(each.kind == ACCEPT and each.may_count for each in delivery.verdicts)
