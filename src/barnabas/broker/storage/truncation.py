"""Removes the end of a log, as a follower does to match its leader.

The result of a truncation is computed before the log changes. The computation must read up to a whole segment
of batches. It searches for the start of the first batch to remove, the largest timestamp of the rest, and the
producers as of the new end. It checks the index of aborted transactions, and rebuilds a damaged one. So the
computation runs in a thread, with its own file handles, while the log is in use. If remaining batches are
damaged, the log is not truncated at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.base.types import Offset
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.harm import Harm, TornError, harm_of
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.open_files import OpenFiles
from barnabas.broker.storage.producer_recovery import find_aborted, load_producers
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.segment import Cut, LogSegment
from barnabas.broker.storage.segments import Segments

logger = logging.getLogger(__name__)


class Remainder(NamedTuple):
    """The state of a log after a truncation."""

    #: the cut in the segment that becomes the active one
    cut: Cut
    producers: Producers


class Truncation:
    """Computes the result of a truncation. The owner of the log creates it, and any thread can call `run`.

    The log does not change. `truncate_to` changes it, if the result still `fits` the log.

    Args:
        files: files of the log.
        offset: first offset to remove. It is not before the log's first segment.
    """

    def __init__(self, files: LogFiles, offset: Offset) -> None:
        self.offset = offset
        self.truncation_epoch = files.truncation_epoch
        #: the error because of which the log cannot be truncated, after `run`
        self.error: OSError | KafkaError | None = None
        self._remainder: Remainder | None = None
        self._files = files
        self._segments = tuple(files.segments)
        self._active_size = files.segments.active.size
        own_files = OpenFiles(files.env.fs, capacity=8)
        kept = files.segments.index_of(offset) + 1
        self._copies = [segment.copy(own_files) for segment in self._segments[:kept]]
        self._view = _View(files, self._copies)

    def run(self) -> None:
        """Compute the result. An error is not raised here: `remainder` raises it."""
        try:
            cut = self._cut_off(self._copies[-1])
            self._remainder = Remainder(cut, load_producers(self._view, cut.end))
        except (OSError, KafkaError) as error:
            self.error = error
        finally:
            for segment in self._copies:
                segment.close()

    def _cut_off(self, segment: LogSegment) -> Cut:
        cut = segment.cut_off(self.offset)
        if cut.aborted is not None:
            return cut
        aborted = find_aborted(self._view, segment)
        logger.warning(
            "%s is damaged: it is rebuilt from its segment, with %d aborted transactions",
            segment.aborted.file.path,
            len(aborted),
        )
        return cut._replace(aborted_anew=aborted)

    def fits(self, files: LogFiles) -> bool:
        """Whether the log's segments are still the same as when this object was created."""
        return (
            files is self._files
            and files.truncation_epoch == self.truncation_epoch
            and files.segments.active.size == self._active_size
            and len(files.segments) == len(self._segments)
            and all(now is then for now, then in zip(files.segments, self._segments, strict=True))
        )

    @property
    def remainder(self) -> Remainder:
        """The state of the log after the truncation. `run` must have ended.

        Raises:
            OSError: the disk failed.
            KafkaError: CORRUPT_MESSAGE, the remaining part is damaged.
        """
        if self.error is not None:
            raise self.error
        assert self._remainder is not None, "the truncation has not run"
        return self._remainder

    def drop_damaged_snapshots(self) -> None:
        """Remove the producer snapshots that were found damaged. Raises OSError."""
        for offset in self._view.damaged:
            self._files.drop_snapshot(offset)


class _View:
    """The files of a log, as `load_producers` uses them, with copies of the segments.

    The log's own files do not change. `damaged` collects the offsets of the producer snapshots that
    `load_producers` wants to remove.
    """

    def __init__(self, files: LogFiles, copies: list[LogSegment]) -> None:
        self.env: LogEnvironment = files.env
        self.segments = Segments(copies)
        self.snapshots: Sequence[Offset] = files.snapshots
        self.damaged: list[Offset] = []
        self._path = files.path

    def snapshot_path(self, offset: Offset) -> str:
        return LogFiles.path_of_snapshot(self._path, offset)

    def drop_snapshot(self, offset: Offset) -> None:
        self.damaged.append(offset)


def begin_truncation(log: PartitionLog, offset: Offset) -> Truncation | None:
    """Return a task that computes the result of a truncation in any thread, for `prepare_truncation`.

    Return None if no result is needed, because the truncation removes nothing or everything.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
    """
    log.check_usable()
    if not log.files.segments[0].base_offset <= offset < log.log_end_offset:
        return None
    return Truncation(log.files, offset)


def prepare_truncation(
    log: PartitionLog, offset: Offset, truncation: Truncation | None = None
) -> tuple[Offset, bool]:
    """Prepare `truncate_to`: make the recovery point no higher than the log's end after the truncation.

    Return the log's end after the truncation, and True if this call has lowered the recovery point. The
    caller must then store the recovery point durably before it calls `truncate_to`. If not, a start after a
    crash would treat records that are appended after the truncation as flushed.

    Args:
        log: log to truncate.
        offset: first offset to remove.
        truncation: task from `begin_truncation` that has run. Without a task, or if the log has changed since
            then, this call reads up to a whole segment of batches itself.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline, or the disk failed; CORRUPT_MESSAGE,
            the remaining part would be damaged.
    """
    found = _found(log, truncation, offset)
    with log.guarded() as files:
        # a batch goes as a whole: what is written next begins where it began
        end = offset if found is None else found.remainder.cut.end
        is_lower = files.lower_recovery_point(end)
        if found is not None:
            found.truncation_epoch = files.truncation_epoch
    return end, is_lower


def sync_sealed(log: PartitionLog) -> None:
    """Make the removal of entries from the list of sealed segments durable. Any thread can call it.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the fsync failed, and the log is offline.
    """
    try:
        if log.files.sealed is not None:
            log.files.sealed.sync()
    except OSError as error:
        raise log.failed(error, syncing=True) from error


def _found(log: PartitionLog, truncation: Truncation | None, offset: Offset) -> Truncation | None:
    """Return `truncation` if it fits the log and `offset`. If not, return a new one that has run.

    Return None if no computation is needed (`begin_truncation`).
    """
    if truncation is not None and truncation.offset == offset and truncation.fits(log.files):
        log.check_usable()
        return truncation
    truncation = begin_truncation(log, offset)
    if truncation is not None:
        truncation.run()
    return truncation


def truncate_to(
    log: PartitionLog, offset: Offset, *, sync: bool = True, truncation: Truncation | None = None
) -> bool:
    """Remove the records from `offset` on. Return False if the log ends at or before `offset`, else True.

    - If `offset` is inside a batch, the whole batch is removed.
    - If `offset` is before the first segment, all records are removed, and the empty log continues at
      `offset`.

    Args:
        log: log to truncate.
        offset: first offset to remove.
        sync: make the removal durable in this call. If false, the next flush makes the removal durable.
            Nothing may be appended before this flush.
        truncation: task from `begin_truncation` that has run. Without a task, or if the log has changed since
            then, this call reads up to a whole segment of batches itself.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the remaining part would be damaged, and nothing was removed;
            KAFKA_STORAGE_ERROR, the log directory is offline, or the disk failed. If the disk fails half-way,
            the log goes offline, and its files are closed.
    """
    if offset >= log.log_end_offset:
        # An emptied log has the epoch of its last record. A leader of Kafka notes its epoch at its log's end.
        before = log.latest_epoch
        log.epochs.truncate_from_end(offset)
        if log.latest_epoch != before and not log.files.is_blank:
            log.files.is_cut = True  # the next flush also writes the epochs
        return False
    if offset < log.files.segments[0].base_offset:
        truncate_fully_and_start_at(log, offset, sync=sync)
        return True
    found = _found(log, truncation, offset)
    assert found is not None
    with log.guarded():
        cut, producers = found.remainder
        _announce(log, cut.end)  # a batch goes as a whole
        found.drop_damaged_snapshots()
    try:
        log.files.truncate(cut, sync=sync)
        log.producers = producers
        log.note_truncation(cut.end)
    except OSError as error:
        raise _half_truncated(log, error) from error
    return True


def truncate_fully_and_start_at(log: PartitionLog, offset: Offset, *, sync: bool = True) -> None:
    """Remove all records. The empty log continues at `offset`.

    Without `sync`, the next flush makes the removal durable.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline.
    """
    with log.guarded() as files:
        files.begin()  # a full disk may refuse that
        _announce(log, min(offset, log.log_start_offset))
    try:
        log.files.start_over(offset, log.config, sync=sync)
        log.log_start_offset = log.high_watermark = offset
        log.epochs.truncate_from_end(0)
        log.producers = Producers()
        log.producers.end_offset = offset
        log.note_truncation(offset)
    except OSError as error:
        raise _half_truncated(log, error) from error


def continue_at(log: PartitionLog, start: Offset) -> None:
    """Remove all records of a log that ends before its start `start`: the log continues empty at `start`.

    All records before `start` were deleted, and a crash has removed some of them from the end of the log. A
    log that continued at its end would use their offsets again.

    The log keeps its last leader epoch, so that a leader can detect that its own log has another history.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the disk failed.
    """
    epoch = log.latest_epoch
    truncate_fully_and_start_at(log, start)
    log.epochs.assign(epoch, start)
    log.flush()


def _announce(log: PartitionLog, offset: Offset) -> None:
    if offset < log.recovery_point:
        if log.files.sealed is not None:
            log.files.sealed.cut(offset)
            sync_sealed(log)
        if log.env.before_truncation is not None:
            log.env.before_truncation(log.topic_partition, offset)


def _half_truncated(log: PartitionLog, error: OSError) -> KafkaError:
    if harm_of(error) is Harm.DIRECTORY:
        failed = log.env.fail(error)
    else:
        failed = log.fail(TornError("half truncated", error))
    log.abandon()  # what is on disk only the next start can tell
    return failed


def cut_in_parts(log: PartitionLog) -> Iterator[None]:
    """Remove the bytes that a truncation has left at the end of the active segment's file.

    Each step of the iterator removes some megabytes. Take all steps before `PartitionLog.prepare_flush`,
    which removes all remaining bytes in one call. That call takes a tenth of a second for some hundred
    megabytes.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the disk failed or the log directory is offline.
    """
    while True:
        with log.guarded() as files:
            is_more = files.segments.active.cut_some()
        if not is_more:
            return
        yield
