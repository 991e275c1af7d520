"""Tracks the logs of a broker's partitions that could not be opened: the broker does not create them anew."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from barnabas.base.types import TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs.directories import LogDirectories
from barnabas.broker.logs.directory import LogDirectory


class Postponed(NamedTuple):
    """A log that could not be opened for lack of space, memory or open files. The broker tries again."""

    topic_id: TopicId
    config: TopicConfig
    #: whether all of its records are gone, so that it is opened empty
    is_gone: bool = False


class UnopenedLogs:
    """The logs that could not be opened. The start adds them; some are opened later.

    Args:
        directories: the broker's log directories.
    """

    def __init__(self, directories: LogDirectories) -> None:
        self._directories = directories
        #: the directory of each of these logs; None if the log can be in a directory that cannot be read
        self.directory_of: dict[TopicPartition, LogDirectory | None] = {}
        #: those of them that `PostponedLogs` tries to open again
        self.postponed: dict[TopicPartition, Postponed] = {}
        #: those of them with a folder in several directories: the broker serves such a log only after it has
        #: compared all of its folders
        self.ambiguous: dict[TopicPartition, list[LogDirectory]] = {}
        #: the log that `PostponedLogs` is opening in a thread
        self.opening: TopicPartition | None = None
        #: whether this log was deleted meanwhile
        self.is_opening_doomed = False

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.directory_of

    def add(
        self, topic_partition: TopicPartition, directory: LogDirectory, postponed: Postponed | None = None
    ) -> None:
        """Add a log of `directory`. With `postponed`, the broker tries to open it again."""
        self.directory_of[topic_partition] = directory
        if postponed is not None:
            self.postponed[topic_partition] = postponed

    def remove(self, topic_partition: TopicPartition) -> None:
        """Remove a log after it was opened."""
        del self.directory_of[topic_partition]
        self.postponed.pop(topic_partition, None)

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Forget a deleted log. Rename its folder if the log could not be opened.

        Return False if a thread is opening the log: `PostponedLogs` deletes it after that.
        """
        if topic_partition == self.opening:
            self.is_opening_doomed = True
            self._directories.undeleted.add(self.postponed[topic_partition].topic_id)
            return False
        self.postponed.pop(topic_partition, None)
        directory = self.directory_of.pop(topic_partition, None)
        for each in self.ambiguous.pop(topic_partition, () if directory is None else (directory,)):
            self._directories.set_aside(each, topic_partition)
            each.checkpoints.forget(topic_partition)
        return True

    def note_recovered(self) -> None:
        """Allow the next stop to mark a directory as cleanly stopped.

        This applies to each directory that is online and whose logs are all open.
        """
        broken = {*self.directory_of.values(), *chain.from_iterable(self.ambiguous.values())}
        for directory in self._directories:
            if directory not in broken and directory.failure is None:
                directory.is_recovered = True
