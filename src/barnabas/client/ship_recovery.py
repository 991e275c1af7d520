"""Finds the last shipped record of each source in the topic."""

from __future__ import annotations

import time
from collections.abc import Mapping

from barnabas.base.types import TopicPartition
from barnabas.client.consumer import Consumer
from barnabas.client.record import Record
from barnabas.client.ship_state import HEADER, Shipped, decode_header


def find_shipped(
    consumer: Consumer,
    topic: str,
    host: str,
    sources: Mapping[str, Shipped | None],
    *,
    scan_unknown: bool,
    settle: float = 0.0,
) -> dict[str, Shipped]:
    """Return the last shipped record of each source, also if the topic has deleted the record.

    Sources that have shipped no record are not in the result.

    Args:
        consumer: a consumer without a group.
        topic: topic to which the records are shipped.
        host: host of the sources. Sources with the same name on other hosts are different.
        sources: content of the state file of each source, or None. The topic is read after the offsets in
            these files.
        scan_unknown: read the whole topic for sources without a state file.
        settle: seconds to wait for records of a killed shipper that are still on their way to the broker. The
            wait begins again with each new record.
    """
    partitions = consumer.partitions(topic)
    marks = {partition: consumer.watermarks(partition) for partition in partitions}
    found: dict[str, Shipped] = {}
    starts: dict[TopicPartition, int] = {}

    def read_from(partition: TopicPartition, offset: int) -> None:
        starts[partition] = min(starts.get(partition, offset), max(offset, marks[partition][0]))

    for source, shipped in sources.items():
        partition = TopicPartition(topic, shipped.partition) if shipped is not None else None
        if shipped is not None and partition in marks and shipped.offset < marks[partition][1]:
            found[source] = shipped
            read_from(partition, shipped.offset + 1)
        elif shipped is not None or scan_unknown:
            # Nothing is known, or the topic has lost what was shipped: then the topic says from where again.
            for partition in partitions:
                read_from(partition, marks[partition][0])

    deadline = 0.0
    while True:
        ends = {each: marks[each][1] for each, start in starts.items() if start < marks[each][1]}
        if ends:
            consumer.assign({partition: starts[partition] for partition in ends})
            for batch in consumer.read_until(ends):
                for record in batch:
                    _note(record, host, sources, found)
            starts.update(ends)
            deadline = 0.0
        now = time.monotonic()
        deadline = deadline or now + settle
        if now >= deadline:
            return found
        time.sleep(min(0.05, deadline - now))
        marks = {partition: consumer.watermarks(partition) for partition in partitions}


def _note(record: Record, host: str, sources: Mapping[str, object], found: dict[str, Shipped]) -> None:
    source = record.key_text
    header = dict(record.headers).get(HEADER)
    if source is None or source not in sources or header is None:
        return
    try:
        number, position, shipper_host = decode_header(header)
    except ValueError:  # a header of that name that is not a shipper's
        return
    known = found.get(source)
    if shipper_host == host and (known is None or number > known.number):
        found[source] = Shipped(number, position, record.partition, record.offset, record.timestamp_ms or 0)
