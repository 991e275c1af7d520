"""Writes the offset checkpoints of a directory with thousands of logs, if they have changed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from barnabas.base.environment.filesystem import FileSystem, replace_file
from barnabas.base.types import Offset, TopicId, TopicPartition
from barnabas.broker.storage import checkpoints

if TYPE_CHECKING:
    from barnabas.broker.storage import PartitionLog

#: returns the offset of a log for a checkpoint; None if the log needs no entry
OffsetOf: TypeAlias = "Callable[[PartitionLog], Offset | None]"

#: how many logs are read, and how many lines are encoded, in one step
_LOGS_A_STEP = 500
_LINES_A_STEP = 100
#: from this length on a list is exempted from garbage collection, which would take milliseconds for it
_MANY = 20_000


def _names(of: Mapping[TopicPartition, object]) -> list[TopicPartition]:
    """Return a list of the keys, because keys may be added and removed between two steps."""
    names = list(of)
    if len(names) >= _MANY:
        gc.freeze()
    return names


class OffsetCheckpoint:
    """One offset checkpoint of a log directory: its entries, and whether the file is outdated.

    `read` has the entries that the file at `path` had when the broker started.
    """

    def __init__(self, fs: FileSystem, path: str, read: checkpoints.CheckpointedOffsets) -> None:
        self.fs = fs
        self.path = path
        self.offsets = read.offsets
        #: tags (`checkpoints.tag_of_topic`) of the entries that were read from the file
        self.tags = read.tags
        #: whether the file must be written even if no offset changes
        self.is_stale = True

    def share(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Save memory: use the partition objects of open logs as keys, and drop the tags of these logs.

        A tag is the checksum of a topic id, in an entry of the file. It distinguishes topics of the same
        name. `CheckpointWrite` computes the tag of an open log from the log's topic id.
        """
        self.offsets = {
            logs[tp].topic_partition if tp in logs else tp: offset for tp, offset in self.offsets.items()
        }
        self.tags = {tp: tag for tp, tag in self.tags.items() if tp not in logs}

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Remove a log's entry, also from the file at the next write. Return whether it had one."""
        self.tags.pop(topic_partition, None)
        if self.offsets.pop(topic_partition, None) is None:
            return False
        self.is_stale = True
        return True


class CheckpointWrite:
    """One write of a checkpoint. Call `prepare` on the event loop, then `run` in any thread.

    Args:
        checkpoint: the checkpoint to write.
        logs: the open logs. The checkpoint's entries of other logs stay.
        offset_of: called with each open log; returns its new offset, or None to remove its entry. If
            `offset_of` is None, the entries stay as they are.
    """

    def __init__(
        self,
        checkpoint: OffsetCheckpoint,
        logs: Mapping[TopicPartition, PartitionLog],
        offset_of: OffsetOf | None,
    ) -> None:
        self._checkpoint = checkpoint
        self._logs = logs
        self._offset_of = offset_of
        self._is_prepared = False
        #: the lines; those of one step are joined, because thousands of small objects would need more memory
        self._lines: list[bytes] | None = None
        self._count = 0

    @property
    def is_needed(self) -> bool:
        """Whether `prepare` has found a change, so that `run` must write."""
        return self._lines is not None

    def prepare(self) -> Iterator[None]:
        """Read the offsets of the open logs. If an entry has changed since the last write, encode all.

        Iterate to the end before you call `run`. Each step takes less than a millisecond, and the caller can
        do other work between two steps. Logs may be added, removed and moved between the steps, because each
        line of the file is about one log only.
        """
        checkpoint, offsets, logs = self._checkpoint, self._checkpoint.offsets, self._logs
        if self._offset_of is not None:
            for number, topic_partition in enumerate(_names(logs), 1):
                if number % _LOGS_A_STEP == 0:
                    yield
                log = logs.get(topic_partition)
                if log is not None:
                    self._note(topic_partition, self._offset_of(log))
        self._is_prepared = True
        if not checkpoint.is_stale:
            return
        checkpoint.is_stale = False  # the next write covers later changes
        tags: dict[TopicId, int] = {}
        joined: list[bytes] = []
        lines: list[bytes] = []
        for number, topic_partition in enumerate(_names(offsets), 1):
            if number % _LINES_A_STEP == 0:
                joined.append(b"".join(lines))
                lines.clear()
                yield
            offset = offsets.get(topic_partition)
            if offset is None:
                continue
            open_log = logs.get(topic_partition)
            if open_log is None:
                tag = checkpoint.tags.get(topic_partition)
            else:
                topic_id = open_log.topic_id
                tag = tags.get(topic_id)
                if tag is None:
                    tag = tags[topic_id] = checkpoints.tag_of_topic(topic_id)
            lines.append(checkpoints.encode_offset(topic_partition, offset, tag))
            self._count += 1
        self._lines = [*joined, *lines]

    def _note(self, topic_partition: TopicPartition, offset: Offset | None) -> None:
        checkpoint = self._checkpoint
        if offset is None:
            checkpoint.forget(topic_partition)
        elif checkpoint.offsets.get(topic_partition) != offset:
            checkpoint.offsets[topic_partition] = offset
            checkpoint.is_stale = True

    def run(self) -> None:
        """Replace the checkpoint's file if an entry has changed. This includes `prepare`, if not done yet.

        Raises:
            OSError: the disk failed.
        """
        if not self._is_prepared:
            for _ in self.prepare():
                pass
        if self._lines is None:
            return
        checkpoint = self._checkpoint
        try:
            replace_file(checkpoint.fs, checkpoint.path, checkpoints.join_offsets(self._lines, self._count))
        except BaseException:
            checkpoint.is_stale = True
            raise
