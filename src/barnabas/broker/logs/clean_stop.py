"""Stores at a clean stop of a log directory what spares the next start work, and reads it at that start.

    .kafka_cleanshutdown        exists if the stop was clean; has the broker's epoch
    barnabas-segment-sizes      the sizes of all segments
    barnabas-logs-elsewhere     the logs with files in the broker's other directories

A start removes the marker `.kafka_cleanshutdown` before it reads the others: they describe the directory only
until the broker changes it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.types import Offset, TopicPartition
from barnabas.broker.logs.missing_directories import LogName
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.checkpoints import NO_BROKER_EPOCH, CleanShutdown, SegmentSizes
from barnabas.broker.storage.damage import keep_damaged, read_small_file
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.tasks import Replacement
from barnabas.kafka.records.crc import crc32c

logger = logging.getLogger(__name__)


class LastStop(NamedTuple):
    """The data that the last stop of a log directory has stored. After a crash, it does not count."""

    was_clean: bool
    #: the broker's epoch; NO_BROKER_EPOCH if it had none
    broker_epoch: int = NO_BROKER_EPOCH
    #: the logs with files in the broker's other directories; None if not known
    logs_elsewhere: frozenset[LogName] | None = None
    #: the sizes of each log's segments; None if not known
    sizes: Mapping[TopicPartition, Mapping[Offset, SegmentSizes]] | None = None


def take_last_stop(fs: FileSystem, path: str) -> LastStop:
    """Return what the last stop of the directory `path` has stored, and remove its marker durably.

    Raises:
        OSError: the disk failed.
    """
    content = _take_marker(fs, path)
    if content is None:
        return LastStop(was_clean=False)
    marker = checkpoints.decode_clean_shutdown(content)
    return LastStop(True, marker.broker_epoch, _read_logs_elsewhere(fs, path, marker), _read_sizes(fs, path))


def store_sizes(fs: FileSystem, path: str, logs: Mapping[TopicPartition, PartitionLog]) -> None:
    """Store the sizes of the segments of `logs`.

    Raises:
        OSError: the disk failed.
    """
    sizes = (
        (tp, segment.base_offset, _sizes_of(segment))
        for tp, log in logs.items()
        if not log.files.is_blank
        for segment in log.files.segments
    )
    Replacement(fs, f"{path}/{checkpoints.SEGMENT_SIZES}", checkpoints.encode_sizes(sizes)).run()


def store_logs_elsewhere(fs: FileSystem, path: str, logs: Collection[LogName]) -> int:
    """Store the logs with files in the broker's other directories. Return the file's checksum for the marker.

    Raises:
        OSError: the disk failed.
    """
    content = checkpoints.encode_logs(logs)
    Replacement(fs, f"{path}/{checkpoints.LOGS_ELSEWHERE}", content).run()
    return crc32c(content)


def mark_as_clean(fs: FileSystem, path: str, broker_epoch: int, logs_elsewhere: int | None) -> None:
    """Mark the stop of the directory `path` as clean. All other files must be on disk.

    Args:
        fs: file system of the directory.
        path: path of the directory.
        broker_epoch: the broker's epoch, or NO_BROKER_EPOCH.
        logs_elsewhere: result of `store_logs_elsewhere`; None if the stop has not called it.

    Raises:
        OSError: the disk failed.
    """
    content = checkpoints.encode_clean_shutdown(CleanShutdown(broker_epoch, logs_elsewhere))
    Replacement(fs, f"{path}/{checkpoints.CLEAN_SHUTDOWN}", content).run()


def _take_marker(fs: FileSystem, path: str) -> bytes | None:
    """Remove the marker of a clean stop durably. Return its content; None if there was none.

    The content of a marker that cannot be read counts as empty.
    """
    name = f"{path}/{checkpoints.CLEAN_SHUTDOWN}"
    try:
        content = read_small_file(fs, name)
    except FileNotFoundError:
        return None
    except ValueError:  # it is there, which is what counts
        content = b""
    fs.remove(name)
    fs.sync_directory(path)
    return content


def _read_logs_elsewhere(fs: FileSystem, path: str, marker: CleanShutdown) -> frozenset[LogName] | None:
    """Return the logs in `barnabas-logs-elsewhere`; None if `marker` is not of the stop that wrote it."""
    if marker.logs_elsewhere is None:
        return None
    try:
        content = read_small_file(fs, f"{path}/{checkpoints.LOGS_ELSEWHERE}")
        return checkpoints.decode_logs(content) if crc32c(content) == marker.logs_elsewhere else None
    except (FileNotFoundError, ValueError):
        return None


def _read_sizes(fs: FileSystem, path: str) -> dict[TopicPartition, dict[Offset, SegmentSizes]] | None:
    file = f"{path}/{checkpoints.SEGMENT_SIZES}"
    try:
        sizes = checkpoints.decode_sizes(read_small_file(fs, file))
    except FileNotFoundError:
        return None
    except ValueError:
        sizes = None
    if sizes is None:
        logger.warning("%s is damaged: reading the ends of segments instead", file)
        keep_damaged(fs, file)
    return sizes


def _sizes_of(segment: LogSegment) -> SegmentSizes:
    return SegmentSizes(segment.size, segment.offsets.size, segment.times.size, *segment.latest)
