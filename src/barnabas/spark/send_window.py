"""Limits the queued records of an idempotent producer, and chooses partitions for rows without keys.

For an idempotent producer, librdkafka (2.16) has one request at a time in flight for each partition. If a
second request is full or older than ``linger.ms``, librdkafka's thread polls in a loop until it may send that
request. This took half of the CPU time of a bulk write. So `SendWindow` limits the queued records to one and
a half requests for each partition. That is more than one request, so each request is full, and none waits for
``linger.ms``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import numpy as np
from confluent_kafka import KafkaException

from barnabas.spark.librdkafka import MessageTable

#: librdkafka's defaults
_BATCH_BYTES, _BATCH_RECORDS = 1_000_000, 10_000
_REQUESTS = 1.5
#: The pieces of a request: the next request fills while the last one is under way.
_PIECES = 4


class SendWindow:
    """Limits the records that a producer may have queued, from a task's first large table until `close`.

    A table is large if its keys and values have at least half of the producer's ``batch.size``.

    Args:
        settings: settings of the producer.
        find: called with a topic; returns the numbers of its partitions that have a leader. If `find` raises
            KafkaException, this object assumes that no partition has a leader.
    """

    def __init__(self, settings: Mapping[str, str | bool | int], find: Callable[[str], list[int]]) -> None:
        is_idempotent = str(settings.get("enable.idempotence", False)).lower() == "true"
        self._is_needed = is_idempotent or "transactional.id" in settings
        self._spreads = str(settings.get("partitioner", "")).endswith("random")
        self._batch_bytes = int(settings.get("batch.size", _BATCH_BYTES))
        self._batch_records = int(settings.get("batch.num.messages", _BATCH_RECORDS))
        self._find = find
        #: partitions with a leader, by topic, of topics that received a large table
        self._partitions: dict[str, list[int]] = {}
        self._pieces = 0
        #: largest number of bytes and records that the producer may have queued
        self.bytes = self.records = math.inf

    def split(self, topic: str, table: MessageTable) -> list[MessageTable]:
        """Divide a table into pieces to send, and choose partitions for its rows without keys, in place.

        A table of less than half of ``batch.size`` stays whole, and so does each table of a producer that is
        not idempotent. The first larger table of a topic sets the limits `bytes` and `records`.

        The rows without keys of one piece go to the same partition, and those of the next piece to another
        partition. librdkafka itself would change the partition only every 10 milliseconds
        (``sticky.partitioning.linger.ms``), and so send many requests to the same partition.
        """
        ends = np.cumsum(table["len"] + table["key_len"])
        if not self._is_needed or len(table) == 0 or ends[-1] < self._batch_bytes // 2:
            return [table]
        if topic not in self._partitions:
            self._learn(topic)
        numbers = (np.maximum(ends, 1) - np.uint64(1)) // np.uint64(max(1, self._batch_bytes // _PIECES))
        partitions = self._partitions[topic]
        if self._spreads and partitions:
            free = (table["partition"] == -1) & (table["key"] == 0)
            order = np.array(partitions, np.int32)
            table["partition"][free] = order[(numbers[free] + np.uint64(self._pieces)) % len(partitions)]
        self._pieces += int(numbers[-1]) + 1
        return np.split(table, np.flatnonzero(np.diff(numbers)) + 1)

    def close(self) -> None:
        """Remove the limits after a flush. The next large table sets them, and looks up the partitions again.

        A table is large if its keys and values have at least half of the producer's ``batch.size``.
        """
        self._partitions.clear()
        self.bytes = self.records = math.inf

    def _learn(self, topic: str) -> None:
        try:
            found = self._find(topic)
        except KafkaException:
            found = []  # sending will say why
        random.shuffle(found)  # tasks begin with different ones
        self._partitions[topic] = found
        count = sum(map(len, self._partitions.values()))
        self.bytes = _REQUESTS * self._batch_bytes * count or math.inf
        self.records = _REQUESTS * self._batch_records * count or math.inf
