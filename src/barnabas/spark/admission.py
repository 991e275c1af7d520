"""Limits of a micro-batch: a minimum and a maximum of records, and an approximate maximum of bytes."""

from __future__ import annotations

import time
from collections.abc import Callable

from barnabas.base.types import TopicPartition
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import Offsets, limit_to

#: The mean size of a record in bytes, for each partition where it is known.
Sizes = dict[TopicPartition, float]


class Admission:
    """Decides where each micro-batch of a query ends, and whether it waits for more records.

    The wait depends on the start time of the last micro-batch, which an instance stores.
    """

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._last: float | None = None

    def waits(self, start: Offsets, available: Offsets) -> bool:
        """Whether the next micro-batch waits for more records, to have ``minOffsetsPerTrigger``.

        The micro-batch would begin at `start`, and `available` are the latest offsets. The first micro-batch
        never waits. Others wait at most ``maxTriggerDelay``, and not at all without ``minOffsetsPerTrigger``.
        If the result is False, the micro-batch counts as started now.
        """
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or sum(max(0, end - start[tp]) for tp, end in available.items()) >= minimum:
            waits = False
        else:
            delay = self._options.max_trigger_delay_s
            waits = self._last is not None and self._clock() - self._last < delay
        if not waits:
            self._last = self._clock()
        return waits

    def end(
        self, start: Offsets, available: Offsets, max_records: int | None, sizes: Callable[[], Sizes]
    ) -> Offsets:
        """Return the end of the micro-batch that begins at `start`.

        The limits are `max_records` and the option maxBytesPerTrigger. The end can exceed them, because each
        partition with a lag advances by at least one record. If no record size is known, maxBytesPerTrigger
        has no effect.

        Args:
            available: the latest offsets.
            max_records: largest number of records; None for no limit.
            sizes: returns the mean record size of each partition. It is called only if the options have
                ``maxBytesPerTrigger``.
        """
        end = available if max_records is None else limit_to(max_records, start, available)
        max_bytes = self._options.max_bytes_per_trigger
        if max_bytes is None or not (known := sizes()):
            return end
        usual = sum(known.values()) / len(known)  # of partitions whose size is not known
        return limit_to(max_bytes, start, end, lambda tp: known.get(tp, usual))
