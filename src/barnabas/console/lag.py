"""A group's lag in time: the age of the first record that it has not committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.errors import ClientError
from barnabas.console.kafka import Kafka
from barnabas.console.offsets import leaders
from barnabas.console.reading import fetch
from barnabas.errors import KafkaError
from barnabas.records import batches
from barnabas.types import TopicPartition

#: a batch's header is enough; the leader sends the first batch whole, however large
_LITTLE = 1


def seconds_behind(
    kafka: Kafka, metadata: Any, committed: Mapping[TopicPartition, int], now: float
) -> dict[TopicPartition, float]:
    """Seconds since the next record of each partition was produced, by its batch's time.

    Args:
        metadata: of the topics.
        now: seconds since 1970.

    What cannot be read is left out.
    """
    if metadata is None:
        return {}
    led = leaders(metadata)
    found: dict[TopicPartition, float] = {}
    for topic in metadata.topics:
        by_leader: dict[int, dict[int, int]] = {}
        for partition, offset in committed.items():
            if partition.topic == topic.name and partition in led:
                by_leader.setdefault(led[partition], {})[partition.partition] = offset
        for leader, wanted in by_leader.items():
            try:
                chunks = fetch(kafka, leader, topic, wanted, _LITTLE)
            except (ClientError, KafkaError):
                continue
            for number, chunk in chunks.items():
                for _, header in batches(chunk.data):
                    if header.max_timestamp > 0:
                        age = now - header.base_timestamp / 1000
                        found[TopicPartition(topic.name, number)] = max(0.0, round(age, 1))
                    break
    return found
