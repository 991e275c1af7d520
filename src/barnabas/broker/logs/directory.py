"""A log directory: a folder with the logs of partitions, on one disk, which one broker at a time can use.

    DIR/.lock                       held while a broker runs on the directory
    DIR/meta.properties             the cluster and broker that own the directory
    DIR/.kafka_cleanshutdown        exists if the last stop was clean
    DIR/*-offset-checkpoint         recovery points, log start offsets, high watermarks
    DIR/<topic>-<partition>/        a partition's log
    DIR/<topic>-<p>.<hex>-delete/   a deleted partition, whose files are removed later
    DIR/<topic>-<p>.<hex>-future/   the copy of a partition that is moved here from another directory

Only the event loop's thread uses a `LogDirectory`, except for `load`, which several threads can call at once.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import Random

from barnabas.base.environment.blocking import Blocking
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import (
    FileSystem,
    Lock,
    exists,
    make_durable_directory,
    replace_file,
    write_file,
)
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import BarnabasError, ConfigError, ErrorCode, KafkaError
from barnabas.base.types import ZERO_TOPIC_ID, Offset, TopicId, TopicPartition, topic_id_to_str
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs.missing_directories import LogName
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite, OffsetCheckpoint
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    NO_BROKER_EPOCH,
    CleanShutdown,
    SegmentSizes,
)
from barnabas.broker.storage.damage import keep_damaged, read_small_file
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.harm import hint_of, may_pass
from barnabas.broker.storage.incomplete import Mark, read_mark, remove_mark, write_mark
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.log_files import LOG
from barnabas.broker.storage.open_files import OpenFiles
from barnabas.broker.storage.opening import load_log, new_log
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.tasks import Replacement, TreeRemoval
from barnabas.broker.storage.truncation import truncate_fully_and_start_at
from barnabas.kafka.records.crc import crc32c

logger = logging.getLogger(__name__)

_PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_FLUSH_THREADS = 16
_FUTURE_FOLDER = re.compile(r".+-(?P<partition>[0-9]{1,10})\.[0-9a-f]{32}-future")
#: most characters of a topic's name in such a folder's name: the name of a file has a limited length
_MAX_NAME_LENGTH = 190
_DELETED_FOLDER = re.compile(r".*\.[0-9a-f]{32}-delete")


#: the effect of a checkpoint that cannot be read
_MEANING = {
    checkpoints.RECOVERY_POINTS: "logs that it does not name are read through",
    checkpoints.HIGH_WATERMARKS: "high watermarks are computed again",
    checkpoints.LOG_STARTS: "records that DeleteRecords has removed may show again",
    checkpoints.CLEANED: "compacted logs that it does not name are cleaned from their start",
}


def future_folder(name: str, topic_partition: TopicPartition) -> bool:
    """Whether `name` is the folder of a copy of a partition, made for a move between log directories."""
    stem = f"{topic_partition.topic[:_MAX_NAME_LENGTH]}-{topic_partition.partition}."
    return _FUTURE_FOLDER.fullmatch(name) is not None and name.startswith(stem)


class DirectoryLocked(BarnabasError):
    """Another broker uses the log directory."""


class LogDirectory:
    """An open log directory and the logs in it. `open` returns one."""

    def __init__(
        self,
        env: LogEnvironment,
        blocking: Blocking,
        lock: Lock,
        directory_id: str,
        *,
        known_directories: frozenset[str],
        marker: CleanShutdown | None,
        is_clustered: bool,
    ) -> None:
        self.env = env
        #: whether other brokers may have replicas, from which lost records are copied again
        self._is_clustered = is_clustered
        #: marks of incomplete replicas, which `found` has read
        self.marks: dict[TopicPartition, Mark] = {}
        self._blocking = blocking
        self.directory_id = directory_id
        #: ids of all log directories of the broker (`barnabas.broker.logs.missing_directories`); empty if no
        #: start has loaded this one
        self.known_directories = known_directories
        #: whether the last stop was clean, so that logs need no recovery
        self.was_clean = was_clean = marker is not None
        #: the broker's epoch at the last stop, if that was clean and it had one
        self.previous_epoch = NO_BROKER_EPOCH if marker is None else marker.broker_epoch
        #: the broker's present epoch, which a clean stop stores
        self.broker_epoch = NO_BROKER_EPOCH
        #: whether the logs found here have been recovered: only then may a stop be marked as clean
        self.is_recovered = was_clean or not _has_partitions(env.fs, env.path)
        #: whether `close` marked the stop as clean
        self.closed_cleanly = False
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: copies that are to replace logs in other directories of this broker
        self.futures: dict[TopicPartition, PartitionLog] = {}
        #: whether the checkpoint has a log start offset after the end of its log, which was truncated. The
        #: checkpoint must be rewritten before the log grows past that offset, or a restart would hide the new
        #: records
        self.has_stale_offsets = False
        #: new log start offsets, which take effect once the checkpoint has them
        self.planned_starts: list[Sequence[tuple[PartitionLog, Offset]]] = []
        self._lock = lock
        #: topic ids that `found` has read, until the logs are loaded
        self._found: dict[TopicPartition, TopicId] = {}
        #: partitions whose empty folders `found` has removed: they have no records here
        self.blank: set[TopicPartition] = set()
        #: folders that belong to no topic of this broker, and are left alone, with the topic id of each
        self.strangers: dict[TopicPartition, TopicId] = {}
        #: the logs with files in the broker's other directories at the last clean stop; None if not known
        self.logs_elsewhere = self._read_logs_elsewhere(marker)
        #: partitions whose folders `found` could not read for lack of open files or memory; `load` reads them
        self.unread: set[TopicPartition] = set()
        #: each segment's size as of the clean stop
        self._sizes = self._read_sizes() if was_clean else None
        #: whether a checkpoint has lines without the tag of a topic id, as Apache Kafka writes them
        self.has_untagged_offsets = False
        #: whether the recovery points, or some of them, could not be read
        self._has_lost_points = False
        self._recovery_points = self._read_offsets(checkpoints.RECOVERY_POINTS)
        self._log_starts = self._read_offsets(checkpoints.LOG_STARTS)
        self._high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARKS)
        self._cleaned_to = self._read_offsets(checkpoints.CLEANED)
        self._checkpoints = (
            self._recovery_points,
            self._log_starts,
            self._high_watermarks,
            self._cleaned_to,
        )
        env.before_truncation = self._before_truncation

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
            directory_id, known_directories = _claim(
                fs, path, cluster_id, node_id, environment.random, is_clustered=is_clustered
            )
            content = _take_marker(fs, path)
            env = LogEnvironment(path, files, environment.clock, environment.random, on_failure=on_failure)
            return cls(
                env,
                environment.blocking,
                lock,
                directory_id,
                known_directories=known_directories,
                marker=None if content is None else checkpoints.decode_clean_shutdown(content),
                is_clustered=is_clustered,
            )
        except BaseException:
            lock.release()
            raise

    def store_directories(self, ids: frozenset[str]) -> None:
        """Store the ids of the log directories of the broker, with that of this one, in `meta.properties`.

        Raises:
            OSError: the disk failed.
        """
        if ids == self.known_directories:
            return
        fs, file = self.env.fs, f"{self.path}/{checkpoints.META_PROPERTIES}"
        properties = checkpoints.decode_properties(read_small_file(fs, file))
        properties.pop(checkpoints.LOG_DIRS, None)
        if len(ids) > 1:
            properties[checkpoints.LOG_DIRS] = ",".join(sorted(ids))
        replace_file(fs, file, checkpoints.encode_properties(properties))
        self.known_directories = ids

    @property
    def path(self) -> str:
        return self.env.path

    @property
    def knows_its_logs(self) -> bool:
        """Whether the recovery point checkpoint could be read, which lists the directory's logs.

        Without this checkpoint, the broker cannot notice that a log is missing.
        """
        return not self._has_lost_points

    @property
    def _all_logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All logs with entries in the checkpoints: the directory's logs, and the copies in `futures`."""
        return ChainMap(self.logs, self.futures) if self.futures else self.logs

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, Offset]:
        """The high watermarks in the checkpoint on disk: as `open` has read it, or as last written."""
        return self._high_watermarks.offsets

    @property
    def cleaned_to(self) -> Mapping[TopicPartition, Offset]:
        """The offsets up to which compacted logs are clean."""
        return self._cleaned_to.offsets

    @property
    def failure(self) -> OSError | None:
        """The error that took the directory offline; None while it works."""
        return self.env.failure

    def expects(self, topic_partition: TopicPartition, topic_id: TopicId = ZERO_TOPIC_ID) -> Offset:
        """Return a partition's recovery point in the checkpoint; 0 if the partition has none.

        All records before the recovery point were on disk. If `topic_id` is not zero, first remove the
        partition's entries of another topic with the same name from all checkpoints.
        """
        if topic_id != ZERO_TOPIC_ID:
            self._forget_other_topics(topic_partition, topic_id)
        return self._recovery_points.offsets.get(topic_partition, 0)

    def is_of_another_topic(self, topic_partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether a checkpoint says that the partition's folder belongs to another topic than `topic_id`.

        Call it only if the folder itself does not contain a topic id.
        """
        tag = checkpoints.tag_of_topic(topic_id)
        return any(each.tags.get(topic_partition, tag) != tag for each in self._checkpoints)

    def found(self) -> dict[TopicPartition, TopicId]:
        """Return the directory's partitions, with their topic ids (zero if unknown).

        Partitions whose folders cannot be read for lack of memory or open files are left out, and added to
        `unread`. Empty folders are left out, too, because their topics are not known. Remove an empty folder
        unless a checkpoint says that the partition has records.

        Raises:
            OSError: the disk failed.
        """
        partitions = {}
        for entry in self.env.fs.entries(self.path):
            folder = _PARTITION_FOLDER.fullmatch(entry.name)
            if not entry.is_directory or not folder or _DELETED_FOLDER.fullmatch(entry.name):
                continue
            path = f"{self.path}/{entry.name}"
            topic_partition = TopicPartition(sys.intern(folder["topic"]), int(folder["partition"]))
            try:
                topic_id = self._identify(topic_partition, path)
                if topic_id is not None:
                    partitions[topic_partition] = topic_id
                elif not self.expects(topic_partition):
                    self.env.fs.remove_tree(path)
                    self.blank.add(topic_partition)
            except OSError as error:
                if not may_pass(error):
                    raise
                logger.warning("%s cannot be read for now: %s%s", path, error, hint_of(error))
                self.unread.add(topic_partition)
        self._found = dict(partitions)
        return partitions

    def _identify(self, topic_partition: TopicPartition, path: str) -> TopicId | None:
        """Return the topic id in a partition's folder: zero if unknown, None if the folder is empty.

        A file in the folder can mark the replica as incomplete. In a cluster, also store the content of this
        file in `marks`. Remove the file if it is of a deleted topic of the same name.
        """
        opened = self.logs.get(topic_partition)
        topic_id = self._read_topic_id(path) if opened is None else opened.topic_id
        if self._is_clustered and (mark := read_mark(self.env.fs, path)) is not None:
            if mark.is_of(topic_id):
                self.marks[topic_partition] = mark
            else:
                logger.info("%s: removing the mark of a deleted topic that its replica is incomplete", path)
                remove_mark(self.env.fs, path)
        return topic_id

    def _identify_late(self, topic_partition: TopicPartition, topic_id: TopicId, path: str) -> None:
        """Read the topic id of a folder that is in `unread`, and remove the folder from `unread`.

        If a file in the folder marks the replica as incomplete, store the file's content in `marks`. An empty
        folder has no topic id, and is accepted.

        Raises:
            OSError: the disk failed.
            KafkaError: KAFKA_STORAGE_ERROR, the folder names another topic id than `topic_id`, or none. The
                broker examines the folder again at its next start.
        """
        found_id = self._identify(topic_partition, path)
        if found_id not in (None, topic_id):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{path} belongs to another topic of the same name, or does not name its topic: start the "
                "broker again",
            )
        if found_id is not None:
            self._found[topic_partition] = found_id
        self.unread.discard(topic_partition)

    def found_futures(self) -> dict[str, tuple[TopicId, int]]:
        """Return the folders of copies whose move was interrupted, by path.

        Each has its topic id (zero if unknown) and its partition number.
        """
        found = {}
        for entry in self.env.fs.entries(self.path):
            folder = _FUTURE_FOLDER.fullmatch(entry.name)
            if entry.is_directory and folder:
                path = f"{self.path}/{entry.name}"
                found[path] = (self._read_topic_id(path) or ZERO_TOPIC_ID, int(folder["partition"]))
        return found

    def leftovers(self) -> list[TreeRemoval]:
        """Return tasks that remove the folders of partitions whose deletion was interrupted."""
        return [
            TreeRemoval(self.env.fs, f"{self.path}/{entry.name}")
            for entry in self.env.fs.entries(self.path)
            if entry.is_directory and _DELETED_FOLDER.fullmatch(entry.name)
        ]

    def is_gone(self, topic_partition: TopicPartition) -> bool:
        """Whether a log's folder does not exist, or has no segment.

        Raises:
            OSError: the disk failed.
        """
        try:
            entries = self.env.fs.entries(f"{self.path}/{topic_partition}")
        except FileNotFoundError:
            return True
        return not any(LOG in entry.name for entry in entries)

    def mark_incomplete(self, topic_partition: TopicPartition, topic_id: TopicId, mark: Mark) -> None:
        """Create the folder of a lost replica, so that `load` opens it as an empty replica.

        Write `mark` into the folder, so that the broker registers the replica as incomplete. A new folder
        gets its name after that: an empty folder means that the partition never had a record. Any thread can
        call this method.

        Raises:
            OSError: the disk failed.
        """
        fs, path = self.env.fs, f"{self.path}/{topic_partition}"
        is_new = not exists(fs, path)
        folder = self._aside(topic_partition, "delete") if is_new else path
        make_durable_directory(fs, folder)
        try:
            write_file(
                fs,
                f"{folder}/{checkpoints.PARTITION_METADATA}",
                checkpoints.encode_partition_metadata(topic_id),
            )
            write_mark(fs, folder, mark)
            if is_new:
                fs.rename(folder, path)
                fs.sync_directory(self.path)
        except OSError:
            if is_new:
                with suppress(OSError):
                    fs.remove_tree(folder)
            raise

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
        except OSError as error:
            loading.files.close_idle()
            raise env.handle_error(topic_partition, error) from error
        except Exception:
            loading.files.close_idle()
            raise
        log.move_to(env)
        if self._begins_anew(topic_partition):
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

    def _begins_anew(self, topic_partition: TopicPartition) -> bool:
        mark = self.marks.get(topic_partition)
        return mark is not None and not mark.is_emptied

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
        self.forget(topic_partition)
        topic, number = topic_partition
        path = f"{env.path}/{topic[:_MAX_NAME_LENGTH]}-{number}.{new_uuid(env.random).hex}-future"
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
        self.forget(topic_partition)
        future.abandon()
        path, aside = future.files.path, self._aside(topic_partition, "delete")
        try:
            self.env.fs.rename(path, aside)
        except OSError as error:
            try:
                with suppress(FileNotFoundError):
                    self.env.fs.remove(f"{path}/{checkpoints.PARTITION_METADATA}")
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

    def adopt(self, log: PartitionLog) -> PartitionLog:
        """Add a loaded log to this directory, and return it."""
        self.logs[log.topic_partition] = log
        if self._log_starts.offsets.get(log.topic_partition, 0) > log.log_end_offset:
            self.has_stale_offsets = True
        return log

    def forget_start(self) -> None:
        """Free the memory of data that only `load` needs. Call it when every log is open."""
        self._sizes = self.logs_elsewhere = None
        self.blank.clear()
        for checkpoint in self._checkpoints:
            checkpoint.share(self._all_logs)

    def create(self, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig) -> PartitionLog:
        """Create an empty log. Its first flush makes its folder durable.

        If the folder exists and has files of the same topic, open these files as the log. If the folder is of
        another topic, first rename it to a name that ends with ``-stray``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, the folder could not be created, or the
                file system ignores case and the folder is that of another log (`_require_other_folder`).
        """
        env = self.env
        if env.failure is not None:
            raise env.offline_error()
        self._forget_other_topics(topic_partition, topic_id)
        path = f"{env.path}/{topic_partition}"
        try:
            is_new = env.fs.make_directory(path)
            if not is_new:
                self._require_other_folder(topic_partition)
            if not is_new and self._read_topic_id(path) not in (None, topic_id):
                aside = self.set_aside(topic_partition, "stray")
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
        except OSError as error:
            raise env.handle_error(topic_partition, error) from error
        return self.adopt(log)

    def _require_other_folder(self, topic_partition: TopicPartition) -> None:
        """Check that no other log has the folder of a new log, on a file system that ignores case.

        Many file systems of macOS and Windows treat ``Orders-0`` and ``orders-0`` as the same folder.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory has a log whose name differs only in case.
        """
        folded = str(topic_partition).casefold()
        for other in self.logs:
            if other != topic_partition and str(other).casefold() == folded:
                what = (
                    f"{other} has the folder of {topic_partition}, since the file system of {self.path} "
                    "does not tell upper case from lower case: choose another name for the topic"
                )
                logger.error(what)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)

    def set_aside(self, topic_partition: TopicPartition, suffix: str) -> str:
        """Rename the folder of a closed log, so that the broker's next start does not read it as a log.

        Return the new path, which ends with ``-`` and `suffix`.

        Raises:
            OSError: the rename failed.
        """
        path = self.set_folder_aside(f"{self.path}/{topic_partition}", topic_partition, suffix)
        self.unread.discard(topic_partition)
        return path

    def set_folder_aside(self, folder: str, topic_partition: TopicPartition, suffix: str) -> str:
        """Rename a folder of a partition in this directory, as `set_aside` does, and return the new path."""
        path = self._aside(topic_partition, suffix)
        self.env.fs.rename(folder, path)
        return path

    def _aside(self, topic_partition: TopicPartition, suffix: str) -> str:
        # Kafka's form, cut so that a long topic name still fits into a file name
        return f"{self.path}/{str(topic_partition)[:200]}.{new_uuid(self.env.random).hex}-{suffix}"

    def delete(self, topic_partition: TopicPartition) -> TreeRemoval | None:
        """Remove a log from the directory: close it, and rename its folder.

        Return a task that deletes the renamed folder. The caller must run it. Return None if the folder did
        not exist any more.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the folder could not be renamed. The broker's next start deletes
                it.
        """
        log = self.logs.pop(topic_partition)
        self.forget(topic_partition)
        log.abandon()
        try:
            path = self.set_aside(topic_partition, "delete")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.env.handle_error(topic_partition, error) from error
        return TreeRemoval(self.env.fs, path)

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Remove a log's entries from the checkpoints to be written. Return whether there were any."""
        was_in = [checkpoint.forget(topic_partition) for checkpoint in self._checkpoints]
        return any(was_in)

    def forget_all_but(self, known: Collection[TopicPartition]) -> bool:
        """Remove the entries of all partitions not in `known` from the checkpoints to be written.

        Return whether there were any.
        """
        named = (tp for checkpoint in self._checkpoints for tp in checkpoint.offsets)
        others = dict.fromkeys(tp for tp in named if tp not in known)
        for topic_partition in others:
            self.forget(topic_partition)
        return bool(others)

    def _forget_other_topics(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        """Remove the entries of an earlier topic with the same name from the checkpoints.

        `topic_id` is the id of the present topic of `topic_partition`. The entries would mislead the broker's
        next start:

        - The broker would report the earlier topic's records as lost.
        - It would hide the new topic's records below the earlier topic's log start offset.
        - It would not check the new topic's records below the earlier topic's recovery point.
        """
        tag = checkpoints.tag_of_topic(topic_id)
        for checkpoint in self._checkpoints:
            if checkpoint.tags.get(topic_partition, tag) != tag:
                checkpoint.forget(topic_partition)

    def recovery_point_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the recovery points.

        The broker runs it periodically, to limit recovery after a crash.
        """
        return CheckpointWrite(self._recovery_points, self._all_logs, lambda log: log.recovery_point)

    def log_start_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the log start offsets above the base offset of the first segment.

        Entries of logs that could not be opened are kept, so that their deleted records stay deleted.
        """
        self.has_stale_offsets = False
        planned: dict[PartitionLog, Offset] = {}
        for log, start in (each for plan in self.planned_starts for each in plan):
            planned[log] = max(start, planned.get(log, 0))

        def unknown_to_files(log: PartitionLog) -> Offset | None:
            start = max(log.log_start_offset, planned.get(log, 0))
            # The file of leader epochs may begin before the first segment until it is rewritten. A power cut
            # can bring back earlier segments if the new names of their files are not on disk. In both cases,
            # the files do not show the log's start.
            is_behind = log.epochs.changed or log.files.has_new_names
            known = 0 if is_behind else log.files.segments[0].base_offset
            return start if start > known else None

        return CheckpointWrite(self._log_starts, self._all_logs, unknown_to_files)

    def high_watermark_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the high watermarks."""
        return CheckpointWrite(self._high_watermarks, self._all_logs, lambda log: log.high_watermark)

    def cleaned_checkpoint(self) -> CheckpointWrite:
        """Return a task that writes the offsets up to which compacted logs are clean, if any has changed."""
        return CheckpointWrite(self._cleaned_to, self._all_logs, None)

    def note_clean(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Set the offset up to which a log is clean. The next `cleaned_checkpoint` writes it."""
        self._cleaned_to.offsets[topic_partition] = offset
        self._cleaned_to.is_stale = True

    def lower_cleaned(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Before a truncation to `offset`, note that the log is compacted at most up to `offset`."""
        if self.cleaned_to.get(topic_partition, 0) > offset:
            # only flushed records are cleaned, so no other truncation removes clean records
            self.note_clean(topic_partition, offset)

    def close(self, logs_elsewhere: Collection[LogName] | None = None) -> None:
        """Flush and close every log. If nothing failed, mark the stop as clean. Errors are only logged.

        `logs_elsewhere` has the logs with files in the broker's other directories. With None, the next start
        does not know which logs these are.
        """
        try:
            unflushed = self._flush_all()
            for checkpoint in self._checkpoints:
                checkpoint.is_stale = True  # the files may have changed meanwhile
            self.recovery_point_checkpoint().run()
            self.log_start_checkpoint().run()
            self.high_watermark_checkpoint().run()
            self.cleaned_checkpoint().run()
            self._size_checkpoint().run()
            crc = None
            if logs_elsewhere is not None:
                content = checkpoints.encode_logs(logs_elsewhere)
                Replacement(self.env.fs, f"{self.path}/{checkpoints.LOGS_ELSEWHERE}", content).run()
                crc = crc32c(content)
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
                marker = checkpoints.encode_clean_shutdown(CleanShutdown(self.broker_epoch, crc))
                Replacement(self.env.fs, f"{self.path}/{CLEAN_SHUTDOWN}", marker).run()
                self.closed_cleanly = True
            else:
                logger.warning("%s is not marked as cleanly closed: not every log was recovered", self.path)
        except Exception as error:
            logger.error(
                "%s is not marked as cleanly closed, the next start checks its logs: %r", self.path, error
            )
        finally:
            for log in self._all_logs.values():
                log.abandon()
            self._lock.release()

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
        if path is None and topic_partition in self.unread:
            self._identify_late(topic_partition, topic_id, f"{env.path}/{topic_partition}")
        self._forget_other_topics(topic_partition, topic_id)
        cleaned_to = self.cleaned_to.get(topic_partition)
        if path is None:
            path = f"{env.path}/{topic_partition}"
            found_id = self._found.get(topic_partition)
        else:  # a copy is taken for the one of the topic whose id it has
            found_id = topic_id
            if cleaned_to is not None:
                cleaned_to = 0  # it is of the copied log: what a crash took from the copy is no hole
        # The checkpoints and sizes are of what the replica was, not of what is left of it.
        is_known = not self._begins_anew(topic_partition)
        log = load_log(
            env,
            path,
            topic_partition,
            topic_id,
            config,
            was_clean=was_clean and is_known,
            recovery_point=self._recovery_points.offsets.get(
                topic_partition, None if was_clean or self._has_lost_points else 0
            )
            if is_known
            else 0,
            log_start_offset=self._log_starts.offsets.get(topic_partition, 0),
            sizes=self._sizes.get(topic_partition) if self._sizes is not None and is_known else None,
            cleaned_to=cleaned_to,
        )
        if not log.files.is_blank:
            # A correct file stays: a full disk or a kill during a rewrite in place would lose it.
            if found_id != topic_id:
                log.files.write_topic_id()
            elif not was_clean:
                log.files.note_topic_id()
        self._found.pop(topic_partition, None)
        return log

    def _flush_all(self) -> list[TopicPartition]:
        """Flush every log. Return the partitions of the logs that could not be flushed."""
        # Flush several logs at once, because file systems combine fsyncs that arrive together into one
        # commit. Flush only some of them at once, because each flush keeps its log's files open.
        logs = list(self._all_logs.values())
        failed: list[TopicPartition] = []
        with self._blocking.side_by_side(_FLUSH_THREADS) as for_each:
            for start in range(0, len(logs), 4 * _FLUSH_THREADS):
                due = []
                for log in logs[start : start + 4 * _FLUSH_THREADS]:
                    with self._noted(log, failed):
                        flush = log.prepare_close()
                        if flush is not None:
                            due.append((log, flush))
                for_each(lambda item: item[1].run(), due)
                for log, flush in due:
                    with self._noted(log, failed):
                        log.complete_flush(flush)
        return failed

    @contextmanager
    def _noted(self, log: PartitionLog, failed: list[TopicPartition]) -> Iterator[None]:
        """Within this context, add the log's partition to `failed` after an error, instead of raising it.

        The error is logged, unless the whole directory has failed.
        """
        try:
            yield
        except Exception as error:
            if self.env.failure is None:
                logger.error("%s in %s could not be flushed: %s", log.topic_partition, self.path, error)
            failed.append(log.topic_partition)

    def _before_truncation(self, topic_partition: TopicPartition, offset: Offset) -> None:
        # With the old recovery point on disk, recovery would not check records written after the truncation.
        def point_of(log: PartitionLog) -> Offset:
            is_cut = log.topic_partition == topic_partition
            return min(offset, log.recovery_point) if is_cut else log.recovery_point

        CheckpointWrite(self._recovery_points, self._all_logs, point_of).run()
        self.lower_cleaned(topic_partition, offset)
        self.cleaned_checkpoint().run()  # also what an earlier call could not write

    def _size_checkpoint(self) -> Replacement:
        sizes = (
            (tp, segment.base_offset, _sizes_of(segment))
            for tp, log in self._all_logs.items()
            if not log.files.is_blank
            for segment in log.files.segments
        )
        return Replacement(
            self.env.fs, f"{self.path}/{checkpoints.SEGMENT_SIZES}", checkpoints.encode_sizes(sizes)
        )

    def _read_sizes(self) -> dict[TopicPartition, dict[Offset, SegmentSizes]] | None:
        path = f"{self.path}/{checkpoints.SEGMENT_SIZES}"
        try:
            sizes = checkpoints.decode_sizes(read_small_file(self.env.fs, path))
        except FileNotFoundError:
            return None
        except ValueError:
            sizes = None
        if sizes is None:
            logger.warning("%s is damaged: reading the ends of segments instead", path)
            keep_damaged(self.env.fs, path)
        return sizes

    def _read_logs_elsewhere(self, marker: CleanShutdown | None) -> frozenset[LogName] | None:
        """Return the logs in `barnabas-logs-elsewhere`; None if `marker` is not of the stop that wrote it."""
        if marker is None or marker.logs_elsewhere is None:
            return None
        try:
            content = read_small_file(self.env.fs, f"{self.path}/{checkpoints.LOGS_ELSEWHERE}")
            return checkpoints.decode_logs(content) if crc32c(content) == marker.logs_elsewhere else None
        except (FileNotFoundError, ValueError):
            return None

    def _read_offsets(self, name: str) -> OffsetCheckpoint:
        path = f"{self.path}/{name}"
        nothing = checkpoints.CheckpointedOffsets({}, {}, None)
        try:
            read = checkpoints.decode_offsets(read_small_file(self.env.fs, path))
        except FileNotFoundError:
            if self.was_clean and name != checkpoints.CLEANED:
                logger.warning("%s is missing: %s", path, _MEANING[name])
                self._has_lost_points = self._has_lost_points or name == checkpoints.RECOVERY_POINTS
            read = nothing
        except ValueError as error:
            read = nothing._replace(damage=str(error))
        if len(read.tags) < len(read.offsets):
            self.has_untagged_offsets = True
        if read.damage is not None:
            logger.warning("%s is damaged (%s): %s", path, read.damage, _MEANING[name])
            self._has_lost_points = self._has_lost_points or name == checkpoints.RECOVERY_POINTS
            keep_damaged(self.env.fs, path)
        return OffsetCheckpoint(self.env.fs, path, read)

    def _read_topic_id(self, folder: str) -> TopicId | None:
        """Return the topic's id in a partition's folder: zero if unknown, None if the folder is empty."""
        path = f"{folder}/{checkpoints.PARTITION_METADATA}"
        try:
            return checkpoints.decode_partition_metadata(read_small_file(self.env.fs, path))
        except FileNotFoundError:
            if not self.env.fs.entries(folder):
                return None
            logger.warning("%s is missing: using the name of the partition's folder", path)
            return ZERO_TOPIC_ID
        except ValueError as error:
            logger.warning("%s: %s: using the name of the partition's folder", path, error)
            keep_damaged(self.env.fs, path)
            return ZERO_TOPIC_ID


def _sizes_of(segment: LogSegment) -> SegmentSizes:
    return SegmentSizes(segment.size, segment.offsets.size, segment.times.size, *segment.latest)


def _has_partitions(fs: FileSystem, path: str) -> bool:
    return any(entry.is_directory and _PARTITION_FOLDER.fullmatch(entry.name) for entry in fs.entries(path))


def _claim(
    fs: FileSystem, path: str, cluster_id: str, node_id: int, random: Random, *, is_clustered: bool
) -> tuple[str, frozenset[str]]:
    """Check that the directory belongs to this broker. If it belongs to none, claim it in `meta.properties`.

    If `is_clustered` is True, also write to `meta.properties` that the broker is in a cluster.

    Returns:
        The id of the directory, and the ids of all log directories of the broker. If `meta.properties` has no
        id, `random` chooses one. The second result is empty if no start has loaded the directory.

    Raises:
        ConfigError: the directory belongs to another broker or cluster, or `meta.properties` is damaged.
        OSError: the disk failed.
    """
    file = f"{path}/{checkpoints.META_PROPERTIES}"
    try:
        found = checkpoints.decode_properties(read_small_file(fs, file))
        if found.get("version") not in ("0", "1") or "cluster.id" not in found:
            raise ValueError("it does not name the cluster")
    except FileNotFoundError:
        found = {}
        if _has_partitions(fs, path):
            logger.warning("%s is missing although there are partitions: it is rewritten", file)
        else:
            found[checkpoints.LOG_DIRS] = ""
    except ValueError as error:
        raise ConfigError(
            f"{file} is damaged ({error}): put it back from a backup, or have `barnabas log repair` "
            "rewrite it"
        ) from error
    for name, ours in (("cluster.id", cluster_id), ("node.id", str(node_id))):
        if found.get(name, ours) != ours:
            raise ConfigError(
                f"{path} belongs to {name}={found[name]}, this broker has {name}={ours}: "
                f"change {name} or choose another log.dirs"
            )
    directory_id = found.get("directory.id") or topic_id_to_str(new_uuid(random).bytes)
    mine = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }
    if is_clustered:
        mine[checkpoints.METADATA_STORE] = checkpoints.ZOOKEEPER
    known = found.get(checkpoints.LOG_DIRS)
    if known is not None:
        mine[checkpoints.LOG_DIRS] = known
    if found != mine:
        replace_file(fs, file, checkpoints.encode_properties(mine))
    if known == "":
        return directory_id, frozenset()
    return directory_id, frozenset((known or directory_id).split(","))


def _take_marker(fs: FileSystem, path: str) -> bytes | None:
    """Remove the marker of a clean stop durably. Return its content; None if there was none.

    The content of a marker that cannot be read counts as empty.
    """
    name = f"{path}/{CLEAN_SHUTDOWN}"
    try:
        content = read_small_file(fs, name)
    except FileNotFoundError:
        return None
    except ValueError:  # it is there, which is what counts
        content = b""
    fs.remove(name)
    fs.sync_directory(path)
    return content
