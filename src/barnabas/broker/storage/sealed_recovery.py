"""Reads the list of a log's sealed segments at a start, and adds the segments that the start has checked."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.base.environment.filesystem import Entry
from barnabas.base.types import Offset
from barnabas.broker.storage.damage import keep_damaged, read_small_file
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.sealed import FILE_NAME, SealedSegment, SealedSegments, decode, is_listed
from barnabas.broker.storage.segments import Segments

logger = logging.getLogger(__name__)


def read_sealed(
    env: LogEnvironment, path: str, entries: dict[str, Entry], *, is_needed: bool
) -> dict[Offset, SealedSegment]:
    """Return the entries of a log's list of sealed segments, by base offset of the segment.

    The result is empty in these cases:

    - `is_needed` is false, or the folder has no such list.
    - The list is damaged or cannot be read. It is then renamed, and removed from the argument `entries`.

    Args:
        env: environment of the log directory.
        path: folder of the log.
        entries: files in this folder, by name.
        is_needed: whether the caller needs the list, as after a crash.

    Raises:
        OSError: the disk failed.
    """
    file = f"{path}/{FILE_NAME}"
    if FILE_NAME not in entries or not (is_needed or entries[FILE_NAME].is_directory):
        return {}
    try:
        return decode(read_small_file(env.fs, file))
    except ValueError as error:
        logger.warning("%s: %s: checking only the ends of sealed segments", file, error)
        keep_damaged(env.fs, file)
        del entries[FILE_NAME]
        return {}


def flushed_to(segments: Segments, recovery_point: Offset, sealed: Mapping[Offset, SealedSegment]) -> Offset:
    """Return the recovery point, moved forward over the segments that are listed in `sealed`.

    Begin with the segment of the last record before `recovery_point`. As long as a segment is listed
    (`is_listed`), move the recovery point to the segment's end, and go to the next segment.
    """
    index = segments.index_of(max(recovery_point - 1, 0))
    while is_listed(segments, index, sealed):
        index += 1
        recovery_point = max(recovery_point, segments[index].base_offset)
    return recovery_point


def list_checked(files: LogFiles, count: int, sealed: Mapping[Offset, SealedSegment]) -> None:
    """Make the list of sealed segments contain exactly the first `count` segments, checked by the start.

    Raises:
        OSError: the disk failed.
    """
    segments = files.segments
    if files.sealed is not None:
        files.sealed.cut(segments[count].base_offset)
        files.sealed.sync()
    if not all(is_listed(segments, index, sealed) for index in range(count)):
        files.sealed = files.sealed or SealedSegments(files.env.files, files.path)
        files.sealed.write(segments, range(count))
