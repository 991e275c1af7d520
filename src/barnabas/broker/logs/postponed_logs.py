"""Opens the logs for which the start had too little space, memory or open files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas.base.text import FewLines, logger_of
from barnabas.base.types import TopicPartition
from barnabas.broker.logs.checkpointing import CheckpointWriter
from barnabas.broker.logs.directories import LogDirectories
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.incomplete import IncompleteReplicas
from barnabas.broker.logs.interrupted_moves import InterruptedMoves
from barnabas.broker.logs.log_opener import LogOpener, Wanted
from barnabas.broker.logs.lost_replicas import LostReplicas
from barnabas.broker.logs.unopened import Postponed, UnopenedLogs
from barnabas.broker.storage.harm import may_pass

log = logger_of(__name__)


class PostponedLogs:
    """Tries again to open the logs in `UnopenedLogs.postponed`.

    Args:
        directories: the broker's log directories.
        unopened: the logs that could not be opened.
        opener: opens logs.
        lost: creates logs again whose records are gone.
        moves: opens the copies of logs.
        incomplete: the replicas that lack records.
        checkpoints: writes the checkpoints of the directories.
        delete: deletes an open log.
    """

    def __init__(
        self,
        directories: LogDirectories,
        unopened: UnopenedLogs,
        opener: LogOpener,
        lost: LostReplicas,
        moves: InterruptedMoves,
        incomplete: IncompleteReplicas,
        checkpoints: CheckpointWriter,
        delete: Callable[[TopicPartition], None],
    ) -> None:
        self._directories = directories
        self._unopened = unopened
        self._opener = opener
        self._lost = lost
        self._moves = moves
        self._incomplete = incomplete
        self._checkpoints = checkpoints
        self._delete = delete
        self._opened, self._failed = FewLines(log, logging.INFO), FewLines(log)

    async def open(self) -> set[TopicPartition]:
        """Try again to open each postponed log. In each directory, stop at the first one that still fails.

        Returns:
            The partitions whose log is open now, and the partitions whose log was deleted during this call.
            A new log can be created for a deleted one.
        """
        unopened = self._unopened
        opened: set[TopicPartition] = set()
        for directory in self._directories:
            for topic_partition in [
                each for each in unopened.postponed if unopened.directory_of.get(each) is directory
            ]:
                if directory.failure is not None:
                    break
                await asyncio.shield(self._checkpoints.share(self._open_again(directory, topic_partition)))
                if topic_partition in unopened.postponed:
                    break
                if topic_partition not in unopened:
                    opened.add(topic_partition)
        self._opened.end("logs are open now")
        self._failed.end("logs cannot be opened")
        self._lost.end_lines()
        if opened:
            late = [found for each in opened if (found := self._directories.find_log(each))]
            await asyncio.shield(self._checkpoints.share(self._moves.load_copies_of(late)))
            self._incomplete.on_change()
        return opened

    async def _open_again(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Try again to open one postponed log. It stays postponed only if a later attempt may succeed."""
        unopened = self._unopened
        postponed = unopened.postponed.get(topic_partition)
        if postponed is None or self._directories.find_log(topic_partition) is not None:
            unopened.postponed.pop(topic_partition, None)  # it was deleted, or is in another directory, too
            return
        unopened.opening, unopened.is_opening_doomed = topic_partition, False
        try:
            if postponed.is_gone:
                await self._lost.begin_anew(directory, topic_partition, postponed.topic_id, postponed.config)
            else:
                await self._load_again(directory, topic_partition, postponed)
        finally:
            unopened.opening = None
        if unopened.is_opening_doomed:
            self._directories.undeleted.discard(postponed.topic_id)
            self._delete(topic_partition)

    async def _load_again(
        self, directory: LogDirectory, topic_partition: TopicPartition, postponed: Postponed
    ) -> None:
        unopened, topic_id = self._unopened, postponed.topic_id
        directories = unopened.ambiguous.get(topic_partition, [directory])
        try:
            found = await self._opener.open_in(
                directories, Wanted(topic_partition, topic_id, postponed.config)
            )
        except Exception as error:
            if not may_pass(error.__cause__):
                del unopened.postponed[topic_partition]
                self._failed.log("%s cannot be opened: %s", topic_partition, error)
            return
        for each, partition_log in found.items():
            each.adopt(partition_log)
        outdated = set(self._moves.keep_latest(topic_partition, directories))
        for each in directories:
            await self._checkpoints.write_opened(each, is_outdated=each in outdated)
        unopened.remove(topic_partition)
        unopened.ambiguous.pop(topic_partition, None)
        unopened.note_recovered()
        directory = self._directories.holder_of(topic_partition)
        mark = directory.folders.marks.get(topic_partition)
        if mark is None:
            self._incomplete.forget(topic_partition)
        else:
            self._incomplete.note(topic_partition, topic_id, mark, directory.logs[topic_partition])
        self._opened.log("%s is open now", topic_partition)
