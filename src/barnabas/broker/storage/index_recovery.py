"""Checks the sparse indexes of segments whose batches a start does not read, and rebuilds wrong ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.base.environment.filesystem import Entry
from barnabas.base.types import Offset
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.checkpoints import SegmentSizes
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.segment import LogSegment, TimestampedOffset

logger = logging.getLogger(__name__)


def ensure_indexes(
    files: LogFiles,
    segment: LogSegment,
    entries: dict[str, Entry],
    config: TopicConfig,
    sizes: Mapping[Offset, SegmentSizes],
) -> bool:
    """Check both sparse indexes of a segment, and rebuild them if they are missing or wrong.

    If the segment and its indexes have the sizes that `sizes` has for them, trust the indexes. Then take the
    segment's latest timestamp from `sizes`.

    Args:
        files: files of the log; the next flush covers rebuilt indexes.
        segment: the segment.
        entries: entries of the log's folder, by file name.
        config: settings of the topic.
        sizes: sizes that an earlier stop has stored, by base offset of the segment; can lack this segment.

    Returns:
        Whether the indexes were rebuilt.

    Raises:
        KafkaError: CORRUPT_MESSAGE, an index and its segment are damaged.
        OSError: the disk failed.
    """
    known = sizes.get(segment.base_offset)
    is_whole = _has_whole_indexes(segment, entries)
    if (
        is_whole
        and known is not None
        and known[:3] == (segment.size, segment.offsets.size, segment.times.size)
    ):
        segment.restore_latest(TimestampedOffset(known.latest_timestamp, known.latest_offset))
        return False
    if is_whole and segment.has_true_indexes(are_complete=False):
        return False
    _rebuild_indexes(files, segment, config)
    return True


def _has_whole_indexes(segment: LogSegment, entries: dict[str, Entry]) -> bool:
    """Whether the files of both sparse indexes exist and have only complete entries.

    If the segment is empty, return whether both indexes are empty. `entries` are the entries of the log's
    folder, by file name.
    """
    if not segment.size:  # what they hold was cut off, but not safely: a power cut has brought it back
        return not len(segment.offsets) and not len(segment.times)
    for index in (segment.offsets, segment.times):
        entry = entries.get(index.file.path.rpartition("/")[2])
        if entry is None or entry.is_directory or entry.size % index.ENTRY.size:
            return False
    return True


def _rebuild_indexes(files: LogFiles, segment: LogSegment, config: TopicConfig) -> None:
    logger.warning("%s: its indexes are missing or damaged; they are rebuilt", segment.log.path)
    segment.clear_indexes()
    for position, header in segment.headers(0):
        segment.index_batch(position, header, config.index_interval_bytes)
    segment.seal()
    files.note_indexes(segment)  # the next flush is to cover what was rebuilt
