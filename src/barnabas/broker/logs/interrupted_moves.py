"""Continues the moves of logs between log directories that the end of the broker has interrupted.

A move copies the log to a *copy* in the other directory, then the copy replaces the log
(`barnabas.broker.logs.moves`). So a start can find copies in their directories, and logs in two directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import KafkaError
from barnabas.base.text import logger_of
from barnabas.base.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs.directories import LogDirectories
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.incomplete import IncompleteReplicas
from barnabas.broker.storage import PartitionLog
from barnabas.broker.storage.log_end import LogEnd, longest_log
from barnabas.broker.storage.tasks import TreeRemoval

log = logger_of(__name__)


class InterruptedMoves:
    """Chooses among several logs of a partition, and opens the copies of logs.

    Args:
        directories: the broker's log directories.
        incomplete: the replicas that lack records: their moves do not continue.
        disk: threads that open copies.
    """

    def __init__(self, directories: LogDirectories, incomplete: IncompleteReplicas, disk: Pool) -> None:
        self._directories = directories
        self._incomplete = incomplete
        self._disk = disk

    def keep_latest(
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
            directory.checkpoints.forget(topic_partition)
            if self._put_away(directory, opened, found[kept]):
                yield directory

    async def load_copies(
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
            found = directory.folders.find_copies()
        except OSError as error:
            directory.env.handle_error("copies of logs", error)
            return
        names = {(topic_id, tp.partition): tp for tp, topic_id in hosted.items()} if found else {}
        again: dict[TopicPartition, PartitionLog] = {}
        for path, key in found.items():
            if key[0] == ZERO_TOPIC_ID or is_deleted(TopicPartition("", key[1]), key[0]):
                # a copy without a topic id was never complete on disk
                self._directories.remove(directory.path, TreeRemoval(directory.env.fs, path))
                continue
            topic_partition = names.get(key)
            if topic_partition is None or not await self._load_copy(
                directory, path, topic_partition, config_of(topic_partition.topic), again
            ):
                # the log itself is not here: it may be on a disk that is not mounted
                log.warning("%s is the copy of a log that is not here: the broker does not use it", path)
        self._copy_again(directory, again)

    async def load_copies_of(self, opened: Sequence[PartitionLog]) -> None:
        """Open the copies of the logs that `PostponedLogs` has just opened, to continue their moves."""
        late = {(each.topic_id, each.topic_partition.partition): each for each in opened}
        for directory in self._directories:
            if directory.failure is not None:
                continue
            try:
                found = directory.folders.find_copies()
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
        current = self._directories.find_log(topic_partition)
        if current is None or topic_partition in directory.logs or topic_partition in self._incomplete:
            return False
        load = partial(directory.load_future, path, topic_partition, current.topic_id, config)
        try:
            copy = await self._disk.run(load)
        except KafkaError as error:
            log.warning("%s cannot be opened, so the broker does not use it: %s", path, error.message)
            self._directories.remove(directory.path, TreeRemoval(directory.env.fs, path))
            again[topic_partition] = current
            return True
        if (
            self._directories.find_log(topic_partition) is not current
        ):  # deleted meanwhile: another topic may have its name
            copy.abandon()
            self._directories.remove(directory.path, TreeRemoval(directory.env.fs, path))
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
        holder = self._directories.holder_of(topic_partition)
        return holder.cleaned_to.get(topic_partition) != directory.cleaned_to.get(topic_partition)

    def _copy_again(self, directory: LogDirectory, again: Mapping[TopicPartition, PartitionLog]) -> None:
        """Create new copies of the logs `again` in `directory`. Skip logs that have another copy there."""
        for topic_partition, current in again.items():
            if (
                self._directories.find_log(topic_partition) is not current
                or topic_partition in directory.futures
            ):
                continue  # deleted meanwhile, or the move continues with the other copy
            log.warning("the copying of %s to %s starts again", topic_partition, directory.path)
            try:
                self._directories.create_copy(current, directory)
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
            aside = directory.folders.set_folder_aside(
                left.files.path, left.topic_partition, "delete" if is_contained else "stray"
            )
        except OSError as error:
            directory.env.handle_error(left.topic_partition, error)
            return False
        if is_contained:
            self._directories.remove(directory.path, TreeRemoval(directory.env.fs, aside))
        return True


def _end(opened: PartitionLog) -> LogEnd:
    return LogEnd(opened.latest_epoch, opened.log_end_offset)


def _contains(whole: PartitionLog, part: PartitionLog) -> bool:
    """Whether `whole` has all records of `part`, by their leader epochs.

    An empty `part` had records before its end. So `whole` contains it if `whole` does not end before it.
    """
    if part.log_start_offset == part.log_end_offset:
        return part.log_end_offset <= whole.log_end_offset
    return whole.epochs.contains(part.latest_epoch, part.log_end_offset, whole.log_end_offset)
