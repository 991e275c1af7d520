"""Tracks a broker's replicas that lack acknowledged records (`barnabas.broker.storage.incomplete`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.environment.blocking import Pool
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import TopicId, TopicPartition
from barnabas.broker.storage import PartitionLog
from barnabas.broker.storage.incomplete import Mark, remove_mark, write_mark

log = logger_of(__name__)

#: seconds between two changes of the registration, so that one change covers several completed replicas
_GATHERING = 0.5


class _Replica(NamedTuple):
    """An incomplete replica."""

    topic_id: TopicId
    mark: Mark
    #: the log; None if it could not be opened
    opened: PartitionLog | None


def _ignore() -> None:
    pass


class IncompleteReplicas:
    """The broker's incomplete replicas. Each stays here until it has copied its missing records.

    A file in the folder of each incomplete replica marks it as incomplete (`Mark`).

    Args:
        disk: threads in which these files are written and removed.
    """

    def __init__(self, disk: Pool) -> None:
        self._disk = disk
        self._replicas: dict[TopicPartition, _Replica] = {}
        self._complete: list[PartitionLog] = []
        self._writing: asyncio.Task[None] | None = None
        #: called when replicas have become complete
        self.on_change: Callable[[], None] = _ignore

    def __len__(self) -> int:
        return len(self._replicas)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._replicas

    @property
    def registered(self) -> frozenset[tuple[TopicId, int]]:
        """The incomplete replicas as topic id and partition number, for the broker's registration."""
        return frozenset((each.topic_id, tp.partition) for tp, each in self._replicas.items())

    def note(
        self, topic_partition: TopicPartition, topic_id: TopicId, mark: Mark, opened: PartitionLog | None
    ) -> None:
        """Add a replica that lacks records.

        Args:
            topic_partition: partition of the replica.
            topic_id: id of its topic.
            mark: content of the file that marks the replica as incomplete.
            opened: log of the replica; None if the log cannot be opened.
        """
        self._replicas[topic_partition] = _Replica(topic_id, mark, opened)

    def must_be_emptied(self, opened: PartitionLog) -> bool:
        """Whether a log must be emptied before it follows a leader.

        The log of an incomplete replica must be emptied, unless it was emptied before: records may be missing
        between its records.
        """
        if not self._replicas:
            return False
        replica = self._replicas.get(opened.topic_partition)
        return replica is not None and replica.opened is opened and not replica.mark.is_emptied

    async def note_emptied(self, opened: PartitionLog) -> None:
        """Store on disk that the log of an incomplete replica was emptied.

        Call this method before new records are copied into the log. If the broker restarts after this call,
        it does not empty the log again. Do nothing if this object does not have the replica.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the file that marks the replica could not be written.
        """
        replica = self._replicas.get(opened.topic_partition)
        if replica is None or replica.opened is not opened:
            return
        # If the topic is deleted during the write, the mark can get into the folder of the next topic of this
        # name. The id shows that it is not of that topic.
        mark = replica.mark._replace(is_emptied=True, topic_id=replica.topic_id)
        files = opened.files
        try:
            await self._disk.run(write_mark, files.env.fs, files.path, mark)
        except OSError as error:
            raise files.env.handle_error(opened.topic_partition, error) from error
        if self._replicas.get(opened.topic_partition) is replica:
            self._replicas[opened.topic_partition] = replica._replace(mark=mark)

    def complete(self, topic_partition: TopicPartition) -> None:
        """Remove a replica that the controller now counts as in sync or as leader.

        The file that marks the replica as incomplete is removed later, in a thread. Do nothing if the replica
        is not in this object, or if its log cannot be opened.
        """
        replica = self._replicas.get(topic_partition)
        if replica is None or replica.opened is None:
            return
        del self._replicas[topic_partition]
        log.info("%s has all records of its leader again", topic_partition)
        self._complete.append(replica.opened)
        if self._writing is None:
            self._writing = start_task(self._remove_marks(), "marks of incomplete replicas")

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove a deleted replica from this object, if it is there. No file changes."""
        self._replicas.pop(topic_partition, None)

    async def stop(self) -> None:
        """Wait until the files that mark complete replicas as incomplete are removed."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _remove_marks(self) -> None:
        try:
            while self._complete:
                due, self._complete = self._complete, []
                for opened in due:
                    await self._remove_mark(opened)
                self.on_change()
                await asyncio.sleep(_GATHERING)
        finally:
            self._writing = None

    async def _remove_mark(self, opened: PartitionLog) -> None:
        files = opened.files
        try:
            await self._disk.run(remove_mark, files.env.fs, files.path)
        except OSError as error:  # the next start takes it for incomplete, which costs a copy
            if not opened.closed:
                log.warning(
                    "%s: cannot remove the mark that the replica is incomplete: %s",
                    opened.topic_partition,
                    error,
                )
