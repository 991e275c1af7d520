"""The folders of partitions in a log directory: finds, identifies and renames them.

    <topic>-<partition>/            a partition's log
    <topic>-<p>.<hex>-delete/       a deleted partition, whose files are removed later
    <topic>-<p>.<hex>-future/       the copy of a partition that is moved here from another directory
    <topic>-<p>.<hex>-stray/        a folder that belongs to no topic of the broker, and is left alone

The file `partition.metadata` in a folder has the id of its topic. Another file can mark the replica as
incomplete (`barnabas.broker.storage.incomplete`).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress

from barnabas.base.environment.filesystem import FileSystem, exists, make_durable_directory, write_file
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ZERO_TOPIC_ID, Offset, TopicId, TopicPartition
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.damage import keep_damaged, read_small_file
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.harm import hint_of, may_pass
from barnabas.broker.storage.incomplete import Mark, read_mark, remove_mark, write_mark
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.log_files import LOG
from barnabas.broker.storage.tasks import TreeRemoval

logger = logging.getLogger(__name__)

_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_COPY = re.compile(r".+-(?P<partition>[0-9]{1,10})\.[0-9a-f]{32}-future")
_DELETED = re.compile(r".*\.[0-9a-f]{32}-delete")
#: most characters of a topic's name in the name of a copy: the name of a file has a limited length
_MAX_NAME_LENGTH = 190


def has_partitions(fs: FileSystem, path: str) -> bool:
    """Whether the log directory `path` has the folder of a partition."""
    return any(entry.is_directory and _PARTITION.fullmatch(entry.name) for entry in fs.entries(path))


def is_copy(name: str, topic_partition: TopicPartition) -> bool:
    """Whether `name` is the folder of a copy of a partition, made for a move between log directories."""
    stem = f"{topic_partition.topic[:_MAX_NAME_LENGTH]}-{topic_partition.partition}."
    return _COPY.fullmatch(name) is not None and name.startswith(stem)


class PartitionFolders:
    """The folders of partitions in one log directory, and what is known about them.

    Only the event loop's thread uses it, except for `identify_late` and `mark_incomplete`.

    Args:
        env: the log directory.
        is_clustered: whether the broker belongs to a cluster. If not, no replica counts as incomplete.
    """

    def __init__(self, env: LogEnvironment, *, is_clustered: bool) -> None:
        self._env = env
        self._is_clustered = is_clustered
        #: the topic ids that `find` has read, until the logs are loaded
        self.topic_ids: dict[TopicPartition, TopicId] = {}
        #: marks of incomplete replicas
        self.marks: dict[TopicPartition, Mark] = {}
        #: partitions whose empty folders `find` has removed: they have no records here
        self.blank: set[TopicPartition] = set()
        #: partitions whose folders `find` could not read for lack of open files or memory
        self.unread: set[TopicPartition] = set()
        #: folders that belong to no topic of this broker, and are left alone, with the topic id of each
        self.strangers: dict[TopicPartition, TopicId] = {}

    def path_of(self, topic_partition: TopicPartition) -> str:
        """Return the path of a partition's folder."""
        return f"{self._env.path}/{topic_partition}"

    # --- what is there ---

    def find(
        self, logs: Mapping[TopicPartition, PartitionLog], recovery_points: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, TopicId]:
        """Return the partitions with a folder, with their topic ids (zero if unknown).

        Partitions whose folders cannot be read for lack of memory or open files are left out, and added to
        `unread`. Empty folders are left out, too, because their topics are not known. Remove an empty folder
        unless the partition has an entry in `recovery_points`: then it had records.

        Args:
            logs: the open logs. Their topic ids are not read again.
            recovery_points: the recovery points in the checkpoint.

        Raises:
            OSError: the disk failed.
        """
        partitions = {}
        for entry in self._env.fs.entries(self._env.path):
            folder = _PARTITION.fullmatch(entry.name)
            if not entry.is_directory or not folder or _DELETED.fullmatch(entry.name):
                continue
            path = f"{self._env.path}/{entry.name}"
            topic_partition = TopicPartition(sys.intern(folder["topic"]), int(folder["partition"]))
            try:
                topic_id = self._identify(topic_partition, path, logs.get(topic_partition))
                if topic_id is not None:
                    partitions[topic_partition] = topic_id
                elif not recovery_points.get(topic_partition):
                    self._env.fs.remove_tree(path)
                    self.blank.add(topic_partition)
            except OSError as error:
                if not may_pass(error):
                    raise
                logger.warning("%s cannot be read for now: %s%s", path, error, hint_of(error))
                self.unread.add(topic_partition)
        self.topic_ids = dict(partitions)
        return partitions

    def identify_late(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        """Read the topic id of a folder that is in `unread`, and remove the folder from `unread`.

        Do nothing for any other folder. If a file in the folder marks the replica as incomplete, store the
        file's content in `marks`. An empty folder has no topic id, and is accepted. Any thread can call this
        method.

        Raises:
            OSError: the disk failed.
            KafkaError: KAFKA_STORAGE_ERROR, the folder names another topic id than `topic_id`, or none. The
                broker examines the folder again at its next start.
        """
        if topic_partition not in self.unread:
            return
        path = self.path_of(topic_partition)
        found_id = self._identify(topic_partition, path, None)
        if found_id not in (None, topic_id):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{path} belongs to another topic of the same name, or does not name its topic: start the "
                "broker again",
            )
        if found_id is not None:
            self.topic_ids[topic_partition] = found_id
        self.unread.discard(topic_partition)

    def find_copies(self) -> dict[str, tuple[TopicId, int]]:
        """Return the folders of copies whose move was interrupted, by path.

        Each has its topic id (zero if unknown) and its partition number.

        Raises:
            OSError: the disk failed.
        """
        found = {}
        for entry in self._env.fs.entries(self._env.path):
            folder = _COPY.fullmatch(entry.name)
            if entry.is_directory and folder:
                path = f"{self._env.path}/{entry.name}"
                found[path] = (self.read_topic_id(path) or ZERO_TOPIC_ID, int(folder["partition"]))
        return found

    def leftovers(self) -> list[TreeRemoval]:
        """Return tasks that remove the folders of partitions whose deletion was interrupted.

        Raises:
            OSError: the disk failed.
        """
        return [
            TreeRemoval(self._env.fs, f"{self._env.path}/{entry.name}")
            for entry in self._env.fs.entries(self._env.path)
            if entry.is_directory and _DELETED.fullmatch(entry.name)
        ]

    def is_gone(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition's folder does not exist, or has no segment.

        Raises:
            OSError: the disk failed.
        """
        try:
            entries = self._env.fs.entries(self.path_of(topic_partition))
        except FileNotFoundError:
            return True
        return not any(LOG in entry.name for entry in entries)

    def begins_anew(self, topic_partition: TopicPartition) -> bool:
        """Whether a replica is incomplete and was not emptied: its records may have holes."""
        mark = self.marks.get(topic_partition)
        return mark is not None and not mark.is_emptied

    def require_other(self, topic_partition: TopicPartition, logs: Collection[TopicPartition]) -> None:
        """Check that no log in `logs` has the folder of a new log, on a file system that ignores case.

        Many file systems of macOS and Windows treat ``Orders-0`` and ``orders-0`` as the same folder.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory has a log whose name differs only in case.
        """
        folded = str(topic_partition).casefold()
        for other in logs:
            if other != topic_partition and str(other).casefold() == folded:
                what = (
                    f"{other} has the folder of {topic_partition}, since the file system of {self._env.path} "
                    "does not tell upper case from lower case: choose another name for the topic"
                )
                logger.error(what)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)

    def read_topic_id(self, path: str) -> TopicId | None:
        """Return the topic's id in a partition's folder: zero if unknown, None if the folder is empty.

        Raises:
            OSError: the disk failed.
        """
        file = f"{path}/{checkpoints.PARTITION_METADATA}"
        try:
            return checkpoints.decode_partition_metadata(read_small_file(self._env.fs, file))
        except FileNotFoundError:
            if not self._env.fs.entries(path):
                return None
            logger.warning("%s is missing: using the name of the partition's folder", file)
            return ZERO_TOPIC_ID
        except ValueError as error:
            logger.warning("%s: %s: using the name of the partition's folder", file, error)
            keep_damaged(self._env.fs, file)
            return ZERO_TOPIC_ID

    def _identify(
        self, topic_partition: TopicPartition, path: str, opened: PartitionLog | None
    ) -> TopicId | None:
        """Return the topic id in a partition's folder: zero if unknown, None if the folder is empty.

        A file in the folder can mark the replica as incomplete. In a cluster, also store the content of this
        file in `marks`. Remove the file if it is of a deleted topic of the same name.
        """
        topic_id = self.read_topic_id(path) if opened is None else opened.topic_id
        if self._is_clustered and (mark := read_mark(self._env.fs, path)) is not None:
            if mark.is_of(topic_id):
                self.marks[topic_partition] = mark
            else:
                logger.info("%s: removing the mark of a deleted topic that its replica is incomplete", path)
                remove_mark(self._env.fs, path)
        return topic_id

    # --- changes ---

    def mark_incomplete(self, topic_partition: TopicPartition, topic_id: TopicId, mark: Mark) -> None:
        """Create the folder of a lost replica, so that it is opened as an empty replica.

        Write `mark` into the folder, so that the broker registers the replica as incomplete. A new folder
        gets its name after that: an empty folder means that the partition never had a record. Any thread can
        call this method.

        Raises:
            OSError: the disk failed.
        """
        fs, path = self._env.fs, self.path_of(topic_partition)
        is_new = not exists(fs, path)
        folder = self._new_name(topic_partition, "delete") if is_new else path
        make_durable_directory(fs, folder)
        try:
            write_file(
                fs,
                f"{folder}/{checkpoints.PARTITION_METADATA}",
                checkpoints.encode_partition_metadata(topic_id),
            )
            write_mark(fs, folder, mark._replace(topic_id=topic_id))
            if is_new:
                fs.rename(folder, path)
                fs.sync_directory(self._env.path)
        except OSError:
            if is_new:
                with suppress(OSError):
                    fs.remove_tree(folder)
            raise

    def new_copy(self, topic_partition: TopicPartition) -> str:
        """Return a new path for the copy of a partition."""
        topic, number = topic_partition
        unique = new_uuid(self._env.random).hex
        return f"{self._env.path}/{topic[:_MAX_NAME_LENGTH]}-{number}.{unique}-future"

    def set_aside(self, topic_partition: TopicPartition, suffix: str) -> str:
        """Rename the folder of a closed log, so that the broker's next start does not read it as a log.

        Return the new path, which ends with ``-`` and `suffix`.

        Raises:
            OSError: the rename failed.
        """
        path = self.set_folder_aside(self.path_of(topic_partition), topic_partition, suffix)
        self.unread.discard(topic_partition)
        return path

    def set_folder_aside(self, folder: str, topic_partition: TopicPartition, suffix: str) -> str:
        """Rename a folder of a partition in this directory, as `set_aside` does, and return the new path.

        Raises:
            OSError: the rename failed.
        """
        path = self._new_name(topic_partition, suffix)
        self._env.fs.rename(folder, path)
        return path

    def _new_name(self, topic_partition: TopicPartition, suffix: str) -> str:
        # Kafka's form, cut so that a long topic name still fits into a file name
        return f"{self._env.path}/{str(topic_partition)[:200]}.{new_uuid(self._env.random).hex}-{suffix}"
