"""Computes the part of a log that a cleaning would process, and the share of dirty bytes in it.

A log has a clean head, up to an offset in the cleaner's checkpoint, and a dirty tail. From the tail a
cleaning uses whole sealed segments that are stable (below the last stable offset), durable and old enough.
The markers of their transactions must be durable, too (`PartitionLog.stable_point`). Otherwise a power cut
could remove the marker of a committed record, after a cleaning has removed the value that it replaces.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from barnabas.base.types import Offset
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.segment import LogSegment

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dirtiness:
    """The range of offsets that a cleaning of a log would process now, and its size."""

    #: where the dirty tail begins
    first_dirty: Offset
    #: where the first segment begins that must not be cleaned
    end: Offset
    #: size of the segments before the dirty tail, which the cleaning also reads
    clean_bytes: int
    #: size of the segments of the dirty tail before `end`
    dirty_bytes: int
    #: the tail has waited for longer than `max.compaction.lag.ms`
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """The fraction of dirty bytes in the bytes that a cleaning would read; 0 if there are none."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, min_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > min_ratio)


def first_dirty_offset(log: PartitionLog, cleaned_to: Offset | None) -> Offset:
    """Return the first offset of a log's dirty tail.

    `cleaned_to` is the log's offset in the cleaner's checkpoint. If it is None, the whole log is dirty. The
    whole log also counts as dirty, with a warning, if `cleaned_to` is after the log's end.
    """
    start = log.log_start_offset
    if cleaned_to is None:
        return start
    if cleaned_to > log.log_end_offset:
        logger.warning(
            "%s: it ends at %d and is said to be clean up to %d: cleaning all of it",
            log.topic_partition,
            log.log_end_offset,
            cleaned_to,
        )
        return start
    return max(cleaned_to, start)


def roll_overdue(log: PartitionLog, now_ms: int) -> bool:
    """Seal the active segment if its first record is older than `max.compaction.lag.ms`.

    Return whether it was sealed. Only sealed segments can be cleaned.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
    """
    with log.guarded() as files:
        first = files.segments.active.first_timestamp
        if not 0 < first < now_ms - log.config.max_compaction_lag_ms:
            return False
        log.roll()
    return True


def dirtiness(log: PartitionLog, cleaned_to: Offset | None, now_ms: int) -> Dirtiness:
    """Return the range that a cleaning of `log` would process now.

    `cleaned_to` is the log's offset in the cleaner's checkpoint, or None.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, the first batch of a segment is damaged.
    """
    config = log.config
    segments = log.files.segments
    first_dirty = first_dirty_offset(log, cleaned_to)
    bound = min(log.last_stable_offset, log.stable_point, log.recovery_point, segments.active.base_offset)
    last = segments.index_of(bound)  # its segment, and all after it, are left alone
    first = min(segments.index_of(first_dirty), last)
    tail = [segments[index] for index in range(first, last)]
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        for number, segment in enumerate(tail):
            if segment.largest_timestamp > youngest:
                del tail[number:]
                break
    return Dirtiness(
        first_dirty,
        segments[first + len(tail)].base_offset,
        sum(segments[index].size for index in range(first)),
        sum(segment.size for segment in tail),
        _is_overdue(tail, now_ms - config.max_compaction_lag_ms),
    )


def _is_overdue(tail: list[LogSegment], oldest: int) -> bool:
    return oldest > 0 and any(0 < _first_timestamp(segment) < oldest for segment in tail)


def _first_timestamp(segment: LogSegment) -> int:
    if segment.first_timestamp < 0:
        segment.find_first_timestamp()
    return segment.first_timestamp
