"""Recovers a log after a crash: reads every segment that may have records beyond the recovery point.

It skips segments that a flush has listed as sealed (`barnabas.broker.storage.sealed`). It checks each
batch's CRC and position, rebuilds the indexes, cuts off everything after the first damage, and logs this. If
the bytes that are cut off have whole batches, a file beside the segment keeps them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from barnabas.base.errors import KafkaError
from barnabas.base.types import NO_PRODUCER_ID, Offset, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage import producer_recovery
from barnabas.broker.storage.damage import keep_cut_off, keep_segment, lost_records
from barnabas.broker.storage.epochs import LeaderEpochs
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.sealed import SealedSegment, is_listed
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.kafka.records.batch import HEADER_SIZE, BatchHeader, check_crc, parse_header

logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024


def find_first_suspect(
    segments: Segments, recovery_point: Offset, sealed: Mapping[Offset, SealedSegment]
) -> int:
    """Return the index in `segments` of the first segment that recovery must read.

    This is the segment with the last record before `recovery_point`, or the next one if `sealed` lists that
    segment with its present sizes (`is_listed`).

    An unlisted segment is read even if all of its records are before the recovery point. A flush does not
    fsync the index files of the active segment, so these files may be missing.
    """
    index = segments.index_of(max(recovery_point - 1, 0))
    return index + 1 if is_listed(segments, index, sealed) else index


def recover(
    files: LogFiles,
    first: int,
    recovery_point: Offset,
    holes_to: Offset,
    epochs: LeaderEpochs,
    config: TopicConfig,
    topic_partition: TopicPartition,
) -> Producers:
    """Recover a log's last segments. Return the state of the producers at the log's new end.

    Read all batches of the segments from number `first` on. Rebuild the index files of these segments, and
    cut the log off at the first damage.

    Args:
        files: files of the log, with all of its segments.
        first: number of the first segment to read, from `find_first_suspect`. The oldest segment has 0.
        recovery_point: offset before which all records were durable.
        holes_to: a gap between the end of a segment and the start of the next is allowed if it ends at or
            below this offset (compaction makes such gaps). Any other gap counts as damage.
        epochs: leader epochs from the checkpoint; this function corrects them.
        config: settings of the topic.
        topic_partition: partition of the log.

    Raises:
        KafkaError: CORRUPT_MESSAGE, records before `recovery_point` are damaged or gone.
        OSError: the disk failed.
    """
    segments = files.segments
    start = segments[first].base_offset
    producers = producer_recovery.load_producers(files, start)
    # The file of epochs may be older than a truncation; the batches tell what is not known to be on disk.
    # It may also lack the epochs of removed records that were never flushed: then no batch tells, and the
    # latest epoch of the file would be taken for that of the log.
    is_complete = segments[0].base_offset <= recovery_point
    begins_there = [each for each in epochs.entries if is_complete and each.start_offset == recovery_point]
    epochs.truncate_from_end(recovery_point if is_complete else 0)
    end = start
    index = first
    while index < len(segments):
        segment = segments[index]
        # Compaction drops records before the recovery point only: it cleans flushed segments only.
        has_hole = index > first and max(end, holes_to) < segment.base_offset
        if has_hole or end > segment.base_offset:
            logger.warning(
                "%s: the log ends at %d and its next segment begins at %d: the rest is dropped",
                topic_partition,
                end,
                segment.base_offset,
            )
            break
        size = segment.size
        end = _recover_segment(
            segment, max(end, segment.base_offset), recovery_point, epochs, producers, config
        )
        index += 1
        if segment.size < size:
            if end < recovery_point:
                raise lost_records(topic_partition, end, recovery_point, f"{segment.log.path} is damaged")
            kept = keep_cut_off(files, segment, size, end)
            segment.log.truncate(segment.size)
            logger.warning(
                "%s: %d bytes after offset %d are damaged and cut off%s",
                topic_partition,
                size - segment.size,
                end - 1,
                kept,
            )
            break
    if end < recovery_point:
        raise lost_records(topic_partition, end, recovery_point, "the log ends before")
    if end == recovery_point:  # no batch tells the last epoch of an empty log
        for epoch, offset in begins_there:
            if epoch > epochs.latest:
                epochs.assign(epoch, offset)
    for segment in segments.from_index(index):
        keep_segment(files, segment)
    files.drop_segments_from(index)
    files.drop_snapshots_after(end)
    files.seal_again(first)
    producers.end_offset = end
    return producers


def _recover_segment(
    segment: LogSegment,
    start: Offset,
    recovery_point: Offset,
    epochs: LeaderEpochs,
    producers: Producers,
    config: TopicConfig,
) -> Offset:
    """Check and index every batch of a segment, and cut it off at the first damage. Return its end offset.

    Update `epochs` and `producers` with the batches. The first batch must not begin before the offset
    `start`. From `recovery_point` on, also cut the segment off before a batch with a lower leader epoch than
    an earlier batch. Before the crash, a truncation removed this batch, but the removal was not durable.
    """
    size = segment.size
    segment.clear_indexes()
    segment.aborted.reset()
    segment.size = 0
    end = start
    for position, header, data in _sound_batches(segment, size, start):
        if header.base_offset >= recovery_point and 0 <= header.leader_epoch < epochs.latest:
            break
        segment.index_batch(position, header, config.index_interval_bytes)
        segment.size = position + header.size
        end = header.next_offset
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id != NO_PRODUCER_ID:
            aborted = producer_recovery.note_producer(producers, header, data, header.base_offset)
            if aborted is not None:
                segment.aborted.append(aborted)
    return end


def _sound_batches(
    segment: LogSegment, size: int, start: Offset
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield position, header and bytes of each batch in the first `size` bytes of a segment's file.

    Stop before the first batch that is damaged or incomplete. Also stop before a batch whose base offset is
    below the end offset of the previous batch, or below `start` for the first batch. Also stop at an offset
    that is too large for the segment's indexes.
    """
    log: LogFile = segment.log
    block = b""
    block_at = 0
    position = 0
    expected = start
    limit = segment.base_offset + MAX_RELATIVE_OFFSET
    while position + HEADER_SIZE <= size:
        at = position - block_at
        if at + HEADER_SIZE > len(block):
            block, block_at, at = log.read_at(_READ_BYTES, position), position, 0
        try:
            header = parse_header(block, at)
            if header.size < HEADER_SIZE or position + header.size > size:
                return
            if at + header.size > len(block):
                block, block_at, at = log.read_at(max(_READ_BYTES, header.size), position), position, 0
            check_crc(header, block, at)
        except KafkaError:
            return
        if header.base_offset < expected or not header.base_offset <= header.last_offset <= limit:
            return
        yield position, header, memoryview(block)[at : at + header.size]
        expected = header.next_offset
        position += header.size
