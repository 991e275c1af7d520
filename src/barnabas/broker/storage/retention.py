"""Deletes a log's oldest segments: by age, by the log's size, or because they end before its start offset."""

from __future__ import annotations

import logging

from barnabas.broker.storage.harm import Harm, harm_of
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.tasks import Removal

logger = logging.getLogger(__name__)


def prepare_deletion(log: PartitionLog, now_ms: int) -> LogSegment | None:
    """Prepare a call of `delete_old_segments`: seal the active segment if it has expired.

    Return the segment that is active now if the log's folder needs an fsync. The caller can fsync the folder
    in a thread, and then pass this segment to `delete_old_segments` as `synced`.

    Return None if there is nothing to delete, or if all file names are durable already.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the log is offline, or its active segment cannot be sealed.
    """
    if not _prepare_expired(log, now_ms) or not log.files.has_new_names:
        return None
    return log.files.segments.active


def delete_old_segments(log: PartitionLog, now_ms: int, synced: LogSegment | None = None) -> Removal | None:
    """Remove the segments that have expired or are before the log's start.

    Their files are renamed to ``.deleted``. Return the task that removes these files: run it after
    ``file.delete.delay.ms``. Return None if no segment is removed.

    Args:
        log: log to delete from.
        now_ms: present time, in milliseconds.
        synced: the result of `prepare_deletion`, if the caller has fsynced the folder since then. If it is
            None, or the log has another active segment now, this call fsyncs the folder where necessary.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, not all of the segments could be removed. Some of the oldest ones may
            be removed.
    """
    count = _prepare_expired(log, now_ms)
    if not count:
        return None
    oldest = log.files.segments[0].base_offset
    try:
        with log.guarded() as files:
            return files.remove_first_segments(count, synced)
    finally:
        start = log.files.segments[0].base_offset
        if start > oldest:
            logger.info("%s: dropping offsets %d to %d", log.topic_partition, oldest, start - 1)
        if start > log.log_start_offset:
            log.note_start(start)


def _prepare_expired(log: PartitionLog, now_ms: int) -> int:
    """Return the number of expired segments, not counting the active one.

    If the active segment has expired, seal it first, so that it counts. While a swap of the cleaner is in
    progress, return 0.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the log is offline, or its active segment cannot be sealed.
    """
    with log.guarded() as files:
        if files.swap is not None:
            return 0  # the next check removes them, after the cleaner has completed the swap
        count = _count_expired(log, now_ms)  # reads the age of a segment from its index
    if count and count == len(files.segments):
        try:
            log.roll()
        except OSError as error:
            failed = log.failed(error)
            if count == 1 or harm_of(error) is not Harm.REQUEST:
                raise failed from error
            count -= 1  # on a full disk the others are worth the more
    return count


def _count_expired(log: PartitionLog, now_ms: int) -> int:
    """Return the number of expired segments, from the oldest.

    Only segments wholly below the high watermark expire. An empty active segment stays. If an active segment
    with records is among the expired ones, the log must roll first.
    """
    segments, config = log.files.segments, log.config
    by_age_and_size = "delete" in config.cleanup_policy
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for index, segment in enumerate(segments):
        is_active = segment is segments.active
        end = log.log_end_offset if is_active else segments[index + 1].base_offset
        if end > log.high_watermark or (is_active and not segment.size):
            break
        excess -= segment.size
        too_old = 0 <= config.retention_ms < now_ms - segment.largest_timestamp
        too_much = config.retention_bytes >= 0 and excess >= 0
        before_start = end <= log.log_start_offset and not is_active
        if not (before_start or (by_age_and_size and (too_old or too_much))):
            break
        count += 1
    return count
