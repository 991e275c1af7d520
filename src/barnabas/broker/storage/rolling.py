"""Decides when a log seals its active segment and begins a new one."""

from __future__ import annotations

from barnabas.base.environment.clock import Clock
from barnabas.base.types import Offset
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.index import TimeIndex
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET, LogSegment

#: size of the larger entries of both indexes: the time index is full first
TIME_ENTRY_SIZE = TimeIndex.ENTRY.size


def must_roll(
    segment: LogSegment,
    config: TopicConfig,
    clock: Clock,
    size: int,
    last_offset: Offset,
    max_timestamp: int,
) -> bool:
    """Whether a batch needs a new segment, because the active one is too large or too old.

    Args:
        segment: the active segment, with records.
        config: the topic's settings.
        clock: clock for the age of a segment without timestamps.
        size: size of the batch in bytes.
        last_offset: last offset of the batch.
        max_timestamp: largest timestamp in the batch.
    """
    if (
        segment.size + size > config.segment_bytes
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        or segment.times.size + TIME_ENTRY_SIZE > config.segment_index_bytes
    ):
        return True
    first = segment.first_timestamp
    if first >= 0 and max_timestamp >= 0:
        age = max_timestamp - first
    else:
        age = clock.now_ms() - segment.created_ms
    limit = config.segment_ms
    if config.is_compacted:
        limit = min(limit, config.max_compaction_lag_ms)
    return age > limit - segment.roll_jitter_ms
