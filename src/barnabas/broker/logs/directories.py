"""The log directories of a broker together: finds the directory of a log, and removes files."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Protocol

from barnabas.base.environment.blocking import Pool
from barnabas.base.text import logger_of
from barnabas.base.types import TopicId, TopicPartition
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.storage import PartitionLog

log = logger_of(__name__)


class Task(Protocol):
    """A task that blocks on the disk (`barnabas.broker.storage.tasks`)."""

    def run(self) -> None: ...


class LogDirectories:
    """The log directories of a broker that could be opened, offline or not, in the order of `log.dirs`.

    Args:
        disk: threads in which files are removed.
    """

    def __init__(self, disk: Pool) -> None:
        self._disk = disk
        #: deletions of files that have not begun, by path of each directory in which one runs
        self._removals: dict[str, deque[Task]] = {}
        self.opened: list[LogDirectory] = []
        #: errors of the configured directories that could not be opened, by path
        self.unopened: dict[str, OSError] = {}
        #: deleted topics with a folder that could not be renamed or removed
        self.undeleted: set[TopicId] = set()

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self.opened)

    @property
    def are_all_working(self) -> bool:
        """Whether all configured directories could be opened, and none is offline."""
        return not self.unopened and all(directory.failure is None for directory in self.opened)

    def logs(self) -> Iterator[PartitionLog]:
        """Return all open logs."""
        for directory in self.opened:
            yield from directory.logs.values()

    def find(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory of a log; None if there is no such log."""
        for directory in self.opened:
            if topic_partition in directory.logs:
                return directory
        return None

    def holder_of(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the log directory of a log. Raises KeyError if there is no such log."""
        directory = self.find(topic_partition)
        if directory is None:
            raise KeyError(topic_partition)
        return directory

    def find_log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if it is not open."""
        directory = self.find(topic_partition)
        return None if directory is None else directory.logs[topic_partition]

    def create_copy(self, current: PartitionLog, directory: LogDirectory) -> None:
        """Create the copy of the log `current`, which moves to `directory`. The copy has no records yet.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, one of the directories is offline, or the disk failed.
        """
        topic_partition = current.topic_partition
        try:
            start = current.start_of_first_batch()
        except OSError as error:
            raise current.files.env.handle_error(topic_partition, error) from error
        directory.create_future(topic_partition, current.topic_id, current.config, start)
        cleaned_to = self.holder_of(topic_partition).cleaned_to.get(topic_partition)
        if cleaned_to is not None:
            directory.note_clean(topic_partition, cleaned_to)  # `InterruptedMoves` needs it

    def set_aside(
        self, directory: LogDirectory, topic_partition: TopicPartition, suffix: str = "stray"
    ) -> bool:
        """Rename the folder of a partition that belongs to no topic of this broker.

        The new name ends with ``-`` and `suffix`. Return False if the rename failed. A missing folder is no
        failure.
        """
        try:
            aside = directory.folders.set_aside(topic_partition, suffix)
        except FileNotFoundError:
            log.info("%s has no folder", topic_partition)
        except OSError as error:
            log.error("%s belongs to no topic of this broker and cannot be moved: %s", topic_partition, error)
            directory.env.handle_error(topic_partition, error)
            return False
        else:
            log.warning("%s belongs to no topic of this broker: its folder is now %s", topic_partition, aside)
        return True

    def remove(self, log_dir: str, removal: Task) -> None:
        """Run a deletion of files in the log directory `log_dir`, in a thread. Log errors.

        Each log directory has one deletion at a time. So the deletions on a disk that hangs occupy only one
        thread.
        """
        waiting = self._removals.get(log_dir)
        if waiting is None:
            self._removals[log_dir] = deque()
            self._begin_removal(log_dir, removal)
        else:
            waiting.append(removal)

    def stop_removals(self) -> None:
        """Begin no more of the deletions that wait for another one. The next start makes them."""
        for waiting in self._removals.values():
            waiting.clear()

    def _begin_removal(self, log_dir: str, removal: Task) -> None:
        self._disk.run(removal.run).add_done_callback(partial(self._removal_ended, log_dir))

    def _removal_ended(self, log_dir: str, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            log.error("files could not be deleted, so the next start deletes them: %s", error)
        waiting = self._removals[log_dir]
        if waiting:
            self._begin_removal(log_dir, waiting.popleft())
        else:
            del self._removals[log_dir]
