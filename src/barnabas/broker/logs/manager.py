"""Manages the logs of a broker in all of its log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from barnabas.base.environment.blocking import Pool
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.errors import ConfigError, ErrorCode, KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import Offset, TopicId, TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs import DirectoryLocked, LogDirectory
from barnabas.broker.logs.checkpointing import CheckpointWriter
from barnabas.broker.logs.directories import LogDirectories, Task
from barnabas.broker.logs.incomplete import IncompleteReplicas
from barnabas.broker.logs.interrupted_moves import InterruptedMoves
from barnabas.broker.logs.loading import LogLoader
from barnabas.broker.logs.log_opener import LogOpener
from barnabas.broker.logs.lost_replicas import LostReplicas
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite
from barnabas.broker.logs.postponed_logs import PostponedLogs
from barnabas.broker.logs.unopened import UnopenedLogs
from barnabas.broker.storage import OpenFiles, PartitionLog
from barnabas.broker.storage.checkpoints import NO_BROKER_EPOCH
from barnabas.broker.storage.harm import hint_of
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
        self._directories = LogDirectories(disk)
        #: errors of the configured directories that could not be opened, by path
        self.unopened: Mapping[str, OSError] = self._directories.unopened
        self.checkpoints = CheckpointWriter(disk)
        self._unopened = UnopenedLogs(self._directories)
        self._lost = LostReplicas(
            self._directories, self._unopened, self.incomplete, disk, is_clustered=is_clustered
        )
        opener = LogOpener(config, environment, self._unopened)
        moves = InterruptedMoves(self._directories, self.incomplete, disk)
        self._loader = LogLoader(
            self._directories,
            self._unopened,
            opener,
            self._lost,
            moves,
            self.checkpoints,
            is_clustered=is_clustered,
        )
        self._postponed = PostponedLogs(
            self._directories,
            self._unopened,
            opener,
            self._lost,
            moves,
            self.incomplete,
            self.checkpoints,
            self.delete,
        )
        self._removals: dict[asyncio.TimerHandle, None] = {}
        #: logs whose recovery point on disk is still the old, higher one: the next write must lower it
        self._lowered: dict[PartitionLog, None] = {}
        #: the directory chosen by an administrator for each replica that this broker does not have yet
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        #: old files of logs that have moved, until their new files are durable
        self._superseded: dict[PartitionLog, tuple[LogDirectory, LogFiles]] = {}
        self._is_closed = False

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """The log directories that could be opened, offline or not."""
        return self._directories.opened

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
        return self._directories.logs()

    def find_directory(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory of a log; None if there is no such log."""
        return self._directories.find(topic_partition)

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory:
        """Return the log directory of a log. Raises KeyError if there is no such log."""
        return self._directories.holder_of(topic_partition)

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

        Before the copy gets its first record, store the cleaned checkpoint of `directory`
        (`CheckpointWriter.store_cleaned`): after a crash it shows whether the copy is outdated.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, one of the directories is offline, or the disk failed.
        """
        self._directories.create_copy(current, directory)

    def drop_copy(self, topic_partition: TopicPartition) -> None:
        """Cancel the move of a log, if there is one, and delete the copy. The log stays where it is."""
        directory = self.copy_of(topic_partition)
        if directory is None:
            return
        removal = directory.drop_future(topic_partition)
        if removal is not None:
            self._directories.remove(directory.path, removal)

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
                self._directories.unopened[path] = error
                continue
            self._directories.opened.append(directory)
        if not self._directories.opened:
            reasons = "; ".join(f"{path}: {error}{hint_of(error)}" for path, error in self.unopened.items())
            raise ConfigError(f"log.dirs: no directory can be used ({reasons})")

    async def load(
        self,
        hosted: Mapping[TopicPartition, TopicId],
        config_of: Callable[[str], TopicConfig],
        is_deleted: Callable[[TopicPartition, TopicId], bool] = lambda _partition, _topic_id: False,
    ) -> None:
        """Open every log of this broker in the log directories (`LogLoader.load`)."""
        await self._loader.load(hosted, config_of, is_deleted)

    async def open_postponed(self) -> set[TopicPartition]:
        """Try again to open the logs for which `load` lacked resources (`PostponedLogs.open`)."""
        return await self._postponed.open()

    async def stop(self) -> None:
        """Wait for running writes of checkpoints, then close the log directories in a thread.

        No other code may use the logs after this call. With thousands of logs, this call takes longer than
        ZooKeeper's session timeout.
        """
        await self.incomplete.stop()
        await self.checkpoints.stop()
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
        self._directories.stop_removals()

    def _close_directories(self) -> None:
        for _, files in self._superseded.values():
            files.close()
        elsewhere = {each: self._lost.logs_elsewhere(each) for each in self._directories}
        for directory, logs in elsewhere.items():
            try:
                directory.close(logs)
            except Exception:
                log.exception("log directory %s could not be closed", directory.path)

    # --- logs ---

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition; None if it is not open."""
        if topic_partition == self._unopened.opening:
            return None
        return self._directories.find_log(topic_partition)

    def create(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """Create a log in the log directory that `prefer` has chosen for it.

        If that directory is offline, or none was chosen, use the online one with the fewest logs. If the
        directory already has files of this topic's partition, open these files as the log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the existing log cannot be read, or no directory is usable.
        """
        if topic_partition in self._unopened:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} cannot be read")
        working = [directory for directory in self._directories if directory.failure is None]
        if not working:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        preferred = self._preferred.pop(topic_partition, None)
        directory = min(working, key=lambda directory: (directory is not preferred, len(directory.logs)))
        created = directory.create(topic_partition, topic_id, config)
        if directory.checkpoints.has_stale_offsets:
            self.checkpoints.write_all_soon(directory)
        return created

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete the log of a partition, if there is one. Its files are removed after `file.delete.delay.ms`.

        If the log could not be opened, only rename its folder. After `stop`, do nothing, because another
        broker may use the directories: this broker's next start deletes the log.
        """
        if self._is_closed:
            return
        self.drop_copy(topic_partition)
        self.incomplete.forget(topic_partition)
        if not self._unopened.forget(topic_partition):
            return
        directory = self.find_directory(topic_partition)
        if directory is None:
            return
        opened = directory.logs[topic_partition]
        topic_id, delay_ms = opened.topic_id, opened.config.file_delete_delay_ms
        if not self.moved_away(opened):
            self._directories.undeleted.add(topic_id)
            _, files = self._superseded.pop(opened)  # the folder's name may be another log's later
            files.close()
        self._lowered.pop(opened, None)
        try:
            removal = directory.delete(topic_partition)
        except KafkaError as error:
            log.error("%s cannot be deleted now, so the next start deletes it: %s", topic_partition, error)
            self._directories.undeleted.add(topic_id)
            return
        if removal is not None:
            self.remove_later(directory.path, removal, delay_ms)

    async def topics_without_folder(self, topic_ids: Collection[TopicId]) -> Collection[TopicId]:
        """Return the topics in `topic_ids` of which this broker has no folder.

        The directories are fsynced, so that no folder of these topics comes back after a crash. The result is
        empty if a directory cannot be fsynced, or if a directory or folder cannot be read.
        """
        if not self._directories.are_all_working or any(each.folders.unread for each in self._directories):
            return ()  # a directory or folder that cannot be read may be of any topic
        gone = set(topic_ids).difference(self._directories.undeleted, (each.topic_id for each in self))
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
            self.checkpoints.write_all_soon(directory)

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
            path = directory.folders.set_aside(opened.topic_partition, "delete")
        except FileNotFoundError:
            pass
        except OSError as error:
            log.error("the old files of %s stay in %s for now: %s", opened, directory.path, error)
            return False
        else:
            files.renamed(path)
            removal = TreeRemoval(directory.env.fs, path)
            self.remove_later(directory.path, removal, opened.config.file_delete_delay_ms)
        del self._superseded[opened]
        directory.checkpoints.forget(opened.topic_partition)
        files.close()
        self.checkpoints.write_all_soon(directory)
        return True

    # --- upkeep ---

    async def drop_expired(self, directory: LogDirectory) -> None:
        """Delete a directory's segments that have expired by retention or DeleteRecords.

        Also delete the old files there of logs that have moved to another log directory.

        The logs' new log start offsets are on disk before any file is removed. So after a crash, the broker
        can distinguish deleted records from lost records.
        """
        self._remove_superseded(directory)
        now_ms = self._clock.now_ms()
        removals: list[tuple[LogDirectory, Removal, int]] = []
        for number, partition_log in enumerate(list(directory.logs.values()), 1):
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
                    holder = self.directory_of(partition_log.topic_partition)  # it may have moved meanwhile
                    removals.append((holder, removal, partition_log.config.file_delete_delay_ms))
        for holder in dict.fromkeys(holder for holder, _, _ in removals):
            await self.checkpoint(holder, LogDirectory.log_start_checkpoint)
        for holder, removal, delay_ms in removals:
            self.remove_later(holder.path, removal, delay_ms)

    def _remove_superseded(self, directory: LogDirectory) -> None:
        """Remove a directory's old files of moved logs whose new files a flush has made durable since."""
        for opened in [each for each, (before, _) in self._superseded.items() if before is directory]:
            if not opened.files.has_unflushed_switch:
                self.moved_away(opened)

    async def _remove_superseded_of(self, opened: PartitionLog) -> None:
        """Remove the old files of a moved log, durably, if there are any.

        An error of their disk is only logged: the log does not use it any more.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the old files are still needed, because no flush of the new ones
                has completed.
        """
        if opened not in self._superseded:
            return
        directory, _ = self._superseded[opened]
        if opened.files.has_unflushed_switch:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{opened.topic_partition} has moved from {directory.path}, "
                "and its new files are not fsynced yet",
            )
        if self.moved_away(opened):
            try:
                await self._disk.run(directory.env.fs.sync_directory, directory.path)
            except OSError as error:
                directory.env.handle_error(opened.topic_partition, error)

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

    async def checkpoint(
        self, directory: LogDirectory, of: Callable[[LogDirectory], CheckpointWrite]
    ) -> None:
        """Write one kind of checkpoint in a directory, in a thread, if it is online. Log errors.

        `of` is a method of `LogDirectory`, such as `LogDirectory.recovery_point_checkpoint`.
        """
        if directory.failure is None:
            await self.checkpoints.try_to_write(directory, of)

    async def store_log_start(self, opened: PartitionLog) -> None:
        """Write the log start checkpoint of the log's directory, with the log's present start offset.

        Calls that wait for the same directory share one write.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, or its disk failed;
                UNKNOWN_TOPIC_OR_PARTITION, the log was deleted.
        """
        await self.checkpoints.store_log_starts(self._holder_of(opened), [(opened, opened.log_start_offset)])

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
        """Compute a truncation of a log to `offset`, and lower the log's recovery point and start on disk.

        The log itself does not change. A thread reads the batches. Truncations of logs in one directory share
        a write of the checkpoint. `opened` can also be the copy of a log that moves.

        Pass the result to `truncate_to`, before anything else is awaited. The result can be None: the
        truncation removes nothing or all records, and `truncate_to` then reads no batches.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the log directory is offline, the recovery point could not be
                written, or the log has moved and its new files are not fsynced yet; CORRUPT_MESSAGE, the
                part of the log before `offset` is damaged; UNKNOWN_TOPIC_OR_PARTITION, the log was deleted.
        """
        while True:
            await self._remove_superseded_of(opened)  # after a crash, they could count as the longer log
            files = opened.files
            truncation = begin_truncation(opened, offset)
            if truncation is not None:
                await self._disk.run(truncation.run)
            end, is_lower = prepare_truncation(opened, offset, truncation)
            if is_lower or opened in self._lowered:
                self._lowered[opened] = None
                try:
                    await self._store_lower_recovery_point(opened)
                except KafkaError:
                    if opened.closed:  # no other call follows
                        self._lowered.pop(opened, None)
                    raise
                self._lowered.pop(opened, None)
            await self.checkpoints.lower_start(self._holder_of(opened), opened, end)
            if opened.files is files:
                return truncation  # else the log has moved to another log directory meanwhile

    async def _store_lower_recovery_point(self, opened: PartitionLog) -> None:
        if opened.files.sealed is not None:
            await self._disk.run(sync_sealed, opened)
        directory = self._holder_of(opened)
        directory.checkpoints.lower_cleaned(opened.topic_partition, opened.recovery_point)
        await self.checkpoints.store_recovery_points(directory)

    def remove_later(self, log_dir: str, removal: Task, delay_ms: int) -> None:
        """Run a deletion of files in the log directory `log_dir` after `delay_ms`, in a thread.

        Readers should be done with the files then.
        """

        def run() -> None:
            del self._removals[handle]
            self._directories.remove(log_dir, removal)

        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, run)
        self._removals[handle] = None


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
