"""Decides which logs can be in a log directory that a start misses.

The broker must not create such a log again as an empty one: the directory may have its records. A log
directory has one of these states at a start:

- *present*: `log.dirs` names it, and it could be opened.
- *known*: a start has loaded it. From then on, each directory that was present at that start names its id
  (barnabas.log.dirs in `meta.properties`). A known directory without this property knows only itself.
- *new*: no start has loaded it, or all were new and a log could not be created. It knows nothing.
- *missing*: a present directory names its id, and it is not present. `log.dirs` may lack it, or its disk may
  not be mounted. While a directory of `log.dirs` cannot be opened, it may be this one, so none is missing.

A partition of this broker has one of these states, if its log is in no present directory:

- *lost*: its log can be in a missing directory. A lone broker does not serve the partition. A broker of a
  cluster registers the replica as incomplete.
- *blank*: it never had a record. The broker creates its log.

How the start distinguishes them:

- After a clean stop, each known directory has a list of the logs with files in the other ones
  (`barnabas-logs-elsewhere`). A partition is lost if a list names it with the id of its topic. The list
  counts only together with the marker of the stop that wrote it.
- After a crash no list counts. Then a partition is lost, unless a present directory has an empty folder for
  it. The broker creates this folder before the first record.
- If all directories of a broker in a cluster are new, the same applies. A lone broker has its metadata in its
  log directories. So it has no partition then.

The broker forgets a missing directory when all logs that can be in it are *accounted for*:

- The log is in a present directory again. In a cluster, a lost replica begins again there, with a mark.
- The topic of the log was deleted.

The log of a topic that the broker does not know is not accounted for, because the metadata can be out of
date. After a crash, the broker does not know which logs these are. Then a lone broker remembers the directory
until it is back, or until `barnabas log repair` forgets it. A broker of a cluster forgets it: its metadata is
not in its log directories, so these topics do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from barnabas.base.types import ZERO_TOPIC_ID, TopicId, TopicPartition

#: a log: its partition, and the id of its topic; zero if the id is not known
LogName = tuple[TopicPartition, TopicId]


class PresentDirectory(Protocol):
    """A present log directory, and what it knows about the other ones of its broker."""

    @property
    def directory_id(self) -> str: ...

    @property
    def known_directories(self) -> frozenset[str]:
        """The ids of all log directories of the broker, with its own; empty in a new directory."""

    @property
    def logs_elsewhere(self) -> frozenset[LogName] | None:
        """The logs with files in the other directories at the last clean stop; None if not known."""


class MissingDirectories:
    """The log directories that a start misses, and the logs that can be in them.

    Args:
        present: the log directories that could be opened.
        are_all_open: whether all directories in `log.dirs` could be opened.
        is_clustered: whether the broker belongs to a cluster.
    """

    def __init__(
        self, present: Sequence[PresentDirectory], *, are_all_open: bool, is_clustered: bool
    ) -> None:
        known = [each for each in present if each.known_directories]
        self._is_clustered = is_clustered
        self._are_all_lost = is_clustered and are_all_open and not known
        self._present = frozenset(each.directory_id for each in present)
        self._known = self._present.union(*(each.known_directories for each in known))
        #: the ids of the missing directories
        self.ids = self._known - self._present if are_all_open else frozenset[str]()
        lists = [each.logs_elsewhere for each in known]
        #: logs that are not accounted for; None if the broker does not know which these are
        self.unaccounted: frozenset[LogName] | None = frozenset().union(
            *(each for each in lists if each is not None)
        )
        if None in lists:
            self.unaccounted = None

    def __bool__(self) -> bool:
        """Whether a directory is missing."""
        return bool(self.ids) or self._are_all_lost

    def __str__(self) -> str:
        """Describe the missing directories."""
        if self._are_all_lost:
            return "all log directories of the broker are new"
        return f"the log directory with directory.id={','.join(sorted(self.ids))} is missing"

    @property
    def has_unaccounted(self) -> bool:
        """Whether there are logs that are not accounted for, or the broker does not know."""
        return self.unaccounted is None or bool(self.unaccounted)

    def find_lost(
        self, without_log: Mapping[TopicPartition, TopicId], blank: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """Return the lost partitions.

        Args:
            without_log: the partitions of this broker that have no log in a present directory.
            blank: the partitions for which a present directory has an empty folder.
        """
        if not self:
            return []
        if self.unaccounted is None or self._are_all_lost:
            return sorted(without_log.keys() - blank)
        return sorted(
            topic_partition
            for topic_partition, topic_id in without_log.items()
            if not self.unaccounted.isdisjoint(
                ((topic_partition, topic_id), (topic_partition, ZERO_TOPIC_ID))
            )
        )

    def account(
        self,
        found: Mapping[TopicPartition, TopicId],
        is_deleted: Callable[[TopicPartition, TopicId], bool],
        *,
        is_everything_seen: bool,
    ) -> None:
        """Remove the logs that are accounted for from `unaccounted`, when the start has loaded all logs.

        Args:
            found: the logs in the present directories, and those that the broker does not serve.
            is_deleted: whether the topic of a log was deleted.
            is_everything_seen: whether the start could read all directories in `log.dirs`.
        """
        if is_everything_seen and (not self.ids or (self.unaccounted is None and self._is_clustered)):
            self.unaccounted = frozenset()
        elif self.unaccounted is not None:
            self.unaccounted = frozenset(
                (topic_partition, topic_id)
                for topic_partition, topic_id in self.unaccounted
                if not (
                    (there := found.get(topic_partition)) == topic_id
                    or (there is not None and ZERO_TOPIC_ID in (there, topic_id))
                    or is_deleted(topic_partition, topic_id)
                )
            )

    def known_directories(self, *, are_all_served: bool) -> frozenset[str]:
        """Return the ids of the directories that the broker knows from now on. Call `account` first.

        `are_all_served` says whether the broker serves all of its partitions. If it does not, their logs can
        be in a missing directory. If all directories are new, they then stay new: the result is empty.
        """
        if self._are_all_lost and not are_all_served:
            return frozenset()
        return self._known if self.has_unaccounted or not are_all_served else self._present
