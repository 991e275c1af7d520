"""Finds the folders in the log directories at the start, and decides to which topic each of them belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.base.text import logger_of
from barnabas.base.types import ZERO_TOPIC_ID, TopicId, TopicPartition, topic_id_to_str
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs.directories import LogDirectories
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.unopened import UnopenedLogs

log = logger_of(__name__)


@dataclass(slots=True)
class Start:
    """The partitions of a broker at its start, and what the start finds in the log directories."""

    #: the partitions of this broker, with their topic ids
    hosted: Mapping[TopicPartition, TopicId]
    #: returns the settings of a topic, by its name
    config_of: Callable[[str], TopicConfig]
    #: whether the topic of a partition and a topic id was deleted
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


class FoundFolders:
    """Examines the folders of log directories at the start.

    Args:
        directories: the broker's log directories.
        unopened: gets the partitions whose folders are perhaps of another topic.
        is_clustered: whether the broker belongs to a cluster.
    """

    def __init__(self, directories: LogDirectories, unopened: UnopenedLogs, *, is_clustered: bool) -> None:
        self._directories = directories
        self._unopened = unopened
        self._is_clustered = is_clustered

    def examine(self, directory: LogDirectory, start: Start) -> list[TopicPartition]:
        """Return the hosted partitions with a log in `directory`. Note in `start` what else is found there.

        Delete the folders of deleted topics, and those that an interrupted deletion has left behind.
        """
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
        for topic_partition in sorted(directory.folders.unread):  # `LogDirectory.load` looks into them
            start.known.add(topic_partition)
            if topic_partition in start.hosted:
                mine.append(topic_partition)
        for topic_partition in mine:
            start.holders.setdefault(topic_partition, []).append(directory)
        strangers = directory.folders.strangers
        if strangers:
            log.error(
                "%s: %d folders belong to no topic of this broker and are left alone: %s; if you "
                "need these topics, the metadata is out of date: stop the broker and run `barnabas log "
                "check`",
                directory.path,
                len(strangers),
                few(list(strangers)),
            )
        try:
            leftovers = directory.folders.leftovers()
        except OSError as error:
            directory.env.handle_error("what is to be deleted", error)
        else:
            for task in leftovers:
                self._directories.remove(directory.path, task)
        return mine

    def _is_of_hosted(
        self, directory: LogDirectory, topic_partition: TopicPartition, found_id: TopicId, start: Start
    ) -> bool:
        """Whether a folder has the log of a hosted partition. If not, note what it is.

        `found_id` is the topic id in the folder; zero if unknown. Rename the folder of a deleted topic.
        """
        topic_id = start.hosted.get(topic_partition)
        if start.is_deleted(topic_partition, found_id):
            if not self._directories.set_aside(directory, topic_partition, "delete"):
                self._directories.undeleted.add(found_id)
            if directory.checkpoints.forget(topic_partition):
                start.outdated.add(directory)
            return False
        start.known.add(topic_partition)
        if topic_id is None:
            directory.folders.strangers[topic_partition] = found_id
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
            self._unopened.add(topic_partition, directory)
            return False
        if found_id == ZERO_TOPIC_ID and directory.checkpoints.is_of_another_topic(topic_partition, topic_id):
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
            self._unopened.add(topic_partition, directory)
            return False
        return True


def few(partitions: Sequence[TopicPartition]) -> str:
    """Return the first of `partitions` as a text for the log, and dots if there are more."""
    return ", ".join(map(str, partitions[:5])) + (", ..." if partitions[5:] else "")
