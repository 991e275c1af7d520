"""Checks topics that clients delete and create again, and keys that clients delete."""

from __future__ import annotations

from collections.abc import Iterator

from soak.checker.findings import Finding
from soak.checker.model import READ_COMMITTED, READ_UNCOMMITTED, Creation, History, Outcome, Scan, Send
from soak.checker.writes import may_have_deleted, named


def check(history: History) -> Iterator[Finding]:
    for scan in [*history.scans, *_in_the_end(history)]:
        yield from _scanned(history, scan)
    yield from _lost_topics(history)
    yield from _same_topics(history)
    yield from _resurrected_values(history)


def _in_the_end(history: History) -> Iterator[Scan]:
    for place in history.places():
        log = history.log(place, READ_UNCOMMITTED)
        if place[0] in history.removals and log is not None:
            yield Scan(place, history.surveyed, history.surveyed, set(log.places))


def _scanned(history: History, scan: Scan) -> Iterator[Finding]:
    """Check that a read has all records acknowledged since the last deletion of the topic, and no earlier
    ones.

    An earlier record may be there if a copy was still on its way: a request that names the topic without its
    id writes to the new topic, as with Apache Kafka.
    """
    removals = history.removals.get(scan.place[0], [])
    for send in history.sends.values():
        if send.place != scan.place or send.transaction is not None:
            continue
        evidence = {
            "sent": send.at,
            "answered": send.done,
            "acknowledged at": send.offset,
            "read": scan.asked,
        }
        if send.id not in scan.ids:
            kept = all(removal.done < send.at or removal.at > scan.noted for removal in removals)
            if kept and send.outcome is Outcome.OK and send.done < scan.asked:
                evidence["sent while the topic was made anew"] = _is_being_made(history, send)
                yield Finding(
                    "lost-write",
                    f"{send.id} was acknowledged and could not be read in {named(scan.place)}",
                    evidence,
                    send.process.client,
                )
        elif not send.is_on_its_way and any(
            send.done < removal.at and removal.done < scan.asked for removal in removals
        ):
            yield Finding(
                "resurrected",
                f"{send.id} was in {named(scan.place)} when that was deleted, and is in the new one",
                evidence,
                send.process.client,
            )


def _is_being_made(history: History, send: Send) -> bool:
    """Return whether the client sent the record between the deletion of the topic and the end of its new
    creation.
    """
    topic = send.place[0]
    removed = [removal.done for removal in history.removals.get(topic, []) if removal.done < send.at]
    made = [creation.done for creation in history.creations if creation.topic == topic]
    return bool(removed) and not any(max(removed) < done < send.at for done in made)


def _lost_topics(history: History) -> Iterator[Finding]:
    for topic, removals in history.removals.items():
        created = [creation for creation in history.creations if creation.topic == topic]
        for removal in removals:
            if not removal.existed and _is_there(history, created, removal.at):
                yield Finding("lost-topic", f"{topic} was not there to be deleted", {"asked": removal.at})
        known = {place[0] for place in history.places()}
        if history.logs and topic not in known and _is_there(history, created, history.surveyed):
            yield Finding("lost-topic", f"{topic} is not there in the end")


def _is_there(history: History, created: list[Creation], at: int) -> bool:
    """Return whether the topic certainly existed: a client created it, and none deleted it after that."""
    made = max((creation.at for creation in created if creation.done < at), default=None)
    if made is None:
        return False
    topic = created[0].topic
    return not any(made < removal.done and removal.at < at for removal in history.removals[topic])


def _same_topics(history: History) -> Iterator[Finding]:
    """Find topics that have the same id before and after a deletion."""
    for before in history.creations:
        for after in history.creations:
            removals = history.removals.get(before.topic, [])
            if (
                before.topic_id is not None
                and (before.topic, before.topic_id) == (after.topic, after.topic_id)
                and any(before.done < removal.at and removal.done < after.at for removal in removals)
            ):
                yield Finding(
                    "resurrected",
                    f"{after.topic} has the id that it had before it was deleted",
                    {"id": after.topic_id, "made": before.done, "made again": after.done},
                )


def _resurrected_values(history: History) -> Iterator[Finding]:
    """Find records that are in the log although a tombstone deleted them. Compaction must remove the
    tombstone last.
    """
    for (place, key), tombstones in history.tombstones.items():
        log = history.log(place, READ_COMMITTED)
        if log is None or place[0] not in history.compacted or key not in log.latest:
            continue
        offset = log.latest[key]
        for tombstone in tombstones:
            if _is_certain(tombstone) and may_have_deleted(tombstone, offset) and tombstone.offset > offset:
                yield Finding(
                    "resurrected",
                    f"{named(place)} has {log.records[offset]}, whose key {tombstone.id} deleted",
                    {"offset": offset, "the tombstone's": tombstone.offset},
                    tombstone.process.client,
                )
                break


def _is_certain(send: Send) -> bool:
    """Return whether read_committed consumers can certainly read the record."""
    if send.outcome is not Outcome.OK:
        return False
    return send.transaction is None or send.transaction.outcome is Outcome.OK
