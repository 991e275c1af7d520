"""Selection of a log's expired segments, the oldest first."""

from __future__ import annotations

from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.segments import Segments


def expired_segments(
    segments: Segments,
    config: TopicConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> int:
    """Return the number of expired segments, from the oldest: by age, by the log's size, or before its start.

    Only segments wholly below the high watermark expire. An active segment that is empty stays. If one with
    records is among them, the log must roll first.
    """
    by_age_and_size = "delete" in config.cleanup_policy
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for place, segment in enumerate(segments):
        is_active = segment is segments.active
        end = log_end_offset if is_active else segments[place + 1].base_offset
        if end > high_watermark or (is_active and not segment.size):
            break
        excess -= segment.size
        too_old = 0 <= config.retention_ms < now_ms - segment.largest_timestamp
        too_much = config.retention_bytes >= 0 and excess >= 0
        before_start = end <= log_start_offset and not is_active
        if not (before_start or (by_age_and_size and (too_old or too_much))):
            break
        count += 1
    return count
