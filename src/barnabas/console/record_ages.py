"""Computes a group's lag in seconds: the age of the first record that the group has not committed.

The age counts from the timestamp of the first record in this record's batch. In two cases it counts from the
batch's max timestamp. With LogAppendTime, the max timestamp is the time of all records of the batch. In a
compacted batch with a delete horizon (KIP-534), the base timestamp is the horizon, not the time of a record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.brokers import Brokers
from barnabas.client.errors import ClientError
from barnabas.client.fetching import fetch
from barnabas.client.leaders import live_leaders
from barnabas.kafka.records import BatchHeader, batches

#: bytes of each partition in a request for several partitions, and in one for a single partition. A leader
#: always sends the first batch of a response, and leaves out later batches that do not fit
_TOGETHER, _ALONE = 16 << 10, 1
#: the longest time of one `seconds_behind`, in seconds; the most timestamps that are kept
_MAX_S, _KEPT = 1.0, 20_000


class Ages:
    """The timestamps of records at committed offsets, each read only once. Any thread can use this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: by partition and offset, milliseconds since 1970
        self._known: dict[tuple[TopicPartition, int], int] = {}

    def seconds_behind(
        self, brokers: Brokers, metadata: Any, committed: Mapping[TopicPartition, int], now: float
    ) -> dict[TopicPartition, float]:
        """Return, by partition, the age in seconds of the first record that the group has not committed.

        Args:
            brokers: connections to the cluster.
            metadata: response to a Metadata request for the topics; None for no topics.
            committed: committed offsets of a group.
            now: the present time, in seconds since 1970.

        Returns:
            The ages. Partitions without a record at or after the committed offset, and those whose record
            could not be read within about a second, are left out.
        """
        if metadata is None:
            return {}
        leaders = live_leaders(metadata.topics)
        missing = {p: o for p, o in committed.items() if p in leaders and (p, o) not in self._known}
        give_up = time.monotonic() + _MAX_S
        for topic in metadata.topics:
            by_leader: dict[int, dict[int, int]] = {}
            for partition, offset in missing.items():
                if partition.topic == topic.name:
                    by_leader.setdefault(leaders[partition], {})[partition.partition] = offset
            for leader, wanted in by_leader.items():
                self._read(brokers, leader, topic, wanted, give_up)
        return {
            p: max(0.0, round(now - self._known[p, o] / 1000, 1))
            for p, o in committed.items()
            if (p, o) in self._known
        }

    def _read(
        self, brokers: Brokers, leader: int, topic: Any, wanted: dict[int, int], give_up: float
    ) -> None:
        try:
            left = wanted.keys() - self._note(brokers, leader, topic, wanted, _TOGETHER)
            for number in sorted(left):
                if time.monotonic() > give_up:
                    return
                self._note(brokers, leader, topic, {number: wanted[number]}, _ALONE)
        except (ClientError, KafkaError):
            return  # the next look asks the leader of then

    def _note(
        self, brokers: Brokers, leader: int, topic: Any, wanted: dict[int, int], max_bytes: int
    ) -> set[int]:
        """Read the batches at the `wanted` offsets, and keep the timestamps of their first records.

        Return the partitions in which there was a batch.

        Args:
            topic: the topic in a MetadataResponse.
            wanted: offset by partition number.
            max_bytes: largest number of bytes for each partition in the response.
        """
        found = set()
        for number, chunk in fetch(brokers, leader, topic, wanted, max_bytes).items():
            for _, header in batches(chunk.data):
                found.add(number)
                if not header.record_count:
                    continue  # compaction has removed its records
                timestamp = _timestamp(header)
                if timestamp > 0:
                    key = TopicPartition(topic.name, number), wanted[number]
                    with self._lock:
                        while len(self._known) >= _KEPT:
                            del self._known[next(iter(self._known))]
                        self._known[key] = timestamp
                break
        return found


def _timestamp(header: BatchHeader) -> int:
    if header.is_log_append_time or header.delete_horizon_ms is not None:
        return header.max_timestamp
    return header.base_timestamp
