"""Opens the logs of a broker at its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.base.text import FewLines, logger_of
from barnabas.base.types import TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs.checkpointing import CheckpointWriter
from barnabas.broker.logs.directories import LogDirectories
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.found_folders import FoundFolders, Start
from barnabas.broker.logs.interrupted_moves import InterruptedMoves
from barnabas.broker.logs.log_opener import LogOpener, Wanted
from barnabas.broker.logs.lost_replicas import LostReplicas
from barnabas.broker.logs.unopened import UnopenedLogs

log = logger_of(__name__)


class LogLoader:
    """Opens all logs at the start. It has the order of the steps; other modules have the steps.

    Args:
        directories: the log directories; `load` needs them open.
        unopened: gets the logs that cannot be opened.
        opener: opens logs in threads.
        lost: finds the logs that are missing.
        moves: opens the copies of logs.
        checkpoints: writes the checkpoints of the directories.
        is_clustered: whether the broker belongs to a cluster.
    """

    def __init__(
        self,
        directories: LogDirectories,
        unopened: UnopenedLogs,
        opener: LogOpener,
        lost: LostReplicas,
        moves: InterruptedMoves,
        checkpoints: CheckpointWriter,
        *,
        is_clustered: bool,
    ) -> None:
        self._directories = directories
        self._unopened = unopened
        self._opener = opener
        self._lost = lost
        self._moves = moves
        self._checkpoints = checkpoints
        self._is_clustered = is_clustered
        self._folders = FoundFolders(directories, unopened, is_clustered=is_clustered)

    async def load(
        self,
        hosted: Mapping[TopicPartition, TopicId],
        config_of: Callable[[str], TopicConfig],
        is_deleted: Callable[[TopicPartition, TopicId], bool],
    ) -> None:
        """Open every log of this broker in the log directories. Recover them after a crash.

        If a log cannot be opened, log an error, and open the others. If the folder of a partition is not
        `hosted`, log an error, and leave the folder alone: the metadata may be out of date. If a log that had
        records is missing, a broker without a cluster does not create it again. A broker of a cluster creates
        an empty log, and marks the replica as incomplete. This includes the logs of a log directory
        that the broker had at its last start, and has no more. After a stop that was not clean, each log
        without a folder can be one of these.

        Args:
            hosted: partitions of this broker, with their topic ids.
            config_of: returns the settings of a topic, by its name.
            is_deleted: called with a partition and a topic id that were found on disk. If it returns True,
                the topic was deleted, and the folder is deleted. For a copy that an interrupted move between
                log directories left behind, the topic name of the partition is empty.
        """
        start = Start(hosted, config_of, is_deleted, known=set(hosted))
        self._lost.find_missing_directories()
        found = {directory: self._folders.examine(directory, start) for directory in self._directories}
        await self._opener.open_all(
            {
                directory: [Wanted(each, hosted[each], config_of(each.topic)) for each in partitions]
                for directory, partitions in found.items()
                if partitions
            }
        )
        withdrawn = FewLines(log)
        for topic_partition, directories in start.holders.items():
            if directories[1:]:
                self._withdraw_unless_all_open(topic_partition, directories, withdrawn)
                start.outdated.update(self._moves.keep_latest(topic_partition, directories))
        withdrawn.end("logs are in two directories, and cannot be opened in one of them")
        if self._is_clustered:
            start.outdated.update(await self._lost.note_incomplete(start))
        for directory in self._directories:
            if directory not in start.unseen:
                await self._moves.load_copies(directory, hosted, config_of, is_deleted)
        self._unopened.note_recovered()
        await self._write_checkpoints(start)
        self._lost.refuse(hosted)
        self._lost.account(hosted, is_deleted)
        for directory in self._directories:
            directory.forget_start()

    def _withdraw_unless_all_open(
        self, topic_partition: TopicPartition, directories: Sequence[LogDirectory], lines: FewLines
    ) -> None:
        """Close a log that has folders in several directories, unless all of these folders could be opened.

        The folder that cannot be opened may have more records.

        Args:
            topic_partition: partition of the log.
            directories: the directories with a folder of the partition.
            lines: logs the error.
        """
        missing = [each for each in directories if topic_partition not in each.logs]
        if not missing:
            return
        for directory in directories:
            if opened := directory.logs.pop(topic_partition, None):
                opened.abandon()
                lines.log(
                    "%s is in %s and in %s, where it cannot be opened and may have more records: it is not "
                    "served until both can be compared",
                    topic_partition,
                    directory.path,
                    missing[0].path,
                )
        self._unopened.ambiguous[topic_partition] = list(directories)

    async def _write_checkpoints(self, start: Start) -> None:
        """Write the checkpoints that differ from the logs that were found."""
        for directory in self._directories:
            checkpoints = directory.checkpoints
            if directory not in start.unseen and checkpoints.forget_all_but(start.known):
                start.outdated.add(directory)
            is_outdated = directory in start.outdated or checkpoints.has_untagged_offsets
            await self._checkpoints.write_opened(directory, is_outdated=is_outdated)
