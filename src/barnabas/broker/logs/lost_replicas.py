"""Decides about the partitions of a broker that have no log at its start, and perhaps had records.

A log is *gone* if a checkpoint says that it had records, and its folder has no segment. It is *lost* if it
can be in a log directory that the start misses (`barnabas.broker.logs.missing_directories`).

- A broker without a cluster does not serve the partition, and does not create its log again.
- A broker of a cluster creates an empty log. A file in its folder marks the replica as incomplete, so that
  the broker copies it from the partition's leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import cycle

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import KafkaError
from barnabas.base.text import FewLines, logger_of
from barnabas.base.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs.directories import LogDirectories
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.found_folders import Start, few
from barnabas.broker.logs.incomplete import IncompleteReplicas
from barnabas.broker.logs.missing_directories import LogName, MissingDirectories
from barnabas.broker.logs.unopened import Postponed, UnopenedLogs
from barnabas.broker.storage import PartitionLog
from barnabas.broker.storage.harm import may_pass
from barnabas.broker.storage.incomplete import Mark, remove_mark

log = logger_of(__name__)


class LostReplicas:
    """Finds gone and lost logs, and creates those of a cluster again.

    Args:
        directories: the broker's log directories.
        unopened: the logs that could not be opened; gets the partitions that the broker does not serve.
        incomplete: gets the replicas that lack records.
        disk: threads for files.
        is_clustered: whether the broker belongs to a cluster.
    """

    def __init__(
        self,
        directories: LogDirectories,
        unopened: UnopenedLogs,
        incomplete: IncompleteReplicas,
        disk: Pool,
        *,
        is_clustered: bool,
    ) -> None:
        self._directories = directories
        self._unopened = unopened
        self._incomplete = incomplete
        self._disk = disk
        self._is_clustered = is_clustered
        #: as of the start
        self._missing = MissingDirectories([], are_all_open=False, is_clustered=is_clustered)
        self._created, self._not_created = FewLines(log), FewLines(log)
        #: whether `account` has ended
        self._is_accounted = False

    def find_missing_directories(self) -> None:
        """Compare the open directories with those that the broker had. Call this first."""
        self._missing = MissingDirectories(
            self._directories.opened,
            are_all_open=not self._directories.unopened,
            is_clustered=self._is_clustered,
        )

    # --- a broker of a cluster ---

    async def note_incomplete(self, start: Start) -> set[LogDirectory]:
        """Register the replicas that lack records as incomplete, and create empty logs for lost replicas.

        A replica lacks records if a file in its folder marks it, if its log cannot be opened, or if it is
        gone or lost. The replicas in `start.nameless` count as gone, too.

        Returns:
            The directories with new empty logs. The caller must write their checkpoints again.
        """
        for directory in self._directories:
            for topic_partition, mark in directory.folders.marks.items():
                opened = directory.logs.get(topic_partition)
                if opened is None:
                    continue
                if topic_partition in start.nameless or not await self._remove_mark_of_missing(opened, mark):
                    self._incomplete.note(topic_partition, opened.topic_id, mark, opened)
        gone = await self._find_gone(start)
        if self._directories.are_all_working:
            unopened = self._without_log(start.hosted) - self._unopened.ambiguous.keys()
            lost = self._find_lost(unopened - gone.keys() - self._unopened.directory_of.keys(), start.hosted)
            if lost:
                log.error(
                    "%d replicas are incomplete, since %s (%s); if a disk is not mounted, stop the broker, "
                    "and mount the disk",
                    len(lost),
                    self._missing,
                    few(lost),
                )
            # if possible not a new directory: it may be the folder below which a disk is not mounted
            known = [each for each in self._directories if each.known_directories]
            gone.update(zip(lost, cycle(known or self._directories.opened)))
        for topic_partition, directory in gone.items():
            topic_id, config = start.hosted[topic_partition], start.config_of(topic_partition.topic)
            await self.begin_anew(directory, topic_partition, topic_id, config)
        self.end_lines()
        for topic_partition, broken in self._unopened.directory_of.items():
            if broken is not None and topic_partition in start.hosted:
                self._incomplete.note(
                    topic_partition, start.hosted[topic_partition], Mark("it cannot be opened"), None
                )
        return set(gone.values())

    async def _find_gone(self, start: Start) -> dict[TopicPartition, LogDirectory]:
        """Return the replicas whose files are gone, each with the directory that had them."""
        gone = dict(start.nameless)
        is_everything_seen = self._directories.are_all_working
        unopened = self._without_log(start.hosted) - self._unopened.ambiguous.keys()
        for directory in self._directories:
            for topic_partition in sorted(unopened) if directory.failure is None else ():
                is_here = self._unopened.directory_of.get(topic_partition) is directory
                is_lost = topic_partition not in self._unopened and is_everything_seen
                if not (is_here or is_lost) or not directory.checkpoints.recovery_point_of(
                    topic_partition, start.hosted[topic_partition]
                ):
                    continue
                try:
                    if await self._disk.run(directory.folders.is_gone, topic_partition):
                        gone[topic_partition] = directory
                except OSError as error:
                    directory.env.handle_error(topic_partition, error)
        return gone

    async def begin_anew(
        self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig
    ) -> None:
        """Create an empty log for a replica whose files are gone, and mark the replica as incomplete.

        If that fails, log an error. The partition is then in `UnopenedLogs`. After all calls, call
        `end_lines`.
        """
        end = directory.checkpoints.recovery_point_of(topic_partition, topic_id)
        if end:
            mark = Mark(f"its records up to offset {end - 1} were gone")
        elif self._missing:
            mark = Mark(str(self._missing), directories=tuple(sorted(self._missing.ids)))
        else:
            mark = Mark("its folder was set aside")
        self._unopened.add(topic_partition, directory)
        try:
            await self._disk.run(directory.folders.mark_incomplete, topic_partition, topic_id, mark)
            directory.folders.marks[topic_partition] = mark
            directory.checkpoints.forget(topic_partition)
            opened = await self._disk.run(directory.load, topic_partition, topic_id, config)
        except (OSError, KafkaError) as error:
            if isinstance(error, OSError):
                directory.env.handle_error(topic_partition, error)
            if may_pass(error) or may_pass(error.__cause__):
                self._unopened.postponed[topic_partition] = Postponed(topic_id, config, is_gone=True)
            else:
                self._unopened.postponed.pop(topic_partition, None)
            self._not_created.log(
                "%s/%s is missing, and cannot be created again: %s", directory.path, topic_partition, error
            )
            return
        self._unopened.remove(topic_partition)
        self._incomplete.note(topic_partition, topic_id, mark, directory.adopt(opened))
        self._created.log(
            "%s/%s is created again, empty, and is copied from the partition's leader: %s",
            directory.path,
            topic_partition,
            mark.reason,
        )

    def end_lines(self) -> None:
        """Log how many more logs `begin_anew` has created, or could not create."""
        self._created.end("logs are created again, empty")
        self._not_created.end("logs are missing, and cannot be created again")

    async def _remove_mark_of_missing(self, opened: PartitionLog, mark: Mark) -> bool:
        """Remove the mark of a replica if the missing directories are here again, and have no log of it.

        Such a replica never had a record. Return False, and change nothing, if the replica is incomplete.
        """
        topic_partition = opened.topic_partition
        there = {
            each.directory_id for each in self._directories if each.failure is None and each.knows_its_logs
        }
        if (
            not mark.directories
            or not there.issuperset(mark.directories)
            or opened.log_end_offset
            or topic_partition in self._unopened
            or sum(topic_partition in each.folders.marks for each in self._directories) > 1
            or any(
                each.checkpoints.recovery_point_of(topic_partition, opened.topic_id)
                for each in self._directories
            )
        ):
            return False
        try:
            await self._disk.run(remove_mark, opened.files.env.fs, opened.files.path)
        except OSError as error:
            opened.files.env.handle_error(topic_partition, error)
            return False
        log.info("%s had no records in the log directory that was missing", topic_partition)
        return True

    # --- a broker without a cluster, and what is left in a cluster ---

    def refuse(self, hosted: Mapping[TopicPartition, TopicId]) -> None:
        """Add the partitions whose log is gone or lost to `UnopenedLogs`, so that it is not created again."""
        if not self._directories.are_all_working:
            self._unopened.directory_of.update(dict.fromkeys(self._without_log(hosted)))
        gone = FewLines(log)
        for topic_partition in sorted(self._without_log(hosted) - self._unopened.directory_of.keys()):
            for directory in self._directories:
                if end := directory.checkpoints.recovery_point_of(topic_partition, hosted[topic_partition]):
                    gone.log(
                        "%s/%s is gone with its records up to offset %d: put it back from a backup, or have "
                        "`barnabas log repair` create the partition again",
                        directory.path,
                        topic_partition,
                        end - 1,
                    )
                    self._unopened.add(topic_partition, directory)
        gone.end("logs are gone with their records")
        lost = self._find_lost(self._without_log(hosted) - self._unopened.directory_of.keys(), hosted)
        if lost:
            self._unopened.directory_of.update(dict.fromkeys(lost))
            log.error(
                "%d partitions are not served: %s, and can have their logs (%s); add it to log.dirs again, "
                "or mount its disk. If it is lost, have `barnabas log repair` forget it with its records",
                len(lost),
                self._missing,
                few(lost),
            )

    def _without_log(self, hosted: Mapping[TopicPartition, TopicId]) -> set[TopicPartition]:
        """Return the partitions of this broker without an open log."""
        return hosted.keys() - {tp for directory in self._directories for tp in directory.logs}

    def _find_lost(
        self, partitions: Collection[TopicPartition], hosted: Mapping[TopicPartition, TopicId]
    ) -> list[TopicPartition]:
        """Return those of `partitions`, which have no log here, whose log can be in a missing directory."""
        blank = set().union(*(each.folders.blank for each in self._directories))
        return self._missing.find_lost({each: hosted[each] for each in partitions}, blank)

    # --- the lists in the directories ---

    def account(
        self,
        hosted: Mapping[TopicPartition, TopicId],
        is_deleted: Callable[[TopicPartition, TopicId], bool],
    ) -> None:
        """Store in each directory the ids of the log directories in which the broker can have a log.

        Call this when the start has opened all logs.
        """
        found = {each.topic_partition: each.topic_id for each in self._directories.logs()}
        found |= {each: hosted[each] for each in self._unopened.directory_of.keys() & hosted.keys()}
        for directory in self._directories:
            found |= directory.folders.strangers
        missing = self._missing
        missing.account(found, is_deleted, is_everything_seen=self._directories.are_all_working)
        if missing.ids and missing.has_unaccounted:
            log.warning(
                "%s, and may have logs of topics that the broker does not know%s",
                missing,
                "" if self._is_clustered else "; if it is lost, have `barnabas log repair` forget it",
            )
        ids = missing.known_directories(are_all_served=not self._unopened.directory_of)
        for directory in self._directories:
            if directory.failure is None:
                try:
                    directory.store_directories(ids)
                except (OSError, ValueError) as error:
                    log.warning("%s: cannot store the log directories: %s", directory.path, error)
        self._is_accounted = True

    def logs_elsewhere(self, here: LogDirectory) -> Collection[LogName] | None:
        """Return the logs with files in other directories than `here`; None if not known or not needed.

        A log that is not open counts as one with files. If the start has failed, what `open` has read still
        holds.
        """
        if not self._is_accounted:
            return here.logs_elsewhere
        if len(here.known_directories) < 2 or self._missing.unaccounted is None:
            return None
        logs = set(self._missing.unaccounted)
        logs.update((topic_partition, ZERO_TOPIC_ID) for topic_partition in self._unopened.directory_of)
        for directory in self._directories:
            if directory is not here:
                logs.update(directory.folders.strangers.items())
                opened = directory.logs.items()
                logs.update((tp, each.topic_id) for tp, each in opened if not each.files.is_blank)
        return logs
