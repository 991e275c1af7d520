"""Manages the logs of a broker in all of its log directories."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, cycle
from typing import Any, NamedTuple, Protocol

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.errors import ConfigError, ErrorCode, KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import ZERO_TOPIC_ID, Offset, TopicId, TopicPartition, topic_id_to_str
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs import DirectoryLocked, LogDirectory
from barnabas.broker.logs.incomplete import IncompleteReplicas
from barnabas.broker.logs.missing_directories import LogName, MissingDirectories
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite
from barnabas.broker.storage import OpenFiles, PartitionLog
from barnabas.broker.storage.checkpoints import LOG_STARTS, NO_BROKER_EPOCH, RECOVERY_POINTS
from barnabas.broker.storage.harm import hint_of, may_pass
from barnabas.broker.storage.incomplete import Mark, remove_mark
from barnabas.broker.storage.log_end import LogEnd, longest_log
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.retention import delete_old_segments, prepare_deletion
from barnabas.broker.storage.tasks import Removal, TreeRemoval
from barnabas.broker.storage.truncation import Truncation, begin_truncation, prepare_truncation, sync_sealed

log = logger_of(__name__)

_MAX_OPEN_FILES = 16_384
#: most replicas for which a preferred directory is remembered
_MAX_PREFERRED = 10_000
#: how many logs are checked in one turn of the event loop
_LOGS_A_TURN = 100
#: other open files of the process: metadata store, locks, event loop, and those of an embedding program
_OTHER_FILES = 64


class Task(Protocol):
    """A task that blocks on the disk (`barnabas.broker.storage.tasks`)."""

    def run(self) -> None: ...


class _Postponed(NamedTuple):
    """A log that could not be opened for lack of space, memory or open files. The broker tries again."""

    topic_id: TopicId
    config: TopicConfig
    #: whether all of its records are gone, so that it is opened empty
    is_gone: bool = False


class LogManager:
    """Opens, creates, deletes and closes logs, each in its log directory. Only the event loop may use it.

    Args:
        config: settings with which the broker was started.
        environment: provides the file system, the clock and threads.
        disk: threads for fsyncs, checkpoints and deletions.
        on_failure: called on the event loop with the path of a directory that goes offline.
        is_clustered: whether this broker belongs to a cluster. If True, it can copy a lost replica again from
            another broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        disk: Pool,
        on_failure: Callable[[str], None],
        *,
        is_clustered: bool = False,
    ) -> None:
        self._config = config
        self._is_clustered = is_clustered
        #: replicas that lack records which they had acknowledged; empty in a lone broker
        self.incomplete = IncompleteReplicas(disk)
        self._environment = environment
        fs = environment.filesystem
        self._files = OpenFiles(fs, _open_files(fs))
        self._clock = environment.clock
        self._disk = disk
        self._on_failure = on_failure
        self._directories: list[LogDirectory] = []
        self._missing = MissingDirectories([], are_all_open=False, is_clustered=is_clustered)
        #: errors of the configured directories that could not be opened, by path
        self.unopened: dict[str, OSError] = {}
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
        #: the log that `open_postponed` is opening in a thread, and whether it was deleted meanwhile
        self._opening: TopicPartition | None = None
        self._is_opening_doomed = False
        self._removals: dict[asyncio.TimerHandle, None] = {}
        #: held while a checkpoint is written: two writers would corrupt the file
        self._checkpointing = asyncio.Lock()
        #: running writes that several requests may await
        self._shared_writes: dict[asyncio.Future[None], None] = {}
        #: writes of log start offsets that have not begun yet
        self._log_start_writes: dict[LogDirectory, asyncio.Future[None]] = {}
        #: writes of lowered recovery points that have not begun yet
        self._recovery_point_writes: dict[LogDirectory, asyncio.Future[None]] = {}
        #: logs whose recovery point on disk is still the old, higher one: the next write must lower it
        self._lowered: dict[PartitionLog, None] = {}
        #: directories whose checkpoints name logs that have moved to other brokers
        self._outdated: dict[LogDirectory, None] = {}
        self._writing_outdated: asyncio.Task[None] | None = None
        #: the directory chosen by an administrator for each replica that this broker does not have yet
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        #: deleted topics with a folder that could not be removed
        self._undeleted: set[TopicId] = set()
        #: old files of logs that have moved, until their new files are durable
        self._superseded: dict[PartitionLog, tuple[LogDirectory, LogFiles]] = {}
        self._is_closed = False

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """The log directories that could be opened, offline or not."""
        return self._directories

    @property
    def previous_epoch(self) -> int:
        """The broker epoch that every directory stored at the last clean stop (KIP-966).

        The result is -1 if the directories stored different epochs, or if the stop of a directory was not
        clean. It is also -1 if a directory or its recovery point checkpoint could not be read.
        """
        epochs = {directory.previous_epoch for directory in self._directories}
        if self.unopened or not all(directory.knows_its_logs for directory in self._directories):
            return NO_BROKER_EPOCH
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def set_broker_epoch(self, epoch: int) -> None:
        """Set the broker epoch that a clean stop stores in every directory."""
        for directory in self._directories:
            directory.broker_epoch = epoch

    @property
    def failed_directories(self) -> list[str]:
        """The directories that cannot be used: their ids, or the paths of those that could not be opened."""
        offline = (each.directory_id for each in self._directories if each.failure is not None)
        return sorted((*offline, *self.unopened))

    @property
    def is_closed(self) -> bool:
        """Whether the manager was closed.

        `delete` then does nothing. The caller must not create logs, because another broker may use the
        directories.
        """
        return self._is_closed

    def __iter__(self) -> Iterator[PartitionLog]:
        for directory in self._directories:
            yield from directory.logs.values()

    @property
    def _is_everything_seen(self) -> bool:
        """Whether all configured directories could be opened, and work."""
        return not self.unopened and all(each.failure is None for each in self._directories)

    def find_directory(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory of a log; None if there is no such log."""
        for directory in self._directories:
            if topic_partition in directory.logs:
                return directory
        return None

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the log directory of a log. Raises KeyError if there is no such log."""
        directory = self.find_directory(topic_partition)
        if directory is None:
            raise KeyError(topic_partition)
        return directory

    def directory_at(self, path: str) -> LogDirectory:
        """Return the configured log directory at `path`.

        Raises:
            KafkaError: LOG_DIR_NOT_FOUND, none has this path; KAFKA_STORAGE_ERROR, the directory is offline.
        """
        for directory in self._directories:
            if directory.path == path:
                if directory.failure is not None:
                    raise directory.env.offline_error()
                return directory
        if path in self.unopened:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of this broker's log directories")

    def prefer(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Choose the directory for a replica that may be created later.

        The manager keeps the latest `_MAX_PREFERRED` choices, and loses them at a restart.
        """
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = directory
        if len(self._preferred) > _MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def copy_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory to which a log is being moved; None if it is not being moved."""
        for directory in self._directories:
            if topic_partition in directory.futures:
                return directory
        return None

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
        cleaned_to = self.directory_of(topic_partition).cleaned_to.get(topic_partition)
        if cleaned_to is not None:
            directory.note_clean(topic_partition, cleaned_to)  # `_is_outdated` needs it

    async def store_cleaned(self, directory: LogDirectory) -> None:
        """Write the cleaned checkpoint of `directory`, if it has changed.

        Call it before a copy in `directory` gets its first record: `_is_outdated` needs it after a crash.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed.
        """
        try:
            await self.checkpoint_one(directory, LogDirectory.cleaned_checkpoint)
        except OSError as error:
            raise directory.env.handle_error("a checkpoint", error) from error

    def drop_copy(self, topic_partition: TopicPartition) -> None:
        """Cancel the move of a log, if there is one, and delete the copy. The log stays where it is."""
        directory = self.copy_of(topic_partition)
        if directory is None:
            return
        removal = directory.drop_future(topic_partition)
        if removal is not None:
            self._run(removal)

    # --- start and stop ---

    def open(self, cluster_id: str) -> None:
        """Lock the log directories, and read their checkpoints and `meta.properties`. `load` opens the logs.

        If a directory cannot be read or locked because of an OSError, log the error, and add the error to
        `unopened`.

        Args:
            cluster_id: id of the cluster to which the directories must belong.

        Raises:
            ConfigError: another broker uses or owns a directory, its `meta.properties` is damaged, or no
                directory can be opened.
        """
        loop = asyncio.get_running_loop()
        for name in self._config.log_dirs:
            path = self._environment.filesystem.absolute_path(name)

            def failed(_error: OSError, path: str = path) -> None:
                # A thread that loads a log may be the one to find out.
                loop.call_soon_threadsafe(self._on_failure, path)

            try:
                directory = LogDirectory.open(
                    self._files,
                    path,
                    self._environment,
                    cluster_id=cluster_id,
                    node_id=self._config.node_id,
                    is_clustered=self._is_clustered,
                    on_failure=failed,
                )
            except DirectoryLocked as error:
                raise ConfigError(str(error)) from error
            except OSError as error:
                log.error("log directory %s cannot be used: %s%s", path, error, hint_of(error))
                self.unopened[path] = error
                continue
            self._directories.append(directory)
        self._missing = MissingDirectories(
            self._directories, are_all_open=not self.unopened, is_clustered=self._is_clustered
        )
        if not self._directories:
            reasons = "; ".join(f"{path}: {error}{hint_of(error)}" for path, error in self.unopened.items())
            raise ConfigError(f"log.dirs: no directory can be used ({reasons})")

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
        known = set(hosted)
        holders: dict[TopicPartition, list[LogDirectory]] = {}
        unseen: set[LogDirectory] = set()
        #: replicas whose folders were renamed, because they do not show the topic id
        nameless: dict[TopicPartition, LogDirectory] = {}
        outdated: set[LogDirectory] = set()
        loading: list[tuple[LogDirectory, Pool, deque[tuple[TopicPartition, TopicId, TopicConfig]]]] = []
        threads = self._config.num_recovery_threads_per_data_dir
        for directory in self._directories:
            wanted: deque[tuple[TopicPartition, TopicId, TopicConfig]] = deque()
            unknown: dict[TopicPartition, TopicId] = {}
            try:
                found = directory.found()
            except OSError as error:
                directory.env.fail(error)
                unseen.add(directory)
                continue
            for topic_partition, found_id in found.items():
                topic_id = hosted.get(topic_partition)
                if is_deleted(topic_partition, found_id):
                    if not self._set_aside(directory, topic_partition, "delete"):
                        self._undeleted.add(found_id)
                    if directory.forget(topic_partition):
                        outdated.add(directory)
                    continue
                known.add(topic_partition)
                if topic_id is None:
                    unknown[topic_partition] = found_id
                    continue
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
                    continue
                if found_id == ZERO_TOPIC_ID and directory.is_of_another_topic(topic_partition, topic_id):
                    if self._is_clustered and self._set_aside(directory, topic_partition):
                        outdated.add(directory)
                        if directory.was_clean:
                            nameless[topic_partition] = directory
                        continue  # after a crash records that were not fsynced do not count
                    log.error(
                        "%s in %s cannot be opened: its folder does not say which topic it is of, and the "
                        "checkpoints name another one of that name, which was deleted; stop the broker and "
                        "run `barnabas log repair` if the folder is the topic's, else remove the folder",
                        topic_partition,
                        directory.path,
                    )
                    self._unreadable[topic_partition] = directory
                    continue
                wanted.append((topic_partition, topic_id, config_of(topic_partition.topic)))
                holders.setdefault(topic_partition, []).append(directory)
            for topic_partition in sorted(directory.unread):  # `LogDirectory.load` looks into their folders
                known.add(topic_partition)
                topic_id = hosted.get(topic_partition)
                if topic_id is not None:
                    wanted.append((topic_partition, topic_id, config_of(topic_partition.topic)))
                    holders.setdefault(topic_partition, []).append(directory)
            if wanted:
                pool = self._environment.blocking.pool("recovery", threads)
                loading += [(directory, pool, wanted)] * min(threads, len(wanted))
            directory.strangers = unknown
            if unknown:
                log.error(
                    "%s: %d folders belong to no topic of this broker and are left alone: %s%s; if you "
                    "need these topics, the metadata is out of date: stop the broker and run `barnabas log "
                    "check`",
                    directory.path,
                    len(unknown),
                    *_few(list(unknown)),
                )
            try:
                leftovers = directory.leftovers()
            except OSError as error:
                directory.env.handle_error("what is to be deleted", error)
                continue
            for task in leftovers:
                self._run(task)
        await asyncio.gather(*(self._load(*each) for each in loading))
        for pool in dict.fromkeys(pool for _, pool, _ in loading):
            await pool.close()
        for topic_partition, directories in holders.items():
            if directories[1:]:
                self._withdraw_unless_all_open(topic_partition, directories)
                outdated.update(self._keep_latest(topic_partition, directories))
        if self._is_clustered:
            outdated.update(await self._note_incomplete(hosted, config_of, nameless))
        for directory in self._directories:
            if directory not in unseen:
                await self._load_copies(directory, hosted, config_of, is_deleted)
        self._note_recovered()
        for directory in self._directories:
            if directory not in unseen and directory.forget_all_but(known):
                outdated.add(directory)
            if directory in outdated or directory.has_untagged_offsets:
                await self._write_checkpoints(directory)
            elif directory.has_stale_offsets:
                await self._write_checkpoint(directory, LogDirectory.log_start_checkpoint)
        if self.unopened or any(directory.failure is not None for directory in self._directories):
            self._unreadable.update(dict.fromkeys(hosted.keys() - self._open_logs()))
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
        self._refuse_lost(hosted)
        self._account(hosted, is_deleted)
        for directory in self._directories:
            directory.forget_start()
        self._is_loaded = True

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
        found = {each.topic_partition: each.topic_id for each in self}
        found |= {each: hosted[each] for each in self._unreadable.keys() & hosted.keys()}
        for directory in self._directories:
            found |= directory.strangers
        missing = self._missing
        missing.account(found, is_deleted, is_everything_seen=self._is_everything_seen)
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

    async def _note_incomplete(
        self,
        hosted: Mapping[TopicPartition, TopicId],
        config_of: Callable[[str], TopicConfig],
        nameless: Mapping[TopicPartition, LogDirectory],
    ) -> set[LogDirectory]:
        """Add the replicas that lack records to `incomplete`, and create empty logs for lost replicas.

        A replica lacks records if a file in its folder marks it, if its log cannot be opened, or if it is
        lost. A replica is lost if a checkpoint says that it had records, and its folder has no segment. It
        also counts as lost if it can be in a log directory of the broker that is missing.

        Args:
            hosted: partitions of this broker, with their topic ids.
            config_of: returns the settings of a topic, by its name.
            nameless: replicas whose folders `load` has renamed, because the folders do not contain a topic
                id. These replicas count as lost, too.

        Returns:
            The directories with new empty logs. The caller must write their checkpoints again.
        """
        for directory in self._directories:
            for topic_partition, mark in directory.marks.items():
                opened = directory.logs.get(topic_partition)
                if opened is None:
                    continue
                if topic_partition in nameless or not await self._remove_mark_of_missing(opened, mark):
                    self.incomplete.note(topic_partition, opened.topic_id, mark, opened)
        gone = dict(nameless)
        is_everything_seen = self._is_everything_seen
        unopened = hosted.keys() - self._open_logs() - self._ambiguous.keys()
        for directory in self._directories:
            for topic_partition in sorted(unopened) if directory.failure is None else ():
                is_here = self._unreadable.get(topic_partition) is directory
                is_lost = topic_partition not in self._unreadable and is_everything_seen
                if not (is_here or is_lost) or not directory.expects(
                    topic_partition, hosted[topic_partition]
                ):
                    continue
                try:
                    if await self._disk.run(directory.is_gone, topic_partition):
                        gone[topic_partition] = directory
                except OSError as error:
                    directory.env.handle_error(topic_partition, error)
        if is_everything_seen:
            lost = self._find_lost(unopened - gone.keys() - self._unreadable.keys(), hosted)
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
            gone.update(zip(lost, cycle(known or self._directories)))
        for topic_partition, directory in gone.items():
            topic_id, config = hosted[topic_partition], config_of(topic_partition.topic)
            await self._begin_anew(directory, topic_partition, topic_id, config)
        for topic_partition, broken in self._unreadable.items():
            if broken is not None and topic_partition in hosted:
                self.incomplete.note(
                    topic_partition, hosted[topic_partition], Mark("it cannot be opened"), None
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
        self.incomplete.note(topic_partition, topic_id, mark, directory.adopt(opened))
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
                await asyncio.shield(self._share(self._open_again(directory, topic_partition)))
                if topic_partition in self._postponed:
                    break
                if topic_partition not in self._unreadable:
                    opened.add(topic_partition)
        if opened:
            late = [found for each in opened if (found := self.get(each))]
            await asyncio.shield(self._share(self._load_copies_of(late)))
            self.incomplete.on_change()
        return opened

    async def _open_again(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Try again to open one postponed log. It stays postponed only if a later attempt may succeed."""
        postponed = self._postponed.get(topic_partition)
        if postponed is None or self.get(topic_partition) is not None:
            self._postponed.pop(topic_partition, None)  # it was deleted, or is in another directory, too
            return
        self._opening, self._is_opening_doomed = topic_partition, False
        try:
            if postponed.is_gone:
                await self._begin_anew(directory, topic_partition, postponed.topic_id, postponed.config)
            else:
                await self._load_again(directory, topic_partition, postponed)
        finally:
            self._opening = None
        if self._is_opening_doomed:
            self._undeleted.discard(postponed.topic_id)
            self.delete(topic_partition)

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
        outdated = set(self._keep_latest(topic_partition, directories))
        for each in directories:
            if each in outdated:
                await self._write_checkpoints(each)
            elif each.has_stale_offsets:
                await self._write_checkpoint(each, LogDirectory.log_start_checkpoint)
        del self._postponed[topic_partition], self._unreadable[topic_partition]
        self._ambiguous.pop(topic_partition, None)
        self._note_recovered()
        directory = self.directory_of(topic_partition)
        opened = directory.logs[topic_partition]
        mark = directory.marks.get(topic_partition)
        if mark is None:
            self.incomplete.forget(topic_partition)
        else:
            self.incomplete.note(topic_partition, topic_id, mark, opened)
        log.info("%s is open now", topic_partition)

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

    def _keep_latest(
        self, topic_partition: TopicPartition, directories: Sequence[LogDirectory]
    ) -> Iterator[LogDirectory]:
        """Keep the most complete of a partition's logs in several directories, and close the others.

        A crash at the end of a move leaves two logs. Keep the longest one (`longest_log`). Of equal logs,
        keep the one with the latest log start offset: records before it were deleted after the move. Delete
        another log if the kept one contains all of it. If not, only rename its folder to a name that ends
        with ``-stray``.

        The work is done while the caller iterates. Yield the directories of deleted and renamed logs.
        """
        logs = {directory: directory.logs.get(topic_partition) for directory in directories}
        found = {directory: opened for directory, opened in logs.items() if opened is not None}
        if len(found) < 2:
            return
        latest_first = sorted(found, key=lambda each: found[each].log_start_offset, reverse=True)
        kept = longest_log({each: _end(found[each]) for each in latest_first})
        for directory, opened in found.items():
            if directory is kept:
                continue
            log.warning(
                "%s is in %s and in %s: the broker uses the latter",
                topic_partition,
                directory.path,
                kept.path,
            )
            del directory.logs[topic_partition]
            directory.forget(topic_partition)
            if self._put_away(directory, opened, found[kept]):
                yield directory

    async def _load_copies(
        self,
        directory: LogDirectory,
        hosted: Mapping[TopicPartition, TopicId],
        config_of: Callable[[str], TopicConfig],
        is_deleted: Callable[[TopicPartition, TopicId], bool],
    ) -> None:
        """Open the copies in `directory` of logs whose move was interrupted, so that the move continues.

        Delete copies of deleted topics, and copies without a topic id. If this broker does not have the log
        of a copy, leave the copy alone. The arguments `hosted`, `config_of` and `is_deleted` are those of
        `load`.
        """
        try:
            found = directory.found_futures()
        except OSError as error:
            directory.env.handle_error("copies of logs", error)
            return
        names = {(topic_id, tp.partition): tp for tp, topic_id in hosted.items()} if found else {}
        again: dict[TopicPartition, PartitionLog] = {}
        for path, key in found.items():
            if key[0] == ZERO_TOPIC_ID or is_deleted(TopicPartition("", key[1]), key[0]):
                self._run(
                    TreeRemoval(directory.env.fs, path)
                )  # a copy without a topic id was never complete on disk
                continue
            topic_partition = names.get(key)
            if topic_partition is None or not await self._load_copy(
                directory, path, topic_partition, config_of(topic_partition.topic), again
            ):
                # the log itself is not here: it may be on a disk that is not mounted
                log.warning("%s is the copy of a log that is not here: the broker does not use it", path)
        self._copy_again(directory, again)

    async def _load_copies_of(self, opened: Sequence[PartitionLog]) -> None:
        """Open the copies of the logs that `open_postponed` has just opened, to continue their moves."""
        late = {(each.topic_id, each.topic_partition.partition): each for each in opened}
        for directory in self._directories:
            if directory.failure is not None:
                continue
            try:
                found = directory.found_futures()
            except OSError as error:
                directory.env.handle_error("copies of logs", error)
                continue
            again: dict[TopicPartition, PartitionLog] = {}
            for path, key in found.items():
                if key in late:
                    each = late[key]
                    await self._load_copy(directory, path, each.topic_partition, each.config, again)
            self._copy_again(directory, again)

    async def _load_copy(
        self,
        directory: LogDirectory,
        path: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        again: dict[TopicPartition, PartitionLog],
    ) -> bool:
        """Open the copy of a log. If it cannot be opened or is outdated, add the log to `again`.

        Of several copies in `directory`, keep the longest one (`longest_log`). Delete a copy that is not kept
        if it cannot be opened, or if the log contains all of it. If not, only rename its folder to a name
        that ends with ``-stray``.

        If the log is deleted while a thread opens the copy, delete the copy, too.

        Return True if the copy was needed, even if it cannot be created. Return False, and open nothing, in
        three cases:

        - The broker does not have the log.
        - The log is in `directory` itself.
        - The log's replica is in `incomplete`.
        """
        current = self.get(topic_partition)
        if current is None or topic_partition in directory.logs or topic_partition in self.incomplete:
            return False
        load = partial(directory.load_future, path, topic_partition, current.topic_id, config)
        try:
            copy = await self._disk.run(load)
        except KafkaError as error:
            log.warning("%s cannot be opened, so the broker does not use it: %s", path, error.message)
            self._run(TreeRemoval(directory.env.fs, path))
            again[topic_partition] = current
            return True
        if self.get(topic_partition) is not current:  # deleted meanwhile: another topic may have its name
            copy.abandon()
            self._run(TreeRemoval(directory.env.fs, path))
            return True
        if self._is_outdated(topic_partition, directory):
            log.warning(
                "%s %s older than the last compaction of the log: the broker does not use it",
                path,
                "is" if topic_partition in directory.cleaned_to else "may be",
            )
            if self._put_away(directory, copy, current):
                again[topic_partition] = current
            return True
        other = directory.futures.get(topic_partition)
        kept = copy if other is None else longest_log({each: _end(each) for each in (other, copy)})
        directory.futures[topic_partition] = kept
        if other is not None:
            left = other if kept is copy else copy
            log.warning(
                "%s and %s are copies of %s: its move continues with the first one, which reaches further",
                kept.files.path,
                left.files.path,
                topic_partition,
            )
            self._put_away(directory, left, current)
        return True

    def _is_outdated(self, topic_partition: TopicPartition, directory: LogDirectory) -> bool:
        """Whether a log was, or may have been, compacted after its copy in `directory` was created.

        This is possible while the broker runs without `directory`. The copy may have records of deleted keys,
        and the log no longer has the tombstones.
        """
        holder = self.directory_of(topic_partition)
        return holder.cleaned_to.get(topic_partition) != directory.cleaned_to.get(topic_partition)

    def _copy_again(self, directory: LogDirectory, again: Mapping[TopicPartition, PartitionLog]) -> None:
        """Create new copies of the logs `again` in `directory`. Skip logs that have another copy there."""
        for topic_partition, current in again.items():
            if self.get(topic_partition) is not current or topic_partition in directory.futures:
                continue  # deleted meanwhile, or the move continues with the other copy
            log.warning("the copying of %s to %s starts again", topic_partition, directory.path)
            try:
                self.create_copy(current, directory)
            except KafkaError as error:
                log.error("%s is not moved to %s: %s", topic_partition, directory.path, error)

    def _put_away(self, directory: LogDirectory, left: PartitionLog, whole: PartitionLog) -> bool:
        """Close the second log of a partition in `directory`, or a copy of its log that is not kept.

        Delete `left` if `whole` contains all of it. If not, only rename its folder to a name that ends with
        ``-stray``. Return False if the folder cannot be renamed.
        """
        is_contained = _contains(whole, left)
        left.abandon()
        try:
            aside = directory.set_folder_aside(
                left.files.path, left.topic_partition, "delete" if is_contained else "stray"
            )
        except OSError as error:
            directory.env.handle_error(left.topic_partition, error)
            return False
        if is_contained:
            self._run(TreeRemoval(directory.env.fs, aside))
        return True

    def _open_logs(self) -> set[TopicPartition]:
        return {topic_partition for directory in self._directories for topic_partition in directory.logs}

    async def stop(self) -> None:
        """Wait for running writes of checkpoints, then close the log directories in a thread.

        No other code may use the logs after this call. With thousands of logs, this call takes longer than
        ZooKeeper's session timeout.
        """
        await self.incomplete.stop()
        if self._writing_outdated is not None:
            await self._writing_outdated
        while self._shared_writes:
            await asyncio.wait(list(self._shared_writes))
        self._stop_removals()
        await self._disk.run(self._close_directories)

    def close(self) -> None:
        """Flush and close every log. The broker's next start deletes folders that `delete` has renamed."""
        self._stop_removals()
        self._close_directories()

    def _stop_removals(self) -> None:
        self._is_closed = True
        for removal in self._removals:
            removal.cancel()

    def _close_directories(self) -> None:
        for _, files in self._superseded.values():
            files.close()
        elsewhere = {each: self._logs_elsewhere(each) for each in self._directories}
        for directory, logs in elsewhere.items():
            try:
                directory.close(logs)
            except Exception:
                log.exception("log directory %s could not be closed", directory.path)

    def _logs_elsewhere(self, here: LogDirectory) -> Collection[LogName] | None:
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

    # --- logs ---

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if it is not open."""
        if topic_partition == self._opening:
            return None
        directory = self.find_directory(topic_partition)
        return None if directory is None else directory.logs[topic_partition]

    def create(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """Create a log in the log directory that `prefer` has chosen for it.

        If that directory is offline, or none was chosen, use the online one with the fewest logs. If the
        directory already has files of this topic's partition, open these files as the log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the existing log cannot be read, or no directory is usable.
        """
        if topic_partition in self._unreadable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} cannot be read")
        working = [directory for directory in self._directories if directory.failure is None]
        if not working:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        preferred = self._preferred.pop(topic_partition, None)
        directory = min(working, key=lambda directory: (directory is not preferred, len(directory.logs)))
        return directory.create(topic_partition, topic_id, config)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the log of a partition, if there is one. Its files are removed after `file.delete.delay.ms`.

        If the log could not be opened, only rename its folder. After `stop`, do nothing, because another
        broker may use the directories: this broker's next start deletes the log.
        """
        if self._is_closed:
            return
        self.drop_copy(topic_partition)
        self.incomplete.forget(topic_partition)
        if topic_partition == self._opening:  # a thread uses its files: `_open_again` deletes it
            self._is_opening_doomed = True
            self._undeleted.add(self._postponed[topic_partition].topic_id)
            return
        self._postponed.pop(topic_partition, None)
        broken = self._unreadable.pop(topic_partition, None)
        for each in self._ambiguous.pop(topic_partition, () if broken is None else (broken,)):
            self._set_aside(each, topic_partition)
            each.forget(topic_partition)
        directory = self.find_directory(topic_partition)
        if directory is None:
            return
        opened = directory.logs[topic_partition]
        topic_id, delay_ms = opened.topic_id, opened.config.file_delete_delay_ms
        if not self.moved_away(opened):
            self._undeleted.add(topic_id)
            _, files = self._superseded.pop(opened)  # the folder's name may be another log's later
            files.close()
        self._lowered.pop(opened, None)
        try:
            removal = directory.delete(topic_partition)
        except KafkaError as error:
            log.error("%s cannot be deleted now, so the next start deletes it: %s", topic_partition, error)
            self._undeleted.add(topic_id)
            return
        if removal is not None:
            self.run_later(removal, delay_ms)

    async def topics_without_folder(self, topic_ids: Collection[TopicId]) -> Collection[TopicId]:
        """Return the topics in `topic_ids` of which this broker has no folder.

        The directories are fsynced, so that no folder of these topics comes back after a crash. The result is
        empty if a directory cannot be fsynced, or if a directory or folder cannot be read.
        """
        if self.unopened or any(each.failure is not None or each.unread for each in self._directories):
            return ()  # a directory or folder that cannot be read may be of any topic
        gone = set(topic_ids).difference(self._undeleted, (each.topic_id for each in self))
        for directory in self._directories if gone else ():
            try:
                await self._disk.run(directory.env.fs.sync_directory, directory.path)
            except OSError as error:
                directory.env.handle_error("a deletion", error)
                return ()
        return gone

    def delete_moved(self, topic_partition: TopicPartition) -> None:
        """Delete the log of a partition that has moved to another broker.

        A task then writes the directory's checkpoints without the log's entries. The partition may later come
        back to this broker with fewer records. With the old entries, recovery after a crash would then report
        lost records, although no records are lost.
        """
        directory = self.find_directory(topic_partition)
        self.delete(topic_partition)
        if directory is not None and not self._is_closed:
            self._write_soon(directory)

    def switched(self, opened: PartitionLog, directory: LogDirectory, files: LogFiles) -> None:
        """Note the old files `files` of a log in `directory`: the log uses files in another directory now.

        Call `moved_away` when the new files are durable. `delete` also removes the old files. So does
        `drop_expired` if a later flush makes the new files durable.
        """
        self._superseded[opened] = directory, files

    def moved_away(self, opened: PartitionLog) -> bool:
        """Remove the old files of a log that has moved to another log directory, if there are any.

        This call closes the old files and renames their folder. The folder is removed from the disk after
        `file.delete.delay.ms`. If the folder cannot be renamed, return False, and keep the old files: a later
        call tries again, and the broker's next start removes them.
        """
        superseded = self._superseded.get(opened)
        if superseded is None:
            return True
        directory, files = superseded
        try:
            path = directory.set_aside(opened.topic_partition, "delete")
        except FileNotFoundError:
            pass
        except OSError as error:
            log.error("the old files of %s stay in %s for now: %s", opened, directory.path, error)
            return False
        else:
            files.renamed(path)
            self.run_later(TreeRemoval(directory.env.fs, path), opened.config.file_delete_delay_ms)
        del self._superseded[opened]
        directory.forget(opened.topic_partition)
        files.close()
        self._write_soon(directory)
        return True

    def _write_soon(self, directory: LogDirectory) -> None:
        self._outdated[directory] = None
        if self._writing_outdated is None:
            self._writing_outdated = start_task(self._write_outdated(), "checkpoints")

    async def _write_outdated(self) -> None:
        try:
            while self._outdated:
                directory = next(iter(self._outdated))
                del self._outdated[directory]
                await self._write_checkpoints(directory)
        finally:
            self._writing_outdated = None

    # --- upkeep ---

    async def drop_expired(self) -> None:
        """Delete segments that have expired by retention or DeleteRecords, and old files of moved logs.

        The logs' new log start offsets are on disk before any file is removed. So after a crash, the broker
        can distinguish deleted records from lost records.
        """
        self._remove_superseded()
        now_ms = self._clock.now_ms()
        removals: list[tuple[LogDirectory, Removal, int]] = []
        for number, partition_log in enumerate(list(self), 1):
            if number % _LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            if partition_log.is_offline:
                continue  # logged when it went offline
            try:
                active = prepare_deletion(partition_log, now_ms)
                if active is not None and not await self._sync_names(partition_log):
                    active = None
                removal = delete_old_segments(partition_log, now_ms, active)
            except KafkaError as error:
                log.error("retention of %s: %s", partition_log.topic_partition, error)
            except Exception:
                log.exception("retention of %s has failed", partition_log.topic_partition)
            else:
                if removal is not None:
                    directory = self.directory_of(partition_log.topic_partition)
                    removals.append((directory, removal, partition_log.config.file_delete_delay_ms))
        for directory in dict.fromkeys(directory for directory, _, _ in removals):
            if directory.failure is None:
                await self._write_checkpoint(directory, LogDirectory.log_start_checkpoint)
        for _, removal, delay_ms in removals:
            self.run_later(removal, delay_ms)

    def _remove_superseded(self) -> None:
        """Remove the old files of moved logs whose new files became durable after a failed fsync."""
        for opened in list(self._superseded):
            files = opened.files
            is_durable = not (files.is_flushing or files.is_cut or opened.epochs.changed)
            if is_durable and not opened.is_held:
                self.moved_away(opened)

    async def _sync_names(self, opened: PartitionLog) -> bool:
        """Fsync a log's folder in a thread. Return False if the fsync failed.

        Also return False if the log was moved to another log directory meanwhile. In both cases the next
        `drop_expired` tries again.
        """
        files = opened.files
        try:
            await self._disk.run(files.env.fs.sync_directory, files.path)
        except OSError:
            return False
        return files is opened.files

    async def expire_producers(self, expiration_ms: int) -> None:
        """Forget the idle producers of all logs: those without records for `expiration_ms`."""
        for number, partition_log in enumerate(list(self), 1):
            if number % _LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            partition_log.producers.expire(self._clock.now_ms(), expiration_ms)

    async def checkpoint(self, of: Callable[[LogDirectory], CheckpointWrite]) -> None:
        """Write one kind of checkpoint in every online directory, in a thread. Log errors.

        `of` is a method of `LogDirectory`, such as `LogDirectory.recovery_point_checkpoint`.
        """
        for directory in self._directories:
            if directory.failure is None:
                await self._write_checkpoint(directory, of)

    async def checkpoint_one(
        self, directory: LogDirectory, of: Callable[[LogDirectory], CheckpointWrite]
    ) -> None:
        """Write one kind of checkpoint in `directory`, in a thread.

        The broker writes only one checkpoint at a time. A write that has begun continues if the caller is
        cancelled. `of` is a method of `LogDirectory`, such as `LogDirectory.recovery_point_checkpoint`.

        Raises:
            OSError: the disk failed.
        """
        await asyncio.shield(self._share(self._checkpoint(of, directory)))

    async def _checkpoint(
        self, of: Callable[[LogDirectory], CheckpointWrite], directory: LogDirectory
    ) -> None:
        async with self._checkpointing:
            await self._write(of(directory))

    async def _write(self, checkpoint: CheckpointWrite) -> None:
        for _ in checkpoint.prepare():
            await asyncio.sleep(0)
        if checkpoint.is_needed:
            await self._disk.run(checkpoint.run)

    async def store_log_starts(
        self, directory: LogDirectory, planned: Sequence[tuple[PartitionLog, Offset]]
    ) -> None:
        """Write the start offsets of the logs in `directory` to the directory's log start checkpoint.

        `planned` has logs with the start offsets that they will have. For these logs, write the planned start
        offset instead of the present one, if it is higher. The caller advances the logs after this call.

        Calls that wait for the same directory share one write.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, or its disk failed.
        """
        directory.planned_starts.append(planned)
        try:
            writing = self._log_start_writes.get(directory)
            if writing is None:
                writing = self._share(self._store_log_starts(directory))
                self._log_start_writes[directory] = writing
            await asyncio.shield(writing)
        finally:
            directory.planned_starts.remove(planned)

    async def store_log_start(self, opened: PartitionLog) -> None:
        """Write the log start checkpoint of the log's directory, with the log's present start offset.

        Calls that wait for the same directory share one write.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, or its disk failed;
                UNKNOWN_TOPIC_OR_PARTITION, the log was deleted.
        """
        await self.store_log_starts(self._holder_of(opened), [(opened, opened.log_start_offset)])

    def _holder_of(self, opened: PartitionLog) -> LogDirectory:
        """Return the directory in which a log is, or the copy of a log that moves.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, the log or the copy was deleted.
        """
        for directory in self._directories:
            for logs in (directory.logs, directory.futures):
                if logs.get(opened.topic_partition) is opened:
                    return directory
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _store_log_starts(self, directory: LogDirectory) -> None:
        if directory.failure is not None:
            del self._log_start_writes[directory]
            raise directory.env.offline_error()
        async with self._checkpointing:
            del self._log_start_writes[directory]  # later requests need another write
            try:
                await self._write(directory.log_start_checkpoint())
            except OSError as error:
                raise directory.env.handle_error(LOG_STARTS, error) from error

    def must_be_emptied(self, opened: PartitionLog) -> bool:
        return self.incomplete.must_be_emptied(opened)

    async def note_emptied(self, opened: PartitionLog) -> None:
        """Store on disk that the log of an incomplete replica was emptied, and the log's start offset.

        Call this method before new records are copied into the log. If the broker restarts after this call,
        it does not empty the log again.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed; UNKNOWN_TOPIC_OR_PARTITION, the log was deleted.
        """
        await self.store_log_start(opened)  # else the old start would hide new records after a crash
        await self.incomplete.note_emptied(opened)

    async def prepare_truncation(self, opened: PartitionLog, offset: Offset) -> Truncation | None:
        """Compute a truncation of a log to `offset`, and lower the log's recovery point on disk.

        The log itself does not change. A thread reads the batches. Truncations of logs in one directory share
        a write of the checkpoint. `opened` can also be the copy of a log that moves.

        Pass the result to `truncate_to`. The result can be None: the truncation removes nothing or all
        records, and `truncate_to` then reads no batches.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline, or the recovery point could not be
                written; CORRUPT_MESSAGE, the part of the log before `offset` is damaged;
                UNKNOWN_TOPIC_OR_PARTITION, the log was deleted.
        """
        while True:
            files = opened.files
            truncation = begin_truncation(opened, offset)
            if truncation is not None:
                await self._disk.run(truncation.run)
            if prepare_truncation(opened, offset, truncation) or opened in self._lowered:
                self._lowered[opened] = None
                try:
                    await self._store_lower_recovery_point(opened)
                except KafkaError:
                    if opened.closed:  # no other call follows
                        self._lowered.pop(opened, None)
                    raise
                self._lowered.pop(opened, None)
            if opened.files is files:
                return truncation  # else the log has moved to another log directory meanwhile

    async def _store_lower_recovery_point(self, opened: PartitionLog) -> None:
        if opened.files.sealed is not None:
            await self._disk.run(sync_sealed, opened)
        directory = self._holder_of(opened)
        writing = self._recovery_point_writes.get(directory)
        if writing is None:
            writing = self._share(self._store_recovery_points(directory))
            self._recovery_point_writes[directory] = writing
        directory.lower_cleaned(opened.topic_partition, opened.recovery_point)
        await asyncio.shield(writing)

    def _share(self, write: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Start a write that several requests can await. It completes even if all of them are cancelled."""
        writing = asyncio.ensure_future(write)
        self._shared_writes[writing] = None
        writing.add_done_callback(self._written)
        return writing

    def _written(self, writing: asyncio.Future[None]) -> None:
        del self._shared_writes[writing]
        if not writing.cancelled():
            writing.exception()  # those that await the write raise it; perhaps none is left

    async def _store_recovery_points(self, directory: LogDirectory) -> None:
        if directory.failure is not None:
            del self._recovery_point_writes[directory]
            raise directory.env.offline_error()
        async with self._checkpointing:
            del self._recovery_point_writes[directory]  # later requests need another write
            try:
                await self._write(directory.recovery_point_checkpoint())
                await self._write(directory.cleaned_checkpoint())
            except OSError as error:
                raise directory.env.handle_error(RECOVERY_POINTS, error) from error

    def run_later(self, task: Task, delay_ms: int) -> None:
        """Run a deletion of files in a thread after `delay_ms`, when readers should be done with them."""

        def run() -> None:
            del self._removals[handle]
            self._run(task)

        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, run)
        self._removals[handle] = None

    # --- inside ---

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Write all checkpoints of a directory.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, one could not be written.
        """
        if not await self._write_checkpoints(directory):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoints in {directory.path} could not be written"
            )

    async def _write_checkpoints(self, directory: LogDirectory) -> bool:
        for of in (
            LogDirectory.log_start_checkpoint,
            LogDirectory.high_watermark_checkpoint,  # before a recovery point that would seem to bear it out
            LogDirectory.recovery_point_checkpoint,
            LogDirectory.cleaned_checkpoint,
        ):
            if directory.failure is not None or not await self._write_checkpoint(directory, of):
                return False
        return True

    async def _write_checkpoint(
        self, directory: LogDirectory, of: Callable[[LogDirectory], CheckpointWrite]
    ) -> bool:
        """Write one kind of checkpoint of a directory. If this fails, log the error and return False.

        `of` is a method of `LogDirectory`, such as `LogDirectory.recovery_point_checkpoint`.
        """
        try:
            await self.checkpoint_one(directory, of)
        except OSError as error:
            directory.env.handle_error("a checkpoint", error)
        except Exception:
            log.exception("a checkpoint in %s could not be written", directory.path)
        else:
            return True
        return False

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

    def _set_aside(
        self, directory: LogDirectory, topic_partition: TopicPartition, suffix: str = "stray"
    ) -> bool:
        """Rename the folder of a partition that belongs to no topic of this broker.

        The new name ends with ``-`` and `suffix`. Return False if the rename failed. A missing folder is no
        failure.
        """
        try:
            aside = directory.set_aside(topic_partition, suffix)
        except FileNotFoundError:
            log.info("%s has no folder", topic_partition)
        except OSError as error:
            log.error("%s belongs to no topic of this broker and cannot be moved: %s", topic_partition, error)
            directory.env.handle_error(topic_partition, error)
            return False
        else:
            log.warning("%s belongs to no topic of this broker: its folder is now %s", topic_partition, aside)
        return True

    def _run(self, task: Task) -> None:
        future = self._disk.run(task.run)
        future.add_done_callback(_report)


def _few(partitions: Sequence[TopicPartition]) -> tuple[str, str]:
    """Return the first of `partitions` as a text for the log, and dots if there are more."""
    return ", ".join(map(str, partitions[:5])), ", ..." if partitions[5:] else ""


def _end(opened: PartitionLog) -> LogEnd:
    return LogEnd(opened.latest_epoch, opened.log_end_offset)


def _contains(whole: PartitionLog, part: PartitionLog) -> bool:
    """Whether `whole` has all records of `part`, by their leader epochs.

    An empty `part` had records before its end. So `whole` contains it if `whole` does not end before it.
    """
    if part.log_start_offset == part.log_end_offset:
        return part.log_end_offset <= whole.log_end_offset
    return whole.epochs.contains(part.latest_epoch, part.log_end_offset, whole.log_end_offset)


def _open_files(fs: FileSystem) -> int:
    """Return the number of log files that may be open at once."""
    limit = fs.max_open_files()
    return _MAX_OPEN_FILES if limit is None else min(_MAX_OPEN_FILES, limit // 2)


def files_for_connections(fs: FileSystem) -> int | None:
    """Return the number of connections that can be open beside the log files and the broker's other files.

    Return None if the system does not limit the number of files that this process has open.
    """
    limit = fs.max_open_files()
    return None if limit is None else max(1, limit - _open_files(fs) - _OTHER_FILES)


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


def _report(done: asyncio.Future[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("files could not be deleted, so the next start deletes them: %s", error)
