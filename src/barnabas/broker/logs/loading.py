"""Opens the logs of a broker at its start, and later those that could not be opened then."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle
from typing import NamedTuple

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.errors import KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import ZERO_TOPIC_ID, TopicId, TopicPartition, topic_id_to_str
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs.checkpointing import CheckpointWriter
from barnabas.broker.logs.directories import LogDirectories
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.incomplete import IncompleteReplicas
from barnabas.broker.logs.interrupted_moves import InterruptedMoves
from barnabas.broker.logs.missing_directories import LogName, MissingDirectories
from barnabas.broker.storage import PartitionLog
from barnabas.broker.storage.harm import may_pass
from barnabas.broker.storage.incomplete import Mark, remove_mark

log = logger_of(__name__)

#: a directory, a pool of threads, and the logs that these threads open in the directory
_Loading = tuple[LogDirectory, Pool, deque[tuple[TopicPartition, TopicId, TopicConfig]]]


class _Postponed(NamedTuple):
    """A log that could not be opened for lack of space, memory or open files. The broker tries again."""

    topic_id: TopicId
    config: TopicConfig
    #: whether all of its records are gone, so that it is opened empty
    is_gone: bool = False


@dataclass(slots=True)
class _Start:
    """The arguments of `LogLoader.load`, and what it has found in the directories."""

    hosted: Mapping[TopicPartition, TopicId]
    config_of: Callable[[str], TopicConfig]
    is_deleted: Callable[[TopicPartition, TopicId], bool]
    #: partitions whose entries stay in the checkpoints
    known: set[TopicPartition]
    #: the directories with a folder of each hosted partition
    holders: dict[TopicPartition, list[LogDirectory]] = field(default_factory=dict)
    #: directories that could not be read
    unseen: set[LogDirectory] = field(default_factory=set)
    #: replicas whose folders were renamed, because they do not show the topic id
    nameless: dict[TopicPartition, LogDirectory] = field(default_factory=dict)
    #: directories whose checkpoints must be written again
    outdated: set[LogDirectory] = field(default_factory=set)


class LogLoader:
    """Opens logs, and remembers those that could not be opened.

    Args:
        config: settings with which the broker was started.
        environment: provides the threads that open logs.
        disk: threads for other work on the disk.
        directories: the log directories; `load` needs them open.
        incomplete: gets the replicas that lack records.
        checkpoints: writes the checkpoints of the directories.
        undeleted: gets the deleted topics with a folder that could not be renamed.
        delete: deletes an open log.
        is_clustered: whether the broker belongs to a cluster.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        disk: Pool,
        directories: LogDirectories,
        incomplete: IncompleteReplicas,
        checkpoints: CheckpointWriter,
        *,
        undeleted: set[TopicId],
        delete: Callable[[TopicPartition], None],
        is_clustered: bool,
    ) -> None:
        self._config = config
        self._environment = environment
        self._disk = disk
        self._directories = directories
        self._incomplete = incomplete
        self._checkpoints = checkpoints
        self._undeleted = undeleted
        self._delete = delete
        self._is_clustered = is_clustered
        self._moves = InterruptedMoves(directories, incomplete, disk)
        #: as of `load`
        self._missing = MissingDirectories([], are_all_open=False, is_clustered=is_clustered)
        #: logs that could not be opened, each with its directory; None if the log can be in a directory that
        #: cannot be read
        self._unreadable: dict[TopicPartition, LogDirectory | None] = {}
        #: whether `load` has ended
        self._is_loaded = False
        #: logs in `_unreadable` that `open_postponed` tries to open again
        self._postponed: dict[TopicPartition, _Postponed] = {}
        #: logs in `_unreadable` with a folder in several directories: the broker serves such a log only after
        #: it has compared all of its folders
        self._ambiguous: dict[TopicPartition, list[LogDirectory]] = {}
        #: the log that `open_postponed` is opening in a thread
        self.opening: TopicPartition | None = None
        #: whether this log was deleted meanwhile
        self._is_opening_doomed = False

    async def load(
        self,
        hosted: Mapping[TopicPartition, TopicId],
        config_of: Callable[[str], TopicConfig],
        is_deleted: Callable[[TopicPartition, TopicId], bool] = lambda _partition, _topic_id: False,
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
        self._missing = MissingDirectories(
            self._directories.opened,
            are_all_open=not self._directories.unopened,
            is_clustered=self._is_clustered,
        )
        start = _Start(hosted, config_of, is_deleted, known=set(hosted))
        loading = [part for directory in self._directories for part in self._examine(directory, start)]
        await asyncio.gather(*(self._load(*each) for each in loading))
        for pool in dict.fromkeys(pool for _, pool, _ in loading):
            await pool.close()
        for topic_partition, directories in start.holders.items():
            if directories[1:]:
                self._withdraw_unless_all_open(topic_partition, directories)
                start.outdated.update(self._moves.keep_latest(topic_partition, directories))
        if self._is_clustered:
            start.outdated.update(await self._note_incomplete(start))
        for directory in self._directories:
            if directory not in start.unseen:
                await self._moves.load_copies(directory, hosted, config_of, is_deleted)
        self._note_recovered()
        for directory in self._directories:
            if directory not in start.unseen and directory.forget_all_but(start.known):
                start.outdated.add(directory)
            if directory in start.outdated or directory.has_untagged_offsets:
                await self._checkpoints.try_to_write_all(directory)
            elif directory.has_stale_offsets:
                await self._checkpoints.try_to_write(directory, LogDirectory.log_start_checkpoint)
        if not self._directories.are_all_working:
            self._unreadable.update(dict.fromkeys(hosted.keys() - self._open_logs()))
        self._refuse_gone(hosted)
        self._refuse_lost(hosted)
        self._account(hosted, is_deleted)
        for directory in self._directories:
            directory.forget_start()
        self._is_loaded = True

    def _examine(self, directory: LogDirectory, start: _Start) -> list[_Loading]:
        """Find the folders in a directory. Return the arguments of each call of `_load` for its logs."""
        try:
            found = directory.found()
        except OSError as error:
            directory.env.fail(error)
            start.unseen.add(directory)
            return []
        mine = [
            topic_partition
            for topic_partition, found_id in found.items()
            if self._is_of_hosted(directory, topic_partition, found_id, start)
        ]
        for topic_partition in sorted(directory.unread):  # `LogDirectory.load` looks into their folders
            start.known.add(topic_partition)
            if topic_partition in start.hosted:
                mine.append(topic_partition)
        for topic_partition in mine:
            start.holders.setdefault(topic_partition, []).append(directory)
        if directory.strangers:
            log.error(
                "%s: %d folders belong to no topic of this broker and are left alone: %s%s; if you "
                "need these topics, the metadata is out of date: stop the broker and run `barnabas log "
                "check`",
                directory.path,
                len(directory.strangers),
                *_few(list(directory.strangers)),
            )
        try:
            leftovers = directory.leftovers()
        except OSError as error:
            directory.env.handle_error("what is to be deleted", error)
        else:
            for task in leftovers:
                self._directories.run(task)
        if not mine:
            return []
        threads = self._config.num_recovery_threads_per_data_dir
        pool = self._environment.blocking.pool("recovery", threads)
        wanted = deque((each, start.hosted[each], start.config_of(each.topic)) for each in mine)
        return [(directory, pool, wanted)] * min(threads, len(mine))

    def _is_of_hosted(
        self, directory: LogDirectory, topic_partition: TopicPartition, found_id: TopicId, start: _Start
    ) -> bool:
        """Whether a folder has the log of a hosted partition. If not, note what it is.

        `found_id` is the topic id in the folder; zero if unknown. Rename the folder of a deleted topic.
        """
        topic_id = start.hosted.get(topic_partition)
        if start.is_deleted(topic_partition, found_id):
            if not self._directories.set_aside(directory, topic_partition, "delete"):
                self._undeleted.add(found_id)
            if directory.forget(topic_partition):
                start.outdated.add(directory)
            return False
        start.known.add(topic_partition)
        if topic_id is None:
            directory.strangers[topic_partition] = found_id
            return False
        if found_id not in (topic_id, ZERO_TOPIC_ID):
            log.error(
                "%s cannot be opened: its partition.metadata names the topic id %s, the topic "
                "has %s; stop the broker and remove that file if the folder is the topic's, else "
                "the folder",
                topic_partition,
                topic_id_to_str(found_id),
                topic_id_to_str(topic_id),
            )
            self._unreadable[topic_partition] = directory
            return False
        if found_id == ZERO_TOPIC_ID and directory.is_of_another_topic(topic_partition, topic_id):
            if self._is_clustered and self._directories.set_aside(directory, topic_partition):
                start.outdated.add(directory)
                if directory.was_clean:
                    start.nameless[topic_partition] = directory
                return False  # after a crash records that were not fsynced do not count
            log.error(
                "%s in %s cannot be opened: its folder does not say which topic it is of, and the "
                "checkpoints name another one of that name, which was deleted; stop the broker and "
                "run `barnabas log repair` if the folder is the topic's, else remove the folder",
                topic_partition,
                directory.path,
            )
            self._unreadable[topic_partition] = directory
            return False
        return True

    async def _load(
        self,
        directory: LogDirectory,
        pool: Pool,
        wanted: deque[tuple[TopicPartition, TopicId, TopicConfig]],
    ) -> None:
        """Take logs from `wanted` and open them in a thread of `pool`, until `wanted` is empty.

        Several calls, each with a thread of its own, share `wanted`.
        """
        loaded, failed = await pool.run(_load_logs, directory, wanted, self._config.barnabas_acks_fsync)
        for partition_log in loaded:
            directory.adopt(partition_log)
        for topic_partition, postponed in failed.items():
            self._unreadable[topic_partition] = directory
            if postponed is not None:
                self._postponed[topic_partition] = postponed

    def _note_recovered(self) -> None:
        """Allow the next stop to mark a directory as cleanly stopped.

        This applies to each directory that is online and whose logs are all open.
        """
        broken = {*self._unreadable.values(), *chain.from_iterable(self._ambiguous.values())}
        for directory in self._directories:
            if directory not in broken and directory.failure is None:
                directory.is_recovered = True

    def _withdraw_unless_all_open(
        self, topic_partition: TopicPartition, directories: Sequence[LogDirectory]
    ) -> None:
        """Close a log that has folders in several directories, unless all of these folders could be opened.

        The folder that cannot be opened may have more records.

        Args:
            topic_partition: partition of the log.
            directories: the directories with a folder of the partition.
        """
        missing = [each for each in directories if topic_partition not in each.logs]
        if not missing:
            return
        for directory in directories:
            if opened := directory.logs.pop(topic_partition, None):
                opened.abandon()
                log.error(
                    "%s is in %s and in %s, where it cannot be opened and may have more records: it is not "
                    "served until both can be compared",
                    topic_partition,
                    directory.path,
                    missing[0].path,
                )
        self._ambiguous[topic_partition] = list(directories)

    def _refuse_gone(self, hosted: Mapping[TopicPartition, TopicId]) -> None:
        """Make partitions unreadable whose log had records in a present directory, and has no folder."""
        for topic_partition in sorted(hosted.keys() - self._open_logs() - self._unreadable.keys()):
            for directory in self._directories:
                if end := directory.expects(topic_partition, hosted[topic_partition]):
                    log.error(
                        "%s/%s is gone with its records up to offset %d: put it back from a backup, or have "
                        "`barnabas log repair` create the partition again",
                        directory.path,
                        topic_partition,
                        end - 1,
                    )
                    self._unreadable[topic_partition] = directory

    def _find_lost(
        self, partitions: Collection[TopicPartition], hosted: Mapping[TopicPartition, TopicId]
    ) -> list[TopicPartition]:
        """Return those of `partitions`, which have no log here, whose log can be in a missing directory."""
        blank = set().union(*(each.blank for each in self._directories))
        return self._missing.find_lost({each: hosted[each] for each in partitions}, blank)

    def _refuse_lost(self, hosted: Mapping[TopicPartition, TopicId]) -> None:
        """Make lost partitions unreadable, so that they are not created again."""
        lost = self._find_lost(hosted.keys() - self._open_logs() - self._unreadable.keys(), hosted)
        if lost:
            self._unreadable.update(dict.fromkeys(lost))
            log.error(
                "%d partitions are not served: %s, and can have their logs (%s%s); add it to log.dirs again, "
                "or mount its disk. If it is lost, have `barnabas log repair` forget it with its records",
                len(lost),
                self._missing,
                *_few(lost),
            )

    def _account(
        self,
        hosted: Mapping[TopicPartition, TopicId],
        is_deleted: Callable[[TopicPartition, TopicId], bool],
    ) -> None:
        """Store in each directory the ids of the log directories in which the broker can have a log."""
        found = {each.topic_partition: each.topic_id for each in self._directories.logs()}
        found |= {each: hosted[each] for each in self._unreadable.keys() & hosted.keys()}
        for directory in self._directories:
            found |= directory.strangers
        missing = self._missing
        missing.account(found, is_deleted, is_everything_seen=self._directories.are_all_working)
        if missing.ids and missing.has_unaccounted:
            log.warning(
                "%s, and may have logs of topics that the broker does not know%s",
                missing,
                "" if self._is_clustered else "; if it is lost, have `barnabas log repair` forget it",
            )
        ids = missing.known_directories(are_all_served=not self._unreadable)
        for directory in self._directories:
            if directory.failure is None:
                try:
                    directory.store_directories(ids)
                except (OSError, ValueError) as error:
                    log.warning("%s: cannot store the log directories: %s", directory.path, error)

    async def _note_incomplete(self, start: _Start) -> set[LogDirectory]:
        """Add the replicas that lack records to `incomplete`, and create empty logs for lost replicas.

        A replica lacks records if a file in its folder marks it, if its log cannot be opened, or if it is
        lost. A replica is lost if a checkpoint says that it had records, and its folder has no segment. It
        also counts as lost if it can be in a log directory of the broker that is missing.

        The replicas in `start.nameless` count as lost, too.

        Returns:
            The directories with new empty logs. The caller must write their checkpoints again.
        """
        for directory in self._directories:
            for topic_partition, mark in directory.marks.items():
                opened = directory.logs.get(topic_partition)
                if opened is None:
                    continue
                if topic_partition in start.nameless or not await self._remove_mark_of_missing(opened, mark):
                    self._incomplete.note(topic_partition, opened.topic_id, mark, opened)
        gone = dict(start.nameless)
        is_everything_seen = self._directories.are_all_working
        unopened = start.hosted.keys() - self._open_logs() - self._ambiguous.keys()
        for directory in self._directories:
            for topic_partition in sorted(unopened) if directory.failure is None else ():
                is_here = self._unreadable.get(topic_partition) is directory
                is_lost = topic_partition not in self._unreadable and is_everything_seen
                if not (is_here or is_lost) or not directory.expects(
                    topic_partition, start.hosted[topic_partition]
                ):
                    continue
                try:
                    if await self._disk.run(directory.is_gone, topic_partition):
                        gone[topic_partition] = directory
                except OSError as error:
                    directory.env.handle_error(topic_partition, error)
        if is_everything_seen:
            lost = self._find_lost(unopened - gone.keys() - self._unreadable.keys(), start.hosted)
            if lost:
                log.error(
                    "%d replicas are incomplete, since %s (%s%s); if a disk is not mounted, stop the broker, "
                    "and mount the disk",
                    len(lost),
                    self._missing,
                    *_few(lost),
                )
            # if possible not a new directory: it may be the folder below which a disk is not mounted
            known = [each for each in self._directories if each.known_directories]
            gone.update(zip(lost, cycle(known or self._directories.opened)))
        for topic_partition, directory in gone.items():
            topic_id, config = start.hosted[topic_partition], start.config_of(topic_partition.topic)
            await self._begin_anew(directory, topic_partition, topic_id, config)
        for topic_partition, broken in self._unreadable.items():
            if broken is not None and topic_partition in start.hosted:
                self._incomplete.note(
                    topic_partition, start.hosted[topic_partition], Mark("it cannot be opened"), None
                )
        return set(gone.values())

    async def _begin_anew(
        self, directory: LogDirectory, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig
    ) -> None:
        """Create an empty log for a replica whose files are gone, and mark the replica as incomplete.

        If that fails, log an error. `create` then rejects the partition with KAFKA_STORAGE_ERROR.
        """
        end = directory.expects(topic_partition, topic_id)
        if end:
            mark = Mark(f"its records up to offset {end - 1} were gone")
        elif self._missing:
            mark = Mark(str(self._missing), directories=tuple(sorted(self._missing.ids)))
        else:
            mark = Mark("its folder was set aside")
        self._unreadable[topic_partition] = directory
        try:
            await self._disk.run(directory.mark_incomplete, topic_partition, topic_id, mark)
            directory.marks[topic_partition] = mark
            directory.forget(topic_partition)
            opened = await self._disk.run(directory.load, topic_partition, topic_id, config)
        except (OSError, KafkaError) as error:
            if isinstance(error, OSError):
                directory.env.handle_error(topic_partition, error)
            if may_pass(error) or may_pass(error.__cause__):
                self._postponed[topic_partition] = _Postponed(topic_id, config, is_gone=True)
            else:
                self._postponed.pop(topic_partition, None)
            log.error(
                "%s/%s is missing, and cannot be created again: %s", directory.path, topic_partition, error
            )
            return
        del self._unreadable[topic_partition]
        self._postponed.pop(topic_partition, None)
        self._incomplete.note(topic_partition, topic_id, mark, directory.adopt(opened))
        log.error(
            "%s/%s is created again, empty, and is copied from the partition's leader: %s",
            directory.path,
            topic_partition,
            mark.reason,
        )

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
            or topic_partition in self._unreadable
            or sum(topic_partition in each.marks for each in self._directories) > 1
            or any(each.expects(topic_partition, opened.topic_id) for each in self._directories)
        ):
            return False
        try:
            await self._disk.run(remove_mark, opened.files.env.fs, opened.files.path)
        except OSError as error:
            opened.files.env.handle_error(topic_partition, error)
            return False
        log.info("%s had no records in the log directory that was missing", topic_partition)
        return True

    async def open_postponed(self) -> set[TopicPartition]:
        """Try again to open the logs for which `load` had too little space, memory or open files.

        In each directory, stop at the first log that still cannot be opened.

        Returns:
            The partitions whose log is open now, and the partitions whose log was deleted during this call.
            `create` can create a new log for a deleted one.
        """
        opened: set[TopicPartition] = set()
        for directory in self._directories:
            for topic_partition in [tp for tp in self._postponed if self._unreadable.get(tp) is directory]:
                if directory.failure is not None:
                    break
                await asyncio.shield(self._checkpoints.share(self._open_again(directory, topic_partition)))
                if topic_partition in self._postponed:
                    break
                if topic_partition not in self._unreadable:
                    opened.add(topic_partition)
        if opened:
            late = [found for each in opened if (found := self._directories.find_log(each))]
            await asyncio.shield(self._checkpoints.share(self._moves.load_copies_of(late)))
            self._incomplete.on_change()
        return opened

    async def _open_again(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Try again to open one postponed log. It stays postponed only if a later attempt may succeed."""
        postponed = self._postponed.get(topic_partition)
        if postponed is None or self._directories.find_log(topic_partition) is not None:
            self._postponed.pop(topic_partition, None)  # it was deleted, or is in another directory, too
            return
        self.opening, self._is_opening_doomed = topic_partition, False
        try:
            if postponed.is_gone:
                await self._begin_anew(directory, topic_partition, postponed.topic_id, postponed.config)
            else:
                await self._load_again(directory, topic_partition, postponed)
        finally:
            self.opening = None
        if self._is_opening_doomed:
            self._undeleted.discard(postponed.topic_id)
            self._delete(topic_partition)

    async def _load_again(
        self, directory: LogDirectory, topic_partition: TopicPartition, postponed: _Postponed
    ) -> None:
        pool = self._environment.blocking.pool("recovery", 1)
        topic_id, config = postponed.topic_id, postponed.config
        load = partial(_load_log, acks_fsync=self._config.barnabas_acks_fsync)
        directories = self._ambiguous.get(topic_partition, [directory])
        found: dict[LogDirectory, PartitionLog] = {}
        try:
            for each in directories:
                found[each] = await pool.run(load, each, topic_partition, topic_id, config)
        except Exception as error:
            for other in found.values():
                other.abandon()
            if not may_pass(error.__cause__):
                del self._postponed[topic_partition]
                log.error("%s cannot be opened: %s", topic_partition, error)
            return
        finally:
            await pool.close()
        for each, partition_log in found.items():
            each.adopt(partition_log)
        outdated = set(self._moves.keep_latest(topic_partition, directories))
        for each in directories:
            if each in outdated:
                await self._checkpoints.try_to_write_all(each)
            elif each.has_stale_offsets:
                await self._checkpoints.try_to_write(each, LogDirectory.log_start_checkpoint)
        del self._postponed[topic_partition], self._unreadable[topic_partition]
        self._ambiguous.pop(topic_partition, None)
        self._note_recovered()
        directory = self._directories.holder_of(topic_partition)
        opened = directory.logs[topic_partition]
        mark = directory.marks.get(topic_partition)
        if mark is None:
            self._incomplete.forget(topic_partition)
        else:
            self._incomplete.note(topic_partition, topic_id, mark, opened)
        log.info("%s is open now", topic_partition)

    def is_unreadable(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of a partition could not be opened, or can be in a missing directory."""
        return topic_partition in self._unreadable

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Forget a deleted log. Rename its folder if the log could not be opened.

        Return False if a thread is opening the log: `open_postponed` deletes it after that.
        """
        if topic_partition == self.opening:
            self._is_opening_doomed = True
            self._undeleted.add(self._postponed[topic_partition].topic_id)
            return False
        self._postponed.pop(topic_partition, None)
        broken = self._unreadable.pop(topic_partition, None)
        for each in self._ambiguous.pop(topic_partition, () if broken is None else (broken,)):
            self._directories.set_aside(each, topic_partition)
            each.forget(topic_partition)
        return True

    def logs_elsewhere(self, here: LogDirectory) -> Collection[LogName] | None:
        """Return the logs with files in other directories than `here`; None if not known or not needed.

        A log that is not open counts as one with files. If the start has failed, what `open` has read still
        holds.
        """
        if not self._is_loaded:
            return here.logs_elsewhere
        if len(here.known_directories) < 2 or self._missing.unaccounted is None:
            return None
        logs = set(self._missing.unaccounted)
        logs.update((topic_partition, ZERO_TOPIC_ID) for topic_partition in self._unreadable)
        for directory in self._directories:
            if directory is not here:
                logs.update(directory.strangers.items())
                opened = directory.logs.items()
                logs.update((tp, each.topic_id) for tp, each in opened if not each.files.is_blank)
        return logs

    def _open_logs(self) -> set[TopicPartition]:
        return {topic_partition for directory in self._directories for topic_partition in directory.logs}


def _few(partitions: Sequence[TopicPartition]) -> tuple[str, str]:
    """Return the first of `partitions` as a text for the log, and dots if there are more."""
    return ", ".join(map(str, partitions[:5])), ", ..." if partitions[5:] else ""


def _load_logs(
    directory: LogDirectory, wanted: deque[tuple[TopicPartition, TopicId, TopicConfig]], acks_fsync: bool
) -> tuple[list[PartitionLog], dict[TopicPartition, _Postponed | None]]:
    """Take logs from `wanted` and load them, until `wanted` is empty. Other threads take from it, too.

    `acks_fsync` says whether to flush each log from which recovery has read records (`_load_log`).

    Return (loaded logs, failed logs). The failed logs are a dictionary by partition. The value is a
    `_Postponed` if a later attempt may succeed, and None if it cannot.
    """
    loaded: list[PartitionLog] = []
    failed: dict[TopicPartition, _Postponed | None] = {}
    while True:
        try:
            topic_partition, topic_id, config = wanted.popleft()
        except IndexError:  # the other threads have taken the rest
            return loaded, failed
        try:
            loaded.append(_load_log(directory, topic_partition, topic_id, config, acks_fsync))
        except Exception as error:
            is_passing = may_pass(error.__cause__)
            failed[topic_partition] = _Postponed(topic_id, config) if is_passing else None
            if isinstance(error, KafkaError):
                again = ": it is tried again" if is_passing else ""
                log.error("%s cannot be opened: %s%s", topic_partition, error.message, again)
            else:  # a bug, or unforeseen damage: the others are opened all the same
                log.exception("%s cannot be opened", topic_partition)


def _load_log(
    directory: LogDirectory,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: TopicConfig,
    acks_fsync: bool,
) -> PartitionLog:
    """Load one log. Flush the log if recovery has read at least one record and `acks_fsync` is true.

    Without `acks_fsync`, flush the log if recovery has read at least `flush.messages` records.

    Raises KafkaError if the log cannot be loaded.
    """
    opened = directory.load(topic_partition, topic_id, config)
    every = 1 if acks_fsync else config.flush_messages
    if opened.log_end_offset - opened.recovery_point >= every:
        with contextlib.suppress(KafkaError):  # then it counts when it is fsynced later, if ever
            opened.flush()
    return opened
