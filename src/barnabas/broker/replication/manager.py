"""Manages the partitions of this broker: opens, updates and deletes them as the cluster image changes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import FewLines, logger_of
from barnabas.base.types import (
    NO_LEADER_EPOCH,
    BrokerId,
    Buffer,
    LeaderEpoch,
    TopicId,
    TopicKey,
    TopicPartition,
)
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.metadata.image import ClusterImage, ImageDelta, TopicImage
from barnabas.broker.metrics.traffic import TopicTraffic
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.progress import LeaderContext
from barnabas.broker.replication.rejected_batches import RejectedBatches, header_of
from barnabas.broker.storage.harm import may_pass

log = logger_of(__name__)

#: how many new partitions are opened in one turn of the event loop
_OPENED_AT_ONCE = 16
#: seconds until partitions are tried again that could not be opened for lack of space, memory or open files
_OPEN_AGAIN_SECONDS = 5.0
#: how many logs of deleted topics are renamed in one turn of the event loop
_DELETED_AT_ONCE = 16
#: seconds of renaming after which the other logs wait for another turn
_DELETING_SECONDS = 0.002
#: seconds until a deletion that waits for an fsync is tried again
_FSYNC_SECONDS = 0.05
#: how many partitions are checked in one turn of the event loop
_CHECKED_AT_ONCE = 200

_NONE: Mapping[int, Partition] = MappingProxyType({})


def _ignore(_partition: Partition) -> None:
    pass


class ReplicaManager:
    """All partitions of this broker, by their topic's name or id. Only the event loop may use it.

    Args:
        node_id: id of this broker.
        logs: logs of the partitions; creates new ones.
        configs: returns the effective settings of a topic.
        on_flush_due: called with a partition whose records must be fsynced.
        on_change: called with a partition that was opened or deleted, or whose state has changed.
        on_isr_change_due: called with a partition that has an ISR to propose.
        on_leadership_end: called with a partition whose leadership by this broker has ended.
        acks_fsync: whether the broker fsyncs every record before it acknowledges it
            (``barnabas.acks.fsync``).
        now: returns the seconds during which this broker could serve fetches (`ServingTime`).
        max_lag: returns ``replica.lag.time.max.ms``, in seconds.
    """

    def __init__(
        self,
        node_id: BrokerId,
        logs: LogManager,
        configs: ConfigResolver,
        *,
        on_flush_due: Callable[[Partition], None],
        on_change: Callable[[Partition], None] = _ignore,
        on_isr_change_due: Callable[[Partition], None],
        on_leadership_end: Callable[[Partition], None] = _ignore,
        acks_fsync: bool = False,
        now: Callable[[], float],
        max_lag: Callable[[], float],
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._configs = configs
        self._on_flush_due = on_flush_due
        self._on_change = on_change
        self._on_isr_change_due = on_isr_change_due
        self._on_leadership_end = on_leadership_end
        self._flush_every = 1 if acks_fsync else None
        self._image = ClusterImage()
        self._context = LeaderContext(lambda: self._image.brokers, now, max_lag)
        #: the image at the time when this broker resigned: it may no longer lead in those leader epochs
        self._resigned = ClusterImage()
        #: the partitions that `check_in_sync` has yet to check, in later turns of the event loop, or None
        self._unchecked: Iterator[Partition] | None = None
        #: new partitions that are not open yet, by topic
        self._unopened: dict[TopicId, deque[int]] = {}
        #: partitions that could not be opened for lack of space, memory or open files: they are tried again
        self._postponed: dict[tuple[TopicId, int], None] = {}
        self._failures = FewLines(log)
        self._is_retry_due = False
        #: logs of deleted topics that are not deleted yet
        self._doomed: deque[tuple[TopicId, TopicPartition]] = deque()
        #: topics that the image no longer has, without a note of their deletion
        self._absent: dict[TopicId, TopicImage] = {}
        #: partitions with the log of an earlier topic (its id), of which the broker's log already tells
        self._kept: set[tuple[TopicPartition, TopicId]] = set()
        #: partitions by index, for each topic's name and id
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        #: traffic by topic; `gone_traffic` is that of topics without a partition here
        self.traffic: dict[str, TopicTraffic] = {}
        self.gone_traffic = TopicTraffic()
        #: rejected batches of partitions that are not open or not known yet
        self._early = RejectedBatches(now)

    def __iter__(self) -> Iterator[Partition]:
        """Yield all partitions. Partitions that are added or removed meanwhile may be included."""
        # A list of 100,000 partitions would take milliseconds, and so would each garbage collection that
        # finds it.
        for topic in list(self._topics):
            if isinstance(topic, str):
                yield from list(self._topics.get(topic, _NONE).values())

    def find(self, topic: TopicKey, index: int) -> Partition:
        """Return this broker's replica of the partition, as a leader or a follower.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, the cluster has no such partition;
                NOT_LEADER_OR_FOLLOWER, only other brokers have it; KAFKA_STORAGE_ERROR, its log cannot be
                opened.
        """
        partitions = self._topics.get(topic)
        if partitions is not None and index in partitions:
            return partitions[index]
        return self._open_late(topic, index)

    def partitions_of(self, topic: TopicKey) -> Mapping[int, Partition]:
        """Return the topic's open partitions by index; empty if there are none.

        This method opens no partition. `find` does.
        """
        return self._topics.get(topic, _NONE)

    def note_rejected(self, topic: TopicKey, index: int, records: Buffer, code: ErrorCode) -> None:
        """Record that a batch was rejected, because its partition is not open or has another leader.

        The client will send the batch again. Until then, the partition accepts no later batch of the same
        producer (see `refused`). Do nothing if the batch is invalid, is a control batch, or has no producer
        id. If the partition is open, also do nothing if its log knows the producer, or if `code` is
        KAFKA_STORAGE_ERROR.

        Args:
            topic: name or id of the topic.
            index: number of the partition.
            records: the batch.
            code: the error that the client gets.
        """
        partition = self._topics.get(topic, _NONE).get(index)
        if partition is not None and code == ErrorCode.KAFKA_STORAGE_ERROR:
            return  # `PartitionLog` has noted the rejection
        header = header_of(records)
        if header is None:
            return
        if partition is None:
            image = self._topic(topic)
            self._early.note(topic if image is None else image.id, index, header, code)
        elif partition.log.producers.get(header.producer_id) is None:
            partition.log.producers.note_rejection(header, code)

    def apply(self, delta: ImageDelta) -> None:
        """Open, update, configure and delete partitions as the new cluster image in `delta` requires.

        It can open new partitions, and delete logs, in later turns of the event loop.
        """
        image = self._image = delta.after
        for topic_id in [each for each in self._absent if each in image.deleted_topics]:
            self._delete(self._absent.pop(topic_id))
        for name in sorted(delta.topics):
            before, after = delta.before.topics.get(name), image.topics.get(name)
            if before is not None and (after is None or after.id != before.id):
                if delta.is_deleted(before.id):
                    self._delete(before)
                else:
                    self._close(before)
            if after is not None:
                self._absent.pop(after.id, None)
                same = before is not None and after.id == before.id
                changed = delta.partitions.get(name) if same else None
                self._host(after, range(len(after.partitions)) if changed is None else changed)
        if image.deleted_topics is not delta.before.deleted_topics:
            self._delete_leftovers(delta)
        for name in sorted(image.topics if delta.broker_configs else delta.topic_configs):
            self._configure(name)
        if not self._unopened:
            self._end_failures()
        if delta.brokers:  # a follower counts, or may join an ISR, by what the image says of its broker
            self.check_in_sync()

    def check_in_sync(self) -> None:
        """Check all followers again: some may lag by now, or their brokers may have started or stopped.

        Update high watermarks, and propose ISR changes. Each turn of the event loop checks some partitions.
        """
        if self._unchecked is None:
            asyncio.get_running_loop().call_soon(self._check_some)
        self._unchecked = iter(self)

    def _check_some(self) -> None:
        assert self._unchecked is not None
        some = list(islice(self._unchecked, _CHECKED_AT_ONCE))
        for partition in some:
            if partition.unavailable is None:
                partition.check_in_sync()
        if some:
            asyncio.get_running_loop().call_soon(self._check_some)
        else:
            self._unchecked = None

    def resign_all(self) -> None:
        """Resign all leaderships, because other brokers may lead now.

        This broker can lead again in new leader epochs.
        """
        self._resigned = self._image
        for partition in self:
            partition.resign()

    def take_offline(self, log_dir: str) -> None:
        """Reject writes to the partitions in a failed log directory with KAFKA_STORAGE_ERROR.

        Reads are still served if the disk allows them.
        """
        for partition in self:
            if self._logs.directory_of(partition.topic_partition).path == log_dir:
                partition.refuse_writes(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir} is offline"))

    def _host(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        for index in indexes:
            state = topic.partitions[index]
            if self._node_id not in state.replicas:
                if state.has_left(self._node_id):
                    self._drop(topic, index)
                continue
            partition = self._topics.get(topic.id, _NONE).get(index)
            if partition is not None:
                partition.update(state)
                self._note_complete(partition)
                self._on_change(partition)
            elif self._is_loaded(topic, index):
                self._try_to_open(topic, index)
            else:
                self._open_soon(topic, index)

    def _is_loaded(self, topic: TopicImage, index: int) -> bool:
        return self._logs.get(TopicPartition(topic.name, index)) is not None

    def _open_soon(self, topic: TopicImage, index: int) -> None:
        """Open a new partition in a later turn of the event loop, because there can be thousands.

        If a request needs the partition earlier, `find` opens it at once.
        """
        if not self._unopened:
            asyncio.get_running_loop().call_soon(self._open_some)
        self._unopened.setdefault(topic.id, deque()).append(index)

    def _open_some(self) -> None:
        for _ in range(_OPENED_AT_ONCE):
            if not self._unopened or self._logs.is_closed:
                break
            topic_id, indexes = next(iter(self._unopened.items()))
            topic = self._image.topic_by_id(topic_id)
            index = indexes.popleft()
            if not indexes:
                del self._unopened[topic_id]
            if topic is None or index in self._topics.get(topic_id, _NONE):
                continue
            if self._node_id in topic.partitions[index].replicas:
                self._try_to_open(topic, index)
        if self._unopened and not self._logs.is_closed:
            asyncio.get_running_loop().call_soon(self._open_some)
        else:
            self._end_failures()

    def _end_failures(self) -> None:
        self._failures.end("partitions cannot be opened")

    def _try_to_open(self, topic: TopicImage, index: int) -> None:
        key = topic.id, index
        try:
            self._open(topic, index)
        except KafkaError as error:
            is_passing = may_pass(error.__cause__)
            if key not in self._postponed:
                again = "; it is tried again" if is_passing else ""
                self._failures.log("%s-%d cannot be opened: %s" + again, topic.name, index, error)
            if is_passing:
                self._postponed[key] = None
                self._retry_later()
            else:
                self._postponed.pop(key, None)

    def _retry_later(self) -> None:
        if not self._is_retry_due:
            self._is_retry_due = True
            asyncio.get_running_loop().call_later(_OPEN_AGAIN_SECONDS, self._open_postponed)

    def _open_postponed(self) -> None:
        """Try again to open the partitions in `_postponed` that are still needed.

        No request opens the replica of a follower. While earlier attempts still wait for their turn, only
        wait again: thousands of attempts can last longer than the pause.
        """
        self._is_retry_due = False
        for topic_id, index in list(self._postponed) if not self._unopened else ():
            topic = self._image.topic_by_id(topic_id)
            is_open = index in self._topics.get(topic_id, _NONE)
            if topic is None or is_open or self._node_id not in topic.partitions[index].replicas:
                del self._postponed[topic_id, index]
            else:
                self._open_soon(topic, index)
        if self._postponed and not self._logs.is_closed:
            self._retry_later()

    def _topic(self, topic: TopicKey) -> TopicImage | None:
        return self._image.topics.get(topic) if isinstance(topic, str) else self._image.topic_by_id(topic)

    def _open_late(self, topic: TopicKey, index: int) -> Partition:
        """Open a partition that a request needs and that is not open yet. Return the partition.

        Raises:
            KafkaError: the errors of `find`.
        """
        image = self._topic(topic)
        if image is None or not 0 <= index < len(image.partitions):
            raise self._why_missing(topic, index)
        if self._node_id not in image.partitions[index].replicas:
            raise self._why_missing(topic, index)
        return self._open(image, index)

    def _open(self, topic: TopicImage, index: int) -> Partition:
        topic_partition = TopicPartition(topic.name, index)
        opened = self._logs.get(topic_partition)
        if opened is not None and opened.topic_id != topic.id:
            self._delete_earlier(topic_partition, opened.topic_id)
            opened = None
        if opened is None:
            config = self._configs.topic_config(self._image, topic.name)
            opened = self._logs.create(topic_partition, topic.id, config)
        if self._early:
            self._early.move_to(topic.name, index, opened.producers)
            self._early.move_to(topic.id, index, opened.producers)
        partition = Partition(
            opened,
            topic.partitions[index],
            self._node_id,
            flush_every=self._flush_every,
            on_flush_due=self._on_flush_due,
            on_isr_change_due=self._on_isr_change_due,
            on_leadership_end=self._on_leadership_end,
            context=self._context,
            resigned=self._resigned_epoch(topic, index),
            traffic=self.traffic.setdefault(topic.name, TopicTraffic()),
        )
        partitions = self._topics.get(topic.id)
        if partitions is None:
            partitions = self._topics[topic.name] = self._topics[topic.id] = {}
        partitions[index] = partition
        self._note_complete(partition)
        self._on_change(partition)
        return partition

    def _note_complete(self, partition: Partition) -> None:
        """If this broker's replica is in the ISR, remove its mark that acknowledged records may be missing.

        The mark is a file in the folder of the log, which a thread removes later. When a broker registers,
        the controller removes its marked replicas from the ISR. So if this replica is in the ISR now, it has
        all records of the leader again.
        """
        if self._logs.incomplete and self._node_id in partition.state.isr:
            self._logs.incomplete.complete(partition.topic_partition)

    def _delete_earlier(self, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        """Delete the log of an earlier topic with the same name, because the topic was deleted.

        Args:
            topic_partition: the partition of the log, which this broker has loaded.
            topic_id: id of the earlier topic.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the image does not list the earlier topic as deleted.
        """
        if topic_id not in self._image.deleted_topics:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} is that of another topic"
            )
        self._logs.delete(topic_partition)

    def _delete_leftovers(self, delta: ImageDelta) -> None:
        """Delete the logs of topics that were deleted before this broker had them in an image.

        The logs were on disk when the broker started. The present image lists the id of such a topic in
        `deleted_topics`. The previous image had neither the topic nor this entry. Keep the logs of open
        partitions: the present image still has their topic, and a later image deletes them.
        """
        before = delta.before
        unseen = {
            topic_id
            for topic_id in self._image.deleted_topics
            if topic_id not in before.deleted_topics and before.topic_by_id(topic_id) is None
        }
        if unseen:
            self._delete_soon(
                (opened.topic_id, opened.topic_partition)
                for opened in list(self._logs)
                if opened.topic_id in unseen
                and opened.topic_partition.partition not in self._topics.get(opened.topic_id, _NONE)
            )

    def _drop(self, topic: TopicImage, index: int) -> None:
        """Delete the log of a partition that has moved to other brokers.

        Keep the log of an earlier topic with the same name, unless the image lists that topic as deleted.
        """
        partition = self._topics.get(topic.id, {}).pop(index, None)
        topic_partition = TopicPartition(topic.name, index)
        self._early.forget(topic.id, index)
        if partition is not None:
            log.info("%s has moved to other brokers: its log is deleted", topic_partition)
            partition.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition has moved"))
            self._on_change(partition)
        opened = self._logs.get(topic_partition)
        if opened is None or self._image.is_deleted_from(self._node_id, topic_partition, opened.topic_id):
            self._logs.delete_moved(topic_partition)
        elif (topic_partition, opened.topic_id) not in self._kept:
            self._kept.add((topic_partition, opened.topic_id))
            log.error(
                "the log of %s is that of an earlier topic, which was not deleted: it is kept",
                topic_partition,
            )

    def _resigned_epoch(self, topic: TopicImage, index: int) -> LeaderEpoch:
        before = self._resigned.topic_by_id(topic.id)
        if before is None or index >= len(before.partitions):
            return NO_LEADER_EPOCH
        return before.partitions[index].leader_epoch

    def _close(self, topic: TopicImage) -> None:
        """Close a topic that the image no longer has, but that no deletion note lists.

        The topic's logs stay on disk. The broker uses them again if the topic comes back, and deletes them if
        a deletion note lists the topic.
        """
        if any(self._node_id in state.replicas for state in topic.partitions):
            log.error(
                "topic %s is gone from the metadata store, but was not deleted: its logs are kept", topic.name
            )
            self._absent[topic.id] = topic
        self._close_partitions(topic)

    def _delete(self, topic: TopicImage) -> None:
        self._close_partitions(topic)
        self._delete_soon(
            (topic.id, TopicPartition(topic.name, index)) for index in range(len(topic.partitions))
        )

    def _delete_soon(self, logs: Iterable[tuple[TopicId, TopicPartition]]) -> None:
        """Delete the logs of deleted topics, some at once and the others in later turns of the event loop.

        While a thread fsyncs a log, do not delete this log yet: not every system can rename a folder with
        open files. If the broker stops before the end, its next start deletes the remaining logs.
        """
        is_deleting = bool(self._doomed)
        self._doomed.extend(logs)
        if not is_deleting:
            self._delete_some()

    def _delete_some(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _DELETING_SECONDS
        pause = 0.0
        for _ in range(min(_DELETED_AT_ONCE, len(self._doomed))):
            topic_id, topic_partition = self._doomed.popleft()
            opened = self._logs.get(topic_partition)
            if opened is None or opened.topic_id == topic_id:
                if opened is not None and opened.files.is_flushing:
                    self._doomed.append((topic_id, topic_partition))
                    pause = _FSYNC_SECONDS
                else:
                    self._logs.delete(topic_partition)
            if loop.time() >= end:
                break
        if self._doomed:
            loop.call_later(pause, self._delete_some)

    def _close_partitions(self, topic: TopicImage) -> None:
        partitions = self._topics.pop(topic.id, _NONE)
        if self._topics.get(topic.name) is partitions:
            del self._topics[topic.name]
            traffic = self.traffic.pop(topic.name, None)
            if traffic is not None:
                self.gone_traffic.add(traffic)
        for index in range(len(topic.partitions)):
            self._early.forget(topic.id, index)
            partition = partitions.get(index)
            if partition is not None:
                partition.close(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted"))
                self._on_change(partition)

    def _configure(self, topic: str) -> None:
        image = self._image.topics.get(topic)
        if image is None:
            return
        config = self._configs.topic_config(self._image, topic)
        for partition in self._topics.get(image.id, _NONE).values():
            partition.log.config = config
            partition.check_in_sync()  # min.insync.replicas may have been what held it back

    def _why_missing(self, topic: TopicKey, index: int) -> KafkaError:
        image = self._topic(topic)
        if image is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID
            )
        if not 0 <= index < len(image.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
