"""Computes the rates of topics, in records a second, from the end offsets that pages have read."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from barnabas.base.types import TopicPartition

#: the least seconds between the two reads of a rate; the most seconds after which a read still counts
_MIN_S, _MAX_S = 0.5, 300.0


#: seconds between two samples, how many are kept (half an hour), and of how many topics
_SAMPLE_S, _SAMPLES, _SAMPLED = 5.0, 360, 100

#: milliseconds since 1970, and records a second
Sample = tuple[int, float]


class Rates:
    """The rates of partitions, each from two reads of its end offset. Any thread can use this object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[TopicPartition, tuple[float, int]] = {}
        self._rates: dict[TopicPartition, float] = {}
        #: by topic ("" for all): the monotonic times of samples, and the rates. Of the topics shown last
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def note(self, ends: Mapping[TopicPartition, int]) -> None:
        """Update the rates with the present end offsets of partitions."""
        now = time.monotonic()
        with self._lock:
            for partition, end in ends.items():
                before = self._seen.get(partition)
                if before is None or now - before[0] > _MAX_S or end < before[1]:
                    self._seen[partition] = now, end
                    self._rates.pop(partition, None)
                elif now - before[0] >= _MIN_S:
                    self._rates[partition] = (end - before[1]) / (now - before[0])
                    self._seen[partition] = now, end

    def of(self, topic: str) -> float | None:
        """Return the rate of a topic in records a second; None before its end offsets were read twice."""
        with self._lock:
            found = [rate for partition, rate in self._rates.items() if partition.topic == topic]
        return round(sum(found), 1) if found else None

    def total(self) -> float | None:
        """Return the rate of all topics together, in records a second; None before there is a rate."""
        with self._lock:
            return round(sum(self._rates.values()), 1) if self._rates else None

    def history(self, topic: str, now_ms: int) -> list[Sample]:
        """Add the present rate to the samples of a topic. Return its samples of the last half hour.

        The topic "" means all topics. There are samples only for times at which a page was open.
        """
        rate = self.of(topic) if topic else self.total()
        now = time.monotonic()
        with self._lock:
            samples = self._samples.pop(topic, None) or deque(maxlen=_SAMPLES)
            self._samples[topic] = samples
            while len(self._samples) > _SAMPLED:
                del self._samples[next(iter(self._samples))]
            if rate is not None and (not samples or now - samples[-1][0] >= _SAMPLE_S):
                samples.append((now, rate))
            ages = ((now - at, then) for at, then in samples)
            return [(now_ms - round(age * 1000), then) for age, then in ages if age <= _SAMPLES * _SAMPLE_S]

    def by_topic(self) -> dict[str, float]:
        """Return the rate of each topic that has one, in records a second."""
        found: dict[str, float] = {}
        with self._lock:
            for partition, rate in self._rates.items():
                found[partition.topic] = found.get(partition.topic, 0.0) + rate
        return {topic: round(rate, 1) for topic, rate in found.items()}
