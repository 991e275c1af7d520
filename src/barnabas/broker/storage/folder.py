"""Prepares a log's folder at a start: completes interrupted operations and opens the segments."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence

from barnabas.base.environment.filesystem import Entry
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.checkpoints import MAX_OFFSET
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.index import Index, OffsetIndex, TimeIndex
from barnabas.broker.storage.log_files import (
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    new_segment,
)
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.swap import complete_swaps

logger = logging.getLogger(__name__)

_OF_SEGMENTS = frozenset((LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT))


def find_deleted_segments(env: LogEnvironment, path: str, listed: Sequence[Entry]) -> dict[Offset, Offset]:
    """Return the end offset, by base offset, of each segment whose deletion a crash has interrupted.

    If a segment cannot be read, its end offset is its base offset.

    Args:
        env: environment of the log directory.
        path: folder of the log.
        listed: all entries of that folder.
    """
    sizes = {entry.name: entry.size for entry in listed}
    ends: dict[Offset, Offset] = {}
    for stem in sorted(name.partition(".")[0] for name in sizes if name.endswith(LOG + DELETED)):
        if not _is_offset(stem):
            continue
        segment = LogSegment(
            env.files,
            path,
            int(stem),
            now_ms=env.clock.now_ms(),
            size=sizes[stem + LOG + DELETED],
            offset_entries=sizes.get(stem + INDEX + DELETED, 0) // OffsetIndex.ENTRY.size,
            suffix=DELETED,
        )
        end = segment.base_offset
        with contextlib.suppress(KafkaError, OSError):  # an unreadable segment counts as empty
            end = segment.next_offset()
        ends[segment.base_offset] = end
        segment.close()
    return ends


def removed_up_to(
    deleted: Mapping[Offset, Offset], start: Offset, first: Offset, *, has_holes: bool
) -> Offset:
    """Return the offset up to which all records from `start` on were in deleted segments.

    For example, deleted segments with the offsets 0 to 9 and 10 to 19 give 20, if `start` is 5.

    - If the record at `start` was in no deleted segment, the result is `start`.
    - With `has_holes`, deleted segments need not be adjacent. The result is `first` if one of them begins at
      or before `start`; otherwise `start`.

    Args:
        deleted: end offset of each deleted segment, by base offset, in ascending order.
        start: offset at which to begin.
        first: base offset of the first remaining segment.
        has_holes: whether compaction may have left holes between segments.
    """
    if has_holes:  # offsets between two segments say nothing
        return first if any(base_offset <= start for base_offset in deleted) else start
    for base_offset, end in deleted.items():
        if base_offset <= start:
            start = max(start, end)
    return start


def clear_folder(env: LogEnvironment, path: str, listed: Sequence[Entry]) -> dict[str, Entry]:
    """Finish interrupted swaps and deletions in the folder of a log. Return the remaining entries by name.

    Also remove temporary files, and indexes without a segment. The result lacks segment files with a wrong
    name, which stay in the folder. `listed` has all entries of the folder `path`.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, a segment of an interrupted swap is damaged.
    """
    if complete_swaps(env, path, listed):
        listed = env.fs.entries(path)
    entries = {entry.name: entry for entry in listed if _is_known(path, entry.name)}
    indexes = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
    for name in list(entries):
        is_orphan = name.endswith(indexes) and name.partition(".")[0] + LOG not in entries
        if is_orphan or name.endswith((DELETED, ".tmp")):
            env.fs.remove(f"{path}/{name}")
            del entries[name]
    return entries


def _is_known(folder: str, name: str) -> bool:
    """Whether the name of a file in a log's folder is correct. If it is not, log a warning.

    The name of a segment's file or of a snapshot is correct if it begins with an offset in 20 digits. The
    names of all other files are correct.
    """
    stem, dot, kind = name.partition(".")
    if dot + kind not in _OF_SEGMENTS:
        return True
    if _is_offset(stem):
        return True
    logger.warning("ignored %s/%s: its name is not an offset", folder, name)
    return False


def _is_offset(stem: str) -> bool:
    return len(stem) == 20 and stem.isdecimal() and int(stem) <= MAX_OFFSET


def open_segments(
    env: LogEnvironment, path: str, entries: dict[str, Entry], config: TopicConfig, log_start_offset: Offset
) -> Segments:
    """Return the log's segments. If the folder has none, create an empty one at `log_start_offset`.

    `entries` are the entries of the folder `path`, by file name, as `clear_folder` returns them.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, a folder has the name of a segment file.
        OSError: the disk failed.
    """

    def count(name: str, index: type[Index]) -> int:
        return entries[name].size // index.ENTRY.size if name in entries else 0

    segments = []
    for stem in sorted(name[: -len(LOG)] for name in entries if name.endswith(LOG)):
        entry = entries[stem + LOG]
        if entry.is_directory:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path}/{entry.name} is a folder, not a segment")
        segments.append(
            LogSegment(
                env.files,
                path,
                int(stem),
                now_ms=env.clock.now_ms(),
                size=entry.size,
                modified_ms=entry.modified_ms,
                offset_entries=count(stem + INDEX, OffsetIndex),
                time_entries=count(stem + TIME_INDEX, TimeIndex),
                aborted_bytes=entries[stem + TRANSACTION_INDEX].size
                if stem + TRANSACTION_INDEX in entries
                else 0,
            )
        )
    return Segments(segments or [new_segment(env, path, log_start_offset, config)])
