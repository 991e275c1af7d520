"""A log directory: a folder with the logs of partitions, on one disk, which one broker at a time can use.

    DIR/.lock                       held while a broker runs on the directory
    DIR/meta.properties             the cluster and broker that own the directory (`meta_properties`)
    DIR/.kafka_cleanshutdown        exists if the last stop was clean (`clean_stop`)
    DIR/*-offset-checkpoint         recovery points, log start offsets, ... (`directory_checkpoints`)
    DIR/<topic>-<partition>/        a partition's log, and folders with like names (`partition_folders`)

Only the event loop's thread uses a `LogDirectory`, except for `load`, which several threads can call at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from barnabas.base.environment.blocking import Blocking
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import Lock, make_durable_directory
from barnabas.base.errors import BarnabasError, KafkaError
from barnabas.base.text import FewLines
from barnabas.base.types import NO_LEADER_EPOCH, Offset, TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import clean_stop, meta_properties
from barnabas.broker.logs.clean_stop import LastStop
from barnabas.broker.logs.directory_checkpoints import DirectoryCheckpoints
from barnabas.broker.logs.meta_properties import DirectoryIds
from barnabas.broker.logs.missing_directories import LogName
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite
from barnabas.broker.logs.partition_folders import PartitionFolders, has_partitions
from barnabas.broker.storage.checkpoints import NO_BROKER_EPOCH, PARTITION_METADATA
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.open_files import OpenFiles
from barnabas.broker.storage.opening import load_log, new_log
from barnabas.broker.storage.tasks import TreeRemoval
from barnabas.broker.storage.truncation import continue_at, truncate_fully_and_start_at

logger = logging.getLogger(__name__)

_FLUSH_THREADS = 16


class DirectoryLocked(BarnabasError):
    """Another broker uses the log directory."""


class LogDirectory:
    """An open log directory and the logs in it. `open` returns one."""

    def __init__(
        self,
        env: LogEnvironment,
        blocking: Blocking,
        lock: Lock,
        ids: DirectoryIds,
        last_stop: LastStop,
        *,
        is_clustered: bool,
    ) -> None:
        self.env = env
        self._blocking = blocking
        self._is_clustered = is_clustered
        self._lock = lock
        self.directory_id = ids.own
        #: ids of all log directories of the broker (`barnabas.broker.logs.missing_directories`); empty if no
        #: start has loaded this one
        self.known_directories = ids.known
        #: whether the last stop was clean, so that logs need no recovery
        self.was_clean = last_stop.was_clean
        #: the broker's epoch at the last stop, if that was clean and it had one
        self.previous_epoch = last_stop.broker_epoch
        #: the logs with files in the broker's other directories at the last clean stop; None if not known
        self.logs_elsewhere = last_stop.logs_elsewhere
        #: each segment's size as of the clean stop
        self._sizes = last_stop.sizes
        #: the broker's present epoch, which a clean stop stores
        self.broker_epoch = NO_BROKER_EPOCH
        #: whether the logs found here have been recovered: only then may a stop be marked as clean
        self.is_recovered = last_stop.was_clean or not has_partitions(env.fs, env.path)
        #: whether `close` marked the stop as clean
        self.closed_cleanly = False
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: copies that are to replace logs in other directories of this broker
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.folders = PartitionFolders(env, is_clustered=is_clustered)
        self.checkpoints = DirectoryCheckpoints(
            env.fs, env.path, self.logs, self.futures, was_clean=last_stop.was_clean
        )
        env.before_truncation = self.checkpoints.write_before_truncation

    @classmethod
    def open(
        cls,
        files: OpenFiles,
        path: str,
        environment: Environment,
        *,
        cluster_id: str,
        node_id: int,
        is_clustered: bool = False,
        on_failure: Callable[[OSError], None] | None = None,
    ) -> LogDirectory:
        """Lock the directory `path` for this broker. Create a missing directory.

        Args:
            files: the open log files of the broker.
            path: path of the directory.
            environment: clock, random numbers and threads.
            cluster_id: id of this broker's cluster.
            node_id: id of this broker.
            is_clustered: whether this broker belongs to a cluster. If True, it can copy lost records again
                from another broker.
            on_failure: called with the error when the disk has failed, possibly in a thread that loads a log.

        Raises:
            DirectoryLocked: another broker uses it.
            ConfigError: the directory belongs to another broker or cluster, or `meta.properties` is damaged.
            OSError: the disk failed.
        """
        fs = files.fs
        make_durable_directory(fs, path)
        try:
            lock = fs.lock(f"{path}/.lock")
        except BlockingIOError:
            raise DirectoryLocked(
                f"{path} is in use by another broker: stop it, or choose another log.dirs"
            ) from None
        try:
            ids = meta_properties.claim(
                fs, path, cluster_id, node_id, environment.random, is_clustered=is_clustered
            )
            last_stop = clean_stop.take_last_stop(fs, path)
            env = LogEnvironment(path, files, environment.clock, environment.random, on_failure=on_failure)
            return cls(env, environment.blocking, lock, ids, last_stop, is_clustered=is_clustered)
        except BaseException:
            lock.release()
            raise

    def store_directories(self, ids: frozenset[str]) -> None:
        """Store the ids of the log directories of the broker, with that of this one, in `meta.properties`.

        Raises:
            OSError: the disk failed.
            ValueError: `meta.properties` is damaged.
        """
        if ids != self.known_directories:
            meta_properties.store_known(self.env.fs, self.path, ids)
            self.known_directories = ids

    @property
    def path(self) -> str:
        return self.env.path

    @property
    def failure(self) -> OSError | None:
        """The error that took the directory offline; None while it works."""
        return self.env.failure

    @property
    def knows_its_logs(self) -> bool:
        """Whether the recovery point checkpoint could be read, which lists the directory's logs.

        Without this checkpoint, the broker cannot notice that a log is missing.
        """
        return not self.checkpoints.has_lost_points

    # --- folders and checkpoints ---

    def found(self) -> dict[TopicPartition, TopicId]:
        """Return the directory's partitions, with their topic ids (`PartitionFolders.find`).

        Raises:
            OSError: the disk failed.
        """
        return self.folders.find(self.logs, self.checkpoints.recovery_points)

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, Offset]:
        """The high watermarks in the checkpoint on disk: as `open` has read it, or as last written."""
        return self.checkpoints.high_watermarks

    @property
    def cleaned_to(self) -> Mapping[TopicPartition, Offset]:
        """The offsets up to which compacted logs are clean."""
        return self.checkpoints.cleaned_to

    def note_clean(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Set the offset up to which a log is clean. The next `cleaned_checkpoint` writes it."""
        self.checkpoints.note_clean(topic_partition, offset)

    def recovery_point_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the recovery points.

        The broker runs it periodically, to limit recovery after a crash.
        """
        return self.checkpoints.write_recovery_points()

    def log_start_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the log start offsets."""
        return self.checkpoints.write_log_starts()

    def high_watermark_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the high watermarks."""
        return self.checkpoints.write_high_watermarks()

    def cleaned_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the offsets up to which compacted logs are clean, if any has changed."""
        return self.checkpoints.write_cleaned()

    # --- logs ---

    def load(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """Open a log of the directory. Recover it if the last stop was not clean.

        Any thread can call this method. Call `adopt` with the result on the event loop.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, its files cannot be read or written. CORRUPT_MESSAGE, the log is
                damaged below its recovery point.
        """
        env = self.env
        # each load has its own `OpenFiles`: the shared one belongs to the event loop's thread
        loading = LogEnvironment(env.path, OpenFiles(env.fs), env.clock, env.random)
        try:
            log = self._load(loading, topic_partition, topic_id, config, was_clean=self.was_clean)
            self._continue_at_start(log)
        except OSError as error:
            loading.files.close_idle()
            raise env.handle_error(topic_partition, error) from error
        except Exception:
            loading.files.close_idle()
            raise
        log.move_to(env)
        if self.folders.begins_anew(topic_partition):
            return log  # its records may have holes: they must not be read
        committed = self.high_watermarks.get(topic_partition, 0)
        if log.log_end_offset < committed:
            logger.error(
                "%s: records of offsets %d to %d, which had been acknowledged, are missing: a power cut "
                "loses records that were not fsynced; without a power cut, the log's files were damaged",
                topic_partition,
                log.log_end_offset,
                committed - 1,
            )
            # A truncation may be gone with them: what follows the recovery point may be what it took away.
            committed = log.recovery_point
        log.advance_high_watermark(committed)
        return log

    def _continue_at_start(self, log: PartitionLog) -> None:
        """If a crash has cut off a loaded log before its start offset, let it continue at that offset.

        The start offset is that in the checkpoint. After a clean stop, a higher one is no proof of a loss.
        Without a leader epoch, the log of a cluster continues at its end. Its leader could not detect that
        the histories of both logs differ.

        Raises:
            OSError: the disk failed.
        """
        topic_partition = log.topic_partition
        start = self.checkpoints.log_starts.get(topic_partition, 0)
        if self.was_clean or start <= log.log_end_offset or self.folders.begins_anew(topic_partition):
            return
        if self._is_clustered and log.latest_epoch == NO_LEADER_EPOCH:
            return
        logger.warning(
            "%s ends at %d, and the records before %d were deleted: it continues at %d",
            topic_partition,
            log.log_end_offset,
            start,
            start,
        )
        try:
            continue_at(log, start)
        except KafkaError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise
        self.checkpoints.has_stale_offsets = True  # its high watermark there may be after its end

    def _load(
        self,
        env: LogEnvironment,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        was_clean: bool,
        path: str | None = None,
    ) -> PartitionLog:
        if path is None:
            self.folders.identify_late(topic_partition, topic_id)
        self.checkpoints.forget_other_topics(topic_partition, topic_id)
        cleaned_to = self.cleaned_to.get(topic_partition)
        if path is None:
            path = self.folders.path_of(topic_partition)
            found_id = self.folders.topic_ids.get(topic_partition)
        else:  # a copy is taken for the one of the topic whose id it has
            found_id = topic_id
            if cleaned_to is not None:
                cleaned_to = 0  # it is of the copied log: what a crash took from the copy is no hole
        # The checkpoints and sizes are of what the replica was, not of what is left of it.
        is_known = not self.folders.begins_anew(topic_partition)
        log = load_log(
            env,
            path,
            topic_partition,
            topic_id,
            config,
            was_clean=was_clean and is_known,
            recovery_point=self.checkpoints.recovery_points.get(
                topic_partition, None if was_clean or self.checkpoints.has_lost_points else 0
            )
            if is_known
            else 0,
            log_start_offset=self.checkpoints.log_starts.get(topic_partition, 0),
            sizes=self._sizes.get(topic_partition) if self._sizes is not None and is_known else None,
            cleaned_to=cleaned_to,
        )
        if not log.files.is_blank:
            # A correct file stays: a full disk or a kill during a rewrite in place would lose it.
            if found_id != topic_id:
                log.files.write_topic_id()
            elif not was_clean:
                log.files.note_topic_id()
        self.folders.topic_ids.pop(topic_partition, None)
        return log

    def adopt(self, log: PartitionLog) -> PartitionLog:
        """Add a loaded log to this directory, and return it."""
        self.logs[log.topic_partition] = log
        if self.checkpoints.log_starts.get(log.topic_partition, 0) > log.log_end_offset:
            self.checkpoints.has_stale_offsets = True
        return log

    def forget_start(self) -> None:
        """Free the memory of data that only `load` needs. Call it when every log is open."""
        self._sizes = self.logs_elsewhere = None
        self.folders.blank.clear()
        self.checkpoints.share_keys()

    def create(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """Create an empty log. Its first flush makes its folder durable.

        If the folder exists and has files of the same topic, open these files as the log. If the folder is of
        another topic, first rename it to a name that ends with ``-stray``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, the folder could not be created, or it
                is the folder of another log (`PartitionFolders.require_other`).
        """
        env = self.env
        if env.failure is not None:
            raise env.offline_error()
        self.checkpoints.forget_other_topics(topic_partition, topic_id)
        path = self.folders.path_of(topic_partition)
        try:
            is_new = env.fs.make_directory(path)
            if not is_new:
                self.folders.require_other(topic_partition, self.logs)
            if not is_new and self.folders.read_topic_id(path) not in (None, topic_id):
                aside = self.folders.set_aside(topic_partition, "stray")
                logger.warning(
                    "%s belongs to another topic of the same name: moved to %s",
                    topic_partition,
                    aside,
                )
                env.fs.make_directory(path)
            if is_new or not env.fs.entries(path):
                log = new_log(env, path, topic_partition, topic_id, config)
            else:  # files from an earlier start that crashed before it acknowledged anything
                log = self._load(env, topic_partition, topic_id, config, was_clean=False)
                self._continue_at_start(log)
        except OSError as error:
            raise env.handle_error(topic_partition, error) from error
        return self.adopt(log)

    def delete(self, topic_partition: TopicPartition) -> TreeRemoval | None:
        """Remove a log from the directory: close it, and rename its folder.

        Return a task that deletes the renamed folder. The caller must run it. Return None if the folder did
        not exist any more.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the folder could not be renamed. The broker's next start deletes
                it.
        """
        log = self.logs.pop(topic_partition)
        self.checkpoints.forget(topic_partition)
        log.abandon()
        try:
            path = self.folders.set_aside(topic_partition, "delete")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.env.handle_error(topic_partition, error) from error
        return TreeRemoval(self.env.fs, path)

    # --- copies of logs that move here ---

    def load_future(
        self, path: str, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig
    ) -> PartitionLog:
        """Open the copy of a log in the folder `path`. Add the result to `futures` on the event loop.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR or CORRUPT_MESSAGE, see `load`.
        """
        env = self.env
        loading = LogEnvironment(env.path, OpenFiles(env.fs), env.clock, env.random)
        try:
            log = self._load(loading, topic_partition, topic_id, config, was_clean=self.was_clean, path=path)
        except OSError as error:
            raise env.handle_error(topic_partition, error) from error
        finally:
            loading.files.close_idle()
        log.move_to(env)
        return log

    def create_future(
        self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig, start: Offset
    ) -> PartitionLog:
        """Create the copy for a log that moves to this directory. The empty copy begins at offset `start`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, or the copy could not be created.
        """
        env = self.env
        if env.failure is not None:
            raise env.offline_error()
        self.checkpoints.forget(topic_partition)
        path = self.folders.new_copy(topic_partition)
        try:
            env.fs.make_directory(path)
            log = new_log(env, path, topic_partition, topic_id, config)
            log.files.begin()
            truncate_fully_and_start_at(log, start, sync=False)
        except (OSError, KafkaError) as error:
            with suppress(OSError):
                env.fs.remove_tree(path)
            raise env.handle_error(topic_partition, error) if isinstance(error, OSError) else error from error
        self.futures[topic_partition] = log
        return log

    def drop_future(self, topic_partition: TopicPartition) -> TreeRemoval | None:
        """Remove the copy of a log whose move is cancelled: rename the copy's folder.

        Return a task that deletes the renamed folder. The caller must run it. If the folder could not be
        renamed, return None, and remove the topic id from the folder. So the next start does not continue the
        move.

        Raises:
            KeyError: this directory has no copy of the log.
        """
        future = self.futures.pop(topic_partition)
        self.checkpoints.forget(topic_partition)
        future.abandon()
        path = future.files.path
        try:
            aside = self.folders.set_folder_aside(path, topic_partition, "delete")
        except OSError as error:
            try:
                with suppress(FileNotFoundError):
                    self.env.fs.remove(f"{path}/{PARTITION_METADATA}")
            except OSError:
                logger.error("%s cannot be removed, so the next start continues its move: %s", path, error)
            else:  # a start removes a copy without a topic id
                logger.warning("%s cannot be removed now, so the next start removes it: %s", path, error)
            return None
        return TreeRemoval(self.env.fs, aside)

    def close_futures(self) -> None:
        """Close all copies. Their folders stay, so that the next start continues the moves."""
        for future in self.futures.values():
            future.abandon()
        self.futures.clear()

    # --- stop ---

    def close(self, logs_elsewhere: Collection[LogName] | None = None) -> None:
        """Flush and close every log. If nothing failed, mark the stop as clean. Errors are only logged.

        `logs_elsewhere` has the logs with files in the broker's other directories. With None, the next start
        does not know which logs these are.
        """
        try:
            unflushed = self._flush_all()
            self.checkpoints.write_all()
            fs, crc = self.env.fs, None
            clean_stop.store_sizes(fs, self.path, self.checkpoints.logs)
            if logs_elsewhere is not None:
                crc = clean_stop.store_logs_elsewhere(fs, self.path, logs_elsewhere)
            if unflushed:
                names = ", ".join(map(str, unflushed[:10])) + (", ..." if len(unflushed) > 10 else "")
                logger.error(
                    "%s is not marked as cleanly closed, the next start checks its logs: "
                    "%d of them could not be flushed (%s)",
                    self.path,
                    len(unflushed),
                    names,
                )
            elif self.is_recovered:
                clean_stop.mark_as_clean(fs, self.path, self.broker_epoch, crc)
                self.closed_cleanly = True
            else:
                logger.warning("%s is not marked as cleanly closed: not every log was recovered", self.path)
        except Exception as error:
            logger.error(
                "%s is not marked as cleanly closed, the next start checks its logs: %r", self.path, error
            )
        finally:
            for log in self.checkpoints.logs.values():
                log.abandon()
            self._lock.release()

    def _flush_all(self) -> list[TopicPartition]:
        """Flush every log. Return the partitions of the logs that could not be flushed."""
        # Flush several logs at once, because file systems combine fsyncs that arrive together into one
        # commit. Flush only some of them at once, because each flush keeps its log's files open.
        logs = list(self.checkpoints.logs.values())
        failed: list[TopicPartition] = []
        lines = FewLines(logger)
        with self._blocking.side_by_side(_FLUSH_THREADS) as for_each:
            for start in range(0, len(logs), 4 * _FLUSH_THREADS):
                due = []
                for log in logs[start : start + 4 * _FLUSH_THREADS]:
                    with self._noted(log, failed, lines):
                        flush = log.prepare_close()
                        if flush is not None:
                            due.append((log, flush))
                for_each(lambda item: item[1].run(), due)
                for log, flush in due:
                    with self._noted(log, failed, lines):
                        log.complete_flush(flush)
        return failed

    @contextmanager
    def _noted(self, log: PartitionLog, failed: list[TopicPartition], lines: FewLines) -> Iterator[None]:
        """Within this context, add the log's partition to `failed` after an error, instead of raising it.

        The error is logged, unless the whole directory has failed.
        """
        try:
            yield
        except Exception as error:
            if self.env.failure is None:
                lines.log("%s in %s could not be flushed: %s", log.topic_partition, self.path, error)
            failed.append(log.topic_partition)
