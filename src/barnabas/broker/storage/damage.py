"""Errors for a damaged log, and copies of the damaged bytes."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.base.environment.filesystem import FileSystem, read_file
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset, TopicPartition
from barnabas.broker.storage.checkpoints import SegmentSizes
from barnabas.broker.storage.harm import is_about_one_file
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.salvage import whole_batches
from barnabas.broker.storage.sealed import SealedSegment, is_listed
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments

logger = logging.getLogger(__name__)

#: suffix of damaged files that are kept for an operator
DAMAGED = ".damaged"
#: most bytes of a removed suffix that are searched for whole batches
_SEARCHED_BYTES = 64 * 1024 * 1024
_BLOCK = 1024 * 1024


def lost_records(topic_partition: TopicPartition, end: Offset, safe_end: Offset, reason: str) -> KafkaError:
    """Return the error for offsets `end` to `safe_end` - 1, which were durable and cannot be read now."""
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"records from offset {end} on are damaged or missing, although the records up to {safe_end - 1} "
        f"were on disk ({reason}): stop the broker and run `barnabas log check`, which says how "
        f"{topic_partition} can be served again",
    )


def read_small_file(fs: FileSystem, path: str) -> bytes:
    """Return the content of a small file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: this one file cannot be read, for example because of its permissions.
        OSError: the disk failed.
    """
    try:
        return read_file(fs, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        if is_about_one_file(error):
            raise ValueError(f"it cannot be read ({error.strerror})") from error
        raise


def keep_damaged(fs: FileSystem, path: str) -> None:
    """Rename a damaged file with the suffix ``.damaged``, so that a new file can replace it.

    If the file cannot be renamed, log a warning, and raise nothing.
    """
    try:
        fs.rename(path, path + DAMAGED)
    except OSError as error:
        logger.warning("%s cannot be moved aside: %s", path, error)


def keep_cut_off(files: LogFiles, segment: LogSegment, size: int, end: Offset) -> str:
    """Copy the damaged end of a segment's file to a ``.damaged`` file, if it has whole batches.

    The caller then cuts these bytes off. Return a text about the copy, to append to a log message; "" without
    a copy.

    Args:
        files: files of the log.
        segment: the segment. `segment.size` is the size of its undamaged part, in bytes.
        size: size of the segment's file in bytes.
        end: offset after the undamaged part. Batches that begin before `end` do not count.

    Raises:
        OSError: the disk failed.
    """
    data = segment.log.read_at(min(size - segment.size, _SEARCHED_BYTES), segment.size)
    found = [header for _, header in whole_batches(data, segment.base_offset, end)]
    if not found:
        return ""
    path = f"{segment.log.path}.{segment.size}{DAMAGED}"
    _copy(files, segment, segment.size, size, path)
    first, last = found[0].base_offset, found[-1].last_offset
    return f"; whole batches of offsets {first} to {last} among them are kept in {path}"


def keep_segment(files: LogFiles, segment: LogSegment) -> None:
    """Copy a segment to a ``.damaged`` file before its removal, unless it is empty. Log a warning."""
    if segment.size:
        path = segment.log.path + DAMAGED
        _copy(files, segment, 0, segment.size, path)
        logger.warning("%s is beyond the end of the log and is kept as %s", segment.log.path, path)


def _copy(files: LogFiles, segment: LogSegment, start: int, end: int, path: str) -> None:
    kept = files.env.fs.open(path, create=True)
    try:
        for position in range(start, end, _BLOCK):
            kept.write_at([segment.log.read_at(min(_BLOCK, end - position), position)], position - start)
        kept.truncate(end - start)
    finally:
        kept.close()


def check_sealed(
    topic_partition: TopicPartition,
    segments: Segments,
    count: int,
    sizes: Mapping[Offset, SegmentSizes] | None,
    sealed: Mapping[Offset, SealedSegment],
    *,
    has_holes: bool,
) -> None:
    """Check that the first `count` segments, which recovery does not read, exist and end correctly.

    Args:
        topic_partition: name of the log.
        segments: all segments.
        count: number of segments to check.
        sizes: sizes of the segments at a clean stop; None if they are not known.
        sealed: segments that a flush has covered, by base offset.
        has_holes: whether compaction may have left holes between segments.

    Raises:
        KafkaError: CORRUPT_MESSAGE, records are missing.
        OSError: the disk failed.
    """
    first = segments[0].base_offset
    for base_offset in sorted(sizes or ()):
        if segments[segments.index_of(base_offset)].base_offset != base_offset:
            missing = f"the segment that begins at {base_offset} is missing"
            raise lost_records(topic_partition, base_offset, max(first, base_offset + 1), missing)
    for index in range(count):
        segment, follower = segments[index], segments[index + 1].base_offset
        known = sizes.get(segment.base_offset) if sizes is not None else None
        if (known is not None and known.size == segment.size) or is_listed(segments, index, sealed):
            continue
        try:
            end = segment.next_offset()
        except KafkaError as error:
            raise lost_records(topic_partition, segment.base_offset, follower, error.message) from error
        was_larger = known is not None and known.size > segment.size
        if end > follower or (end < follower and not has_holes) or was_larger:
            reason = f"{segment.log.path} ends at offset {end}, the next segment begins at {follower}"
            raise lost_records(topic_partition, min(end, follower - 1), follower, reason)
