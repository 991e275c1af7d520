"""Detects a librdkafka producer that keeps the leader epochs of a deleted topic.

A topic that is created again has another id, and its leader epochs begin at 0. librdkafka (2.16 at least)
ignores metadata whose leader epoch is lower than the one it knows, whatever the id (its issue 4898). The
producer then sends to the leader of the deleted topic. It sends nothing if that partition had no leader.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

#: partition, the producer's leader epoch, the highest leader epoch that a broker knows
Kept = tuple[int, int, int]

#: seconds without an outcome of any record until the first look at the brokers' epochs
SILENCE = 8.0
#: seconds between two looks
PAUSE = 3.0


class KeptEpochs:
    """The leader epochs that a producer knows of one topic, beside those of the brokers.

    Args:
        topic: name of the topic.
        ask: returns the brokers' leader epochs by partition; an empty dict if they are unknown now.
        now: returns a monotonic time in seconds.
    """

    def __init__(
        self,
        topic: str,
        ask: Callable[[], Mapping[int, int]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topic = topic
        self._ask = ask
        self._now = now
        self._own: dict[int, int] = {}
        self._due = 0.0
        #: the time of the last outcome when the previous look found old epochs
        self._suspected: float | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The producer's settings that make it tell its leader epochs."""
        return {"statistics.interval.ms": 2000, "stats_cb": self.read}

    def read(self, statistics: str) -> None:
        """Read the leader epochs from librdkafka's statistics, a JSON document."""
        topics = json.loads(statistics)["topics"]
        partitions = topics.get(self._topic, {}).get("partitions", {}).values()
        self._own = {part["partition"]: part["leader_epoch"] for part in partitions}

    def look(self, heard_at: float) -> list[Kept]:
        """Return the partitions of which two looks found an old epoch, without any outcome between them.

        Args:
            heard_at: time of the last outcome of a record.
        """
        now = self._now()
        if now < max(self._due, heard_at + SILENCE):
            return []
        self._due = now + PAUSE
        newest = self._ask()
        if not newest:
            return []
        kept = [
            (partition, epoch, newest[partition])
            for partition, epoch in sorted(self._own.items())
            if epoch > newest.get(partition, epoch)
        ]
        was_suspected = self._suspected == heard_at
        self._suspected = heard_at if kept else None
        return kept if was_suspected else []
