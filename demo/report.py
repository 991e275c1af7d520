"""Reads the counts with a consumer group, and compares all totals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset
from pyarrow.dataset import Dataset

from barnabas.base.errors import BarnabasError
from barnabas.base.types import TopicPartition
from barnabas.client import Admin, Consumer
from demo import LOG_TOPICS, STATS_TOPIC
from demo.shipping import Shipped

#: The consumer group that reads the counts.
GROUP = "demo-report"

_PATIENCE_S = 20


class CountsMissingError(BarnabasError):
    """The topic of the counts was not read to its end in time."""


@dataclass(frozen=True)
class Count:
    """The number of records of one topic and level in one time window."""

    topic: str
    level: str
    start: datetime
    records: int


@dataclass(frozen=True)
class Totals:
    """The number of a topic's records at each step of the demo."""

    topic: str
    files: int
    lines: int
    shipped: int
    stored: int
    parquet: int
    counted: int

    @property
    def agree(self) -> bool:
        return self.shipped == self.stored == self.parquet == self.counted


def read_counts(bootstrap: str) -> list[Count]:
    """Read the topic of the counts to its end with the group. Return the last record of each key.

    Raises:
        CountsMissingError: the broker does not return them in time.
    """
    latest: dict[bytes | None, Count] = {}
    with Consumer(bootstrap, STATS_TOPIC, group=GROUP) as consumer:
        ends = {place: consumer.watermarks(place)[1] for place in consumer.partitions(STATS_TOPIC)}
        missing = {place for place, end in ends.items() if end > 0}
        while missing:
            record = consumer.poll(_PATIENCE_S)
            if record is None:
                raise CountsMissingError(f"no record of {STATS_TOPIC} came within {_PATIENCE_S} s")
            value = json.loads(record.value or b"{}")
            start = datetime.fromtimestamp(value["from"], UTC)
            latest[record.key] = Count(value["topic"], value["level"], start, value["records"])
            place = TopicPartition(record.topic, record.partition)
            if record.offset + 1 >= ends[place]:
                missing.discard(place)
        consumer.commit()
    return sorted(latest.values(), key=lambda count: (count.topic, count.start, count.level))


def reconcile(
    bootstrap: str, shipped: dict[str, Shipped], parquet: dict[str, int], counts: list[Count]
) -> list[Totals]:
    """Return each topic's totals: shipped, stored by the broker, in Parquet, and counted."""
    stored = _stored(bootstrap)
    counted: Counter[str] = Counter()
    for count in counts:
        counted[count.topic] += count.records
    return [
        Totals(
            topic,
            shipped[topic].files,
            shipped[topic].lines,
            shipped[topic].records,
            stored[topic],
            parquet.get(topic, 0),
            counted[topic],
        )
        for topic in LOG_TOPICS
    ]


def stored_records(folder: Path) -> Dataset:
    """Return the pipeline's Parquet files as a data set."""
    return pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")


def count_stored(records: Dataset) -> dict[str, int]:
    """Return the number of records of each topic in the Parquet files."""
    return {topic: records.count_rows(filter=pc.field("topic") == topic) for topic in LOG_TOPICS}


def _stored(bootstrap: str) -> Counter[str]:
    """Return the number of records that the broker stores for each topic, from the start and end offsets."""
    stored: Counter[str] = Counter()
    with Consumer(bootstrap) as consumer:
        for place in consumer.partitions(*LOG_TOPICS):
            low, high = consumer.watermarks(place)
            stored[place.topic] += high - low
    return stored


def create_topics(bootstrap: str) -> None:
    """Create the demo's topics: three partitions for each kind of log, and one for the counts."""
    admin = Admin(bootstrap)
    for topic in LOG_TOPICS:
        admin.create_topic(topic, partitions=3)
    admin.create_topic(STATS_TOPIC, partitions=1)
