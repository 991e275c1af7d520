"""The four offset checkpoints of a log directory, with an entry for each of its logs.

    recovery-point-offset-checkpoint        all records before this offset were on disk
    log-start-offset-checkpoint             log start offsets above the first segment
    replication-offset-checkpoint           high watermarks
    cleaner-offset-checkpoint               compacted logs are clean up to this offset

An entry has the tag of its topic's id. So entries of a deleted topic do not count for a new one of its name.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence

from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.types import Offset, TopicId, TopicPartition
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite, OffsetCheckpoint
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.damage import keep_damaged, read_small_file
from barnabas.broker.storage.log import PartitionLog

logger = logging.getLogger(__name__)

#: the effect of a checkpoint that cannot be read
_MEANING = {
    checkpoints.RECOVERY_POINTS: "logs that it does not name are read through",
    checkpoints.HIGH_WATERMARKS: "high watermarks are computed again",
    checkpoints.LOG_STARTS: "records that DeleteRecords has removed may show again",
    checkpoints.CLEANED: "compacted logs that it does not name are cleaned from their start",
}


class DirectoryCheckpoints:
    """The offset checkpoints of one log directory. Only the event loop's thread uses it.

    Args:
        fs: file system of the directory.
        path: path of the directory. The constructor reads its checkpoints.
        logs: the logs of the directory, as they change.
        copies: the copies of logs that move to the directory, as they change.
        was_clean: whether the last stop was clean, so that no checkpoint may be missing.

    Raises:
        OSError: the disk failed.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        logs: dict[TopicPartition, PartitionLog],
        copies: dict[TopicPartition, PartitionLog],
        *,
        was_clean: bool,
    ) -> None:
        self._fs = fs
        self._path = path
        self._logs = logs
        self._copies = copies
        #: held while a thread writes a checkpoint: two writers would corrupt the file, or an older content
        #: would replace a later one
        self.lock = asyncio.Lock()
        #: whether a checkpoint has lines without the tag of a topic id, as Apache Kafka writes them
        self.has_untagged_offsets = False
        #: whether a log ended before its start offset in the checkpoint. The checkpoints must be rewritten
        #: before the log grows past that offset, or a restart would hide the new records
        self.has_stale_offsets = False
        #: whether the recovery points, or some of them, could not be read
        self.has_lost_points = False
        #: new log start offsets, which take effect once the checkpoint has them
        self.planned_starts: list[Sequence[tuple[PartitionLog, Offset]]] = []
        #: logs that are about to be truncated, each with its end after the truncation
        self.planned_ends: list[tuple[PartitionLog, Offset]] = []
        self._recovery_points = self._read(checkpoints.RECOVERY_POINTS, must_exist=was_clean)
        self._log_starts = self._read(checkpoints.LOG_STARTS, must_exist=was_clean)
        self._high_watermarks = self._read(checkpoints.HIGH_WATERMARKS, must_exist=was_clean)
        self._cleaned_to = self._read(checkpoints.CLEANED, must_exist=False)
        self._all = (self._recovery_points, self._log_starts, self._high_watermarks, self._cleaned_to)

    def _read(self, name: str, *, must_exist: bool) -> OffsetCheckpoint:
        file = f"{self._path}/{name}"
        nothing = checkpoints.CheckpointedOffsets({}, {}, None)
        try:
            read = checkpoints.decode_offsets(read_small_file(self._fs, file))
        except FileNotFoundError:
            if must_exist:
                logger.warning("%s is missing: %s", file, _MEANING[name])
                self.has_lost_points = self.has_lost_points or name == checkpoints.RECOVERY_POINTS
            read = nothing
        except ValueError as error:
            read = nothing._replace(damage=str(error))
        if len(read.tags) < len(read.offsets):
            self.has_untagged_offsets = True
        if read.damage is not None:
            logger.warning("%s is damaged (%s): %s", file, read.damage, _MEANING[name])
            self.has_lost_points = self.has_lost_points or name == checkpoints.RECOVERY_POINTS
            keep_damaged(self._fs, file)
        return OffsetCheckpoint(self._fs, file, read)

    # --- the entries ---

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All logs with entries: the directory's logs, and the copies of logs that move to it."""
        return ChainMap(self._logs, self._copies) if self._copies else self._logs

    @property
    def recovery_points(self) -> Mapping[TopicPartition, Offset]:
        """The recovery points, as read at the start or as last written."""
        return self._recovery_points.offsets

    @property
    def log_starts(self) -> Mapping[TopicPartition, Offset]:
        """The log start offsets, as read at the start or as last written."""
        return self._log_starts.offsets

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, Offset]:
        """The high watermarks, as read at the start or as last written."""
        return self._high_watermarks.offsets

    @property
    def cleaned_to(self) -> Mapping[TopicPartition, Offset]:
        """The offsets up to which compacted logs are clean."""
        return self._cleaned_to.offsets

    def recovery_point_of(self, topic_partition: TopicPartition, topic_id: TopicId) -> Offset:
        """Return a partition's recovery point in the checkpoint; 0 if the partition has none.

        All records before the recovery point were on disk. First remove the partition's entries of another
        topic with the same name from all checkpoints.
        """
        self.forget_other_topics(topic_partition, topic_id)
        return self._recovery_points.offsets.get(topic_partition, 0)

    def is_of_another_topic(self, topic_partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether a checkpoint says that the partition's folder belongs to another topic than `topic_id`.

        Call it only if the folder itself does not contain a topic id.
        """
        tag = checkpoints.tag_of_topic(topic_id)
        return any(each.tags.get(topic_partition, tag) != tag for each in self._all)

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Remove a log's entries from the checkpoints to be written. Return whether there were any."""
        was_in = [checkpoint.forget(topic_partition) for checkpoint in self._all]
        return any(was_in)

    def forget_all_but(self, known: Collection[TopicPartition]) -> bool:
        """Remove the entries of all partitions not in `known` from the checkpoints to be written.

        Return whether there were any.
        """
        named = (tp for checkpoint in self._all for tp in checkpoint.offsets)
        others = dict.fromkeys(tp for tp in named if tp not in known)
        for topic_partition in others:
            self.forget(topic_partition)
        return bool(others)

    def forget_other_topics(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        """Remove the entries of an earlier topic with the same name from the checkpoints.

        `topic_id` is the id of the present topic of `topic_partition`. The entries would mislead the broker's
        next start:

        - The broker would report the earlier topic's records as lost.
        - It would hide the new topic's records below the earlier topic's log start offset.
        - It would not check the new topic's records below the earlier topic's recovery point.
        """
        tag = checkpoints.tag_of_topic(topic_id)
        for checkpoint in self._all:
            if checkpoint.tags.get(topic_partition, tag) != tag:
                checkpoint.forget(topic_partition)

    def share_keys(self) -> None:
        """Use the partition objects of open logs as keys, which saves memory. Call it when all are open."""
        for checkpoint in self._all:
            checkpoint.share(self.logs)

    def note_clean(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Set the offset up to which a log is clean. The next `write_cleaned` writes it."""
        self._cleaned_to.offsets[topic_partition] = offset
        self._cleaned_to.is_stale = True

    def lower_cleaned(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Before a truncation to `offset`, note that the log is compacted at most up to `offset`."""
        if self.cleaned_to.get(topic_partition, 0) > offset:
            # only flushed records are cleaned, so no other truncation removes clean records
            self.note_clean(topic_partition, offset)

    # --- writes ---

    def write_recovery_points(self) -> CheckpointWrite:
        """Return a task that writes the recovery points."""
        return CheckpointWrite(self._recovery_points, self.logs, lambda log: log.recovery_point)

    def write_log_starts(self) -> CheckpointWrite:
        """Return a task that writes the log start offsets above the base offset of the first segment.

        Entries of logs that could not be opened are kept, so that their deleted records stay deleted.
        """
        self.has_stale_offsets = False
        starts: dict[PartitionLog, list[Offset]] = {}
        for log, start in (each for plan in self.planned_starts for each in plan):
            starts.setdefault(log, []).append(start)
        ends: dict[PartitionLog, Offset] = {}
        for log, end in self.planned_ends:
            ends[log] = min(end, ends.get(log, end))

        def unknown_to_files(log: PartitionLog) -> Offset | None:
            start = log.log_start_offset
            if log in starts or log in ends:
                end = min(log.high_watermark, ends.get(log, log.high_watermark))
                # A deletion that was planned before a truncation can be invalid now: it must not take effect.
                start = min(max([start, *(each for each in starts.get(log, ()) if each <= end)]), end)
            # The file of leader epochs may begin before the first segment until it is rewritten. A power cut
            # can bring back earlier segments if the new names of their files are not on disk. In both cases,
            # the files do not show the log's start.
            is_behind = log.epochs.changed or log.files.has_new_names
            known = 0 if is_behind else log.files.segments[0].base_offset
            return start if start > known else None

        return CheckpointWrite(self._log_starts, self.logs, unknown_to_files)

    def write_high_watermarks(self) -> CheckpointWrite:
        """Return a task that writes the high watermarks."""
        return CheckpointWrite(self._high_watermarks, self.logs, lambda log: log.high_watermark)

    def write_cleaned(self) -> CheckpointWrite:
        """Return a task that writes the offsets up to which compacted logs are clean, if any has changed."""
        return CheckpointWrite(self._cleaned_to, self.logs, None)

    def write_all(self) -> None:
        """Write all checkpoints, even those without a change.

        Raises:
            OSError: the disk failed.
        """
        for checkpoint in self._all:
            checkpoint.is_stale = True  # the files may have changed meanwhile
        self.write_recovery_points().run()
        self.write_log_starts().run()
        self.write_high_watermarks().run()
        self.write_cleaned().run()

    def may_start_after(self, topic_partition: TopicPartition, end: Offset) -> bool:
        """Whether the file of log start offsets may have a higher start offset than `end` for a log."""
        # A write that has failed or is under way leaves it open which entries the file has.
        is_known = not self._log_starts.is_stale and not self.lock.locked()
        return not is_known or self.log_starts.get(topic_partition, 0) > end

    def write_before_truncation(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Before a log is truncated to `offset`, lower its recovery point and its clean offset on disk.

        With the old recovery point on disk, recovery would not check records written after the truncation.
        Usually `LogManager.prepare_truncation` has lowered both before, and the log is truncated without this
        call. The event loop waits for this write.

        Raises:
            OSError: the disk failed; EAGAIN, a thread is writing a checkpoint now.
        """
        if self.lock.locked():
            raise OSError(errno.EAGAIN, f"the checkpoints in {self._path} are being written")

        def point_of(log: PartitionLog) -> Offset:
            is_cut = log.topic_partition == topic_partition
            return min(offset, log.recovery_point) if is_cut else log.recovery_point

        CheckpointWrite(self._recovery_points, self.logs, point_of).run()
        self.lower_cleaned(topic_partition, offset)
        self.write_cleaned().run()  # also what an earlier call could not write
