"""Writing an offset checkpoint of a directory with thousands of logs: what has not changed is not written."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from barnabas.base.environment.filesystem import FileSystem, replace_file
from barnabas.base.types import Offset, TopicId, TopicPartition
from barnabas.broker.storage import checkpoints

if TYPE_CHECKING:
    from barnabas.broker.storage import PartitionLog

#: what a checkpoint says of a log; None when it need not name it
OffsetOf: TypeAlias = "Callable[[PartitionLog], Offset | None]"

#: how many logs are asked, and how many lines are made, in one step
_LOGS_A_STEP = 500
_LINES_A_STEP = 100
#: Garbage collections would walk such a long new list, for milliseconds: it is exempted at once.
_MANY = 20_000


def _names(of: Mapping[TopicPartition, object]) -> list[TopicPartition]:
    """Return the names as they are now: they may come and go between two steps."""
    names = list(of)
    if len(names) >= _MANY:
        gc.freeze()
    return names


class OffsetCheckpoint:
    """One offset checkpoint of a log directory: its entries, and whether the file has the same ones."""

    def __init__(self, fs: FileSystem, path: str, read: checkpoints.CheckpointedOffsets) -> None:
        self.fs = fs
        self.path = path
        self.offsets = read.offsets
        #: the tags (`checkpoints.tag_of_topic`) of the entries that were read
        self.tags = read.tags
        #: whether the file is to be written even if no offset has changed
        self.is_stale = True

    def share(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Use the names and tags of open logs in place of the equal ones that were read: it saves memory."""
        self.offsets = {
            logs[tp].topic_partition if tp in logs else tp: offset for tp, offset in self.offsets.items()
        }
        self.tags = {tp: tag for tp, tag in self.tags.items() if tp not in logs}

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Leave a log out when the file is written again; return whether it was in."""
        self.tags.pop(topic_partition, None)
        if self.offsets.pop(topic_partition, None) is None:
            return False
        self.is_stale = True
        return True


class CheckpointWrite:
    """One write of a checkpoint: `prepare` it where the logs are owned, then `run` it in any thread.

    Args:
        logs: the open logs. The checkpoint's entries of other logs stay.
        offset_of: the new offset of an open log; None to keep its present entry.
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
        #: the lines, those of one step joined: thousands of small objects would take more room than they say
        self._lines: list[bytes] | None = None
        self._count = 0

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to write, once it is prepared."""
        return self._lines is not None

    def prepare(self) -> Iterator[None]:
        """Take down the offsets and encode them, if any has changed, in steps of less than a millisecond.

        Logs may come, go and move between the steps: each line holds for its own log alone.
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
        checkpoint.is_stale = False  # what changes from here on is written the next time
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
        """Replace the file, if there is anything to write. Raises OSError."""
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
