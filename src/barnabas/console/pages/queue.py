"""The part of a share group's page about its records: locked, waiting again, finished, dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.base.types import NO_BROKER, TopicPartition
from barnabas.client.errors import ClientError, error_text
from barnabas.client.leaders import leaders_of
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.client.share_groups import InFlight, StateBatch
from barnabas.console.view import ClusterView

#: the most ranges of records that the page lists
_MAX_ROWS = 200
_DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


def queue(view: ClusterView, group: str, members: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the data of a share group's queue for a page: its lag, records in flight, and dead letters.

    `members` has a dict with ``id`` for each member; the function adds ``locked``, the number of records that
    the member has acquired. A partition's numbers of records in flight are None if no member reads the
    partition, or if its leader does not answer. Brokers of Apache Kafka do not tell which records are in
    flight. Then these numbers are None for all partitions, and ``locked`` is 0.
    """
    offsets = view.admin.share_offsets(group)
    known = view.admin.share_records(group, offsets)
    records = known or {}
    batches = [(each, batch) for each in offsets if each in records for batch in records[each].batches]
    locked: Counter[str | None] = Counter()
    for _, batch in batches:
        locked[batch.member] += batch.size
    for member in members:
        member["locked"] = locked[member["id"]]
    return {
        "lag": sum(offset.lag or 0 for offset in offsets.values()),
        "is_told": known is not None,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start": offset.start,
                "lag": offset.lag,
                **counts(records.get(partition)),
            }
            for partition, offset in offsets.items()
        ],
        "records": [_row(partition, batch) for partition, batch in batches[:_MAX_ROWS]],
        "record_ranges": len(batches),
        "dead_letters": _dead_letters(view, group),
    }


def counts(records: InFlight | None) -> dict[str, int | None]:
    """Return the numbers of records in flight by their state; None for each if they are unknown.

    ``locked``: a member has acquired the records. ``waiting``: they are available again after a delivery.
    """
    if records is None:
        return dict.fromkeys(("locked", "waiting", "acknowledged", "archived"))
    return {
        "locked": records.count("acquired"),
        "waiting": sum(batch.size for batch in records.waiting_again),
        "acknowledged": records.count("acknowledged"),
        "archived": records.count("archived") + records.count("archiving"),
    }


def _row(partition: TopicPartition, batch: StateBatch) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition, **batch._asdict()}


def _dead_letters(view: ClusterView, group: str) -> dict[str, Any] | None:
    """Return a share group's dead-letter topic (``topic``), and how many records the topic has (``records``).

    If offsets of the topic cannot be read, ``records`` lacks the records of these partitions; None if it
    lacks all. If the group's settings cannot be read, ``topic`` and ``records`` are None. In both cases
    ``problem`` has the reason, else None.

    Return None if the group has no dead-letter topic.
    """
    try:
        settings = view.admin.configs("group", group)
    except (ClientError, KafkaError) as error:
        unknown = f"the group's settings cannot be read: {error_text(error)}"
        return {"topic": None, "records": None, "problem": unknown}
    topic = next((each.value for each in settings if each.name == _DEAD_LETTER_TOPIC), None)
    if not topic:
        return None
    records, problem = None, None
    try:
        leaders = leaders_of(view.metadata([topic]).topics)
        with_leader = {partition: leader for partition, leader in leaders.items() if leader != NO_BROKER}
        starts = offsets_at(view.brokers, with_leader, EARLIEST)
        ends = offsets_at(view.brokers, with_leader, LATEST)
    except (ClientError, KafkaError) as error:
        problem = error_text(error)
    else:
        known = starts.keys() & ends.keys()
        if known:
            records = sum(ends[partition] - starts[partition] for partition in known)
        if len(known) < len(leaders):
            problem = f"{len(leaders) - len(known)} of {len(leaders)} partitions do not answer"
        elif not leaders:
            problem = "there is no such topic"
    return {"topic": topic, "records": records, "problem": problem}
