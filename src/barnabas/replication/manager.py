"""The partitions this broker holds, kept in step with the cluster image."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from barnabas.errors import ErrorCode, KafkaError
from barnabas.logs.manager import LogManager
from barnabas.metadata.configs import ConfigResolver
from barnabas.metadata.image import ClusterImage, ImageDelta, TopicImage
from barnabas.records.batch import check_crc, parse_header
from barnabas.replication.partition import Partition
from barnabas.storage.producers import Producers
from barnabas.text import logger_of
from barnabas.types import NO_PRODUCER_ID, BrokerId, Buffer, TopicId, TopicKey, TopicPartition

log = logger_of(__name__)

#: how many new partitions are opened in one turn of the event loop
_OPENED_AT_ONCE = 16

_NONE: Mapping[int, Partition] = MappingProxyType({})


class ReplicaManager:
    """Every local partition, found by its topic's name or id. Owned by the event loop.

    Args:
        node_id: this broker.
        logs: where the partitions' logs are, and are made.
        configs: what holds for a topic.
        on_flush_due: told of a partition with records that are due to be fsynced.
        acks_fsync: whether every acknowledged record is fsynced first (``barnabas.acks.fsync``).
    """

    def __init__(
        self,
        node_id: BrokerId,
        logs: LogManager,
        configs: ConfigResolver,
        *,
        on_flush_due: Callable[[Partition], None],
        acks_fsync: bool = False,
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._configs = configs
        self._on_flush_due = on_flush_due
        self._flush_every = 1 if acks_fsync else None
        self._image = ClusterImage()
        #: new partitions that are not open yet, by topic
        self._unopened: dict[TopicId, deque[int]] = {}
        #: the partitions of a topic by their numbers, under its name and under its id
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        #: producers whose batches found a partition that could not be opened, by its topic's id
        self._refused: dict[tuple[TopicKey, int], Producers] = {}

    def __iter__(self) -> Iterator[Partition]:
        for topic, partitions in self._topics.items():
            if isinstance(topic, str):
                yield from partitions.values()

    def find(self, topic: TopicKey, index: int) -> Partition:
        """The local partition, which this broker need not lead.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION; UNKNOWN_TOPIC_ID; NOT_LEADER_OR_FOLLOWER when other
                brokers hold it; KAFKA_STORAGE_ERROR when its log cannot be opened.
        """
        partitions = self._topics.get(topic)
        if partitions is not None and index in partitions:
            return partitions[index]
        return self._open_late(topic, index)

    def note_refused(self, topic: TopicKey, index: int, records: Buffer) -> None:
        """A batch found a partition whose log cannot be opened yet: no later one may take its place there.

        The log will not know the producer, and would begin with whichever of its batches comes first.
        """
        image = self._topic(topic)
        if image is None or index in self._topics.get(topic, _NONE):
            return
        try:
            header = parse_header(records)
            check_crc(header, records)
        except KafkaError:
            return  # it would not have been taken
        if header.producer_id != NO_PRODUCER_ID:
            self._refused.setdefault((image.id, index), Producers()).refuse(header)

    def apply(self, delta: ImageDelta) -> None:
        """Open, update, configure and delete partitions as the cluster image says."""
        image = self._image = delta.after
        for name in sorted(delta.topics):
            before, after = delta.before.topics.get(name), image.topics.get(name)
            if before is not None and (after is None or after.id != before.id):
                self._delete(before)
            if after is not None:
                same = before is not None and after.id == before.id
                changed = delta.partitions.get(name) if same else None
                self._host(after, range(len(after.partitions)) if changed is None else changed)
        for name in sorted(image.topics if delta.broker_configs else delta.topic_configs):
            self._configure(name)

    def take_offline(self, log_dir: str) -> None:
        """The directory has failed: its partitions answer writes with KAFKA_STORAGE_ERROR from now on.

        They are still read, where the disk lets them be.
        """
        for partition in self:
            if self._logs.directory_of(partition.topic_partition).path == log_dir:
                partition.refuse_writes(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir} is offline"))

    def _host(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        for index in indexes:
            state = topic.partitions[index]
            if self._node_id not in state.replicas:
                continue
            partition = self._topics.get(topic.id, _NONE).get(index)
            if partition is not None:
                partition.update(state)
            elif self._is_loaded(topic, index):
                self._try_to_open(topic, index)
            else:
                self._open_soon(topic, index)

    def _is_loaded(self, topic: TopicImage, index: int) -> bool:
        return self._logs.get(TopicPartition(topic.name, index)) is not None

    def _open_soon(self, topic: TopicImage, index: int) -> None:
        """Have a folder made for a new partition, not for thousands in one turn of the event loop.

        Whoever looks for the partition before opens it (`find`).
        """
        if not self._unopened:
            asyncio.get_running_loop().call_soon(self._open_some)
        self._unopened.setdefault(topic.id, deque()).append(index)

    def _open_some(self) -> None:
        for _ in range(_OPENED_AT_ONCE):
            if not self._unopened or self._logs.is_closed:
                return
            topic_id, indexes = next(iter(self._unopened.items()))
            topic = self._image.topic_by_id(topic_id)
            index = indexes.popleft()
            if not indexes:
                del self._unopened[topic_id]
            if topic is not None and index not in self._topics.get(topic_id, _NONE):
                self._try_to_open(topic, index)
        if self._unopened:
            asyncio.get_running_loop().call_soon(self._open_some)

    def _try_to_open(self, topic: TopicImage, index: int) -> None:
        try:
            self._open(topic, index)
        except KafkaError as error:
            log.error("%s-%d cannot be opened: %s", topic.name, index, error)

    def _topic(self, topic: TopicKey) -> TopicImage | None:
        return self._image.topics.get(topic) if isinstance(topic, str) else self._image.topic_by_id(topic)

    def _open_late(self, topic: TopicKey, index: int) -> Partition:
        """A partition that is new, or could not be opened when it was, for want of space for one."""
        image = self._topic(topic)
        if image is None or not 0 <= index < len(image.partitions):
            raise self._why_missing(topic, index)
        if self._node_id not in image.partitions[index].replicas:
            raise self._why_missing(topic, index)
        return self._open(image, index)

    def _open(self, topic: TopicImage, index: int) -> Partition:
        topic_partition = TopicPartition(topic.name, index)
        opened = self._logs.get(topic_partition)
        if opened is None:
            config = self._configs.topic_config(self._image, topic.name)
            opened = self._logs.create(topic_partition, topic.id, config)
        refused = self._refused.pop((topic.id, index), None)
        if refused is not None:
            opened.producers.refuse_as(refused)
        partition = Partition(
            opened,
            topic.partitions[index],
            self._node_id,
            flush_every=self._flush_every,
            on_flush_due=self._on_flush_due,
        )
        partitions = self._topics.get(topic.id)
        if partitions is None:
            partitions = self._topics[topic.name] = self._topics[topic.id] = {}
        partitions[index] = partition
        return partition

    def _delete(self, topic: TopicImage) -> None:
        partitions = self._topics.pop(topic.id, _NONE)
        if self._topics.get(topic.name) is partitions:
            del self._topics[topic.name]
        for index in range(len(topic.partitions)):
            self._refused.pop((topic.id, index), None)
            partition = partitions.get(index)
            if partition is not None:
                partition.take_down(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted"))
            self._logs.delete(TopicPartition(topic.name, index))

    def _configure(self, topic: str) -> None:
        image = self._image.topics.get(topic)
        if image is None:
            return
        config = self._configs.topic_config(self._image, topic)
        for partition in self._topics.get(image.id, _NONE).values():
            partition.log.config = config

    def _why_missing(self, topic: TopicKey, index: int) -> KafkaError:
        image = self._topic(topic)
        if image is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID
            )
        if not 0 <= index < len(image.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
