"""Computes the result of a truncation before anything of the log changes.

A truncation must read up to a whole segment of batches. It searches for the start of the first batch to
remove, the largest timestamp of the rest, and the producers as of the new end. It checks the index of aborted
transactions, and rebuilds a damaged one. So this runs in a thread, with files of its own, while the log
is in use. A log whose batches are damaged refuses the truncation as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.base.types import Offset
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.open_files import OpenFiles
from barnabas.broker.storage.producer_recovery import find_aborted, load_producers
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.segment import Cut, LogSegment
from barnabas.broker.storage.segments import Segments

logger = logging.getLogger(__name__)


class Remainder(NamedTuple):
    """The state of a log after a truncation."""

    #: for the segment that will be the active one
    cut: Cut
    producers: Producers


class Truncation:
    """A truncation that is yet to be done: made where the log is owned, `run` in any thread.

    The log is left alone; `PartitionLog.truncate_to` takes it from there, if it `fits` the log still.

    Args:
        files: the log's.
        offset: the first to remove. Not before the log's first segment.
    """

    def __init__(self, files: LogFiles, offset: Offset) -> None:
        self.offset = offset
        self.tail = files.tail
        #: why the log cannot be truncated, once it has run
        self.error: OSError | KafkaError | None = None
        self._remainder: Remainder | None = None
        self._files = files
        self._segments = tuple(files.segments)
        self._active_size = files.segments.active.size
        own_files = OpenFiles(files.env.fs, capacity=8)
        kept = files.segments.place_of(offset) + 1
        self._copies = [segment.copy(own_files) for segment in self._segments[:kept]]
        self._view = _View(files, self._copies)

    def run(self) -> None:
        """Never raises: whoever truncates the log is told."""
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
        """Whether the log has not changed, as far as the truncation depends on it."""
        return (
            files is self._files
            and files.tail == self.tail
            and files.segments.active.size == self._active_size
            and len(files.segments) == len(self._segments)
            and all(now is then for now, then in zip(files.segments, self._segments, strict=True))
        )

    @property
    def remainder(self) -> Remainder:
        """Return the state after the truncation, once it has run.

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
    """A log's files as `load_producers` needs them, without a change of the log's own."""

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
