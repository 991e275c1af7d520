"""Writes the dead letters of the share partitions that this broker leads (KIP-1191)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, Offset, TopicPartition
from barnabas.broker.coordinator import SharePartitionKey
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.dead_letters.leaders import (
    LastBatch,
    Leader,
    LocalLeader,
    RemoteLeader,
    TopicIdPartition,
)
from barnabas.broker.server.dead_letters.letters import (
    LetterBatch,
    Source,
    Span,
    has_offset,
    make_batch,
    offsets_of,
    settled,
)
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.sharing.dead_lettering import CheckLeader
from barnabas.broker.sharing.in_flight import DeadLetters
from barnabas.broker.storage import ColdRead
from barnabas.broker.view import BrokerView
from barnabas.kafka.records import Record
from barnabas.kafka.records.batch import SEQUENCE_LIMIT, batches
from barnabas.kafka.records.builder import batch_payload
from barnabas.kafka.records.record import decode_records

#: creates topics with these settings; returns the errors of the topics that it could not create
Create: TypeAlias = Callable[[Iterable[str], Mapping[str, str]], Awaitable[dict[str, KafkaError]]]

#: the purpose of the channels to other brokers
_PURPOSE = "dead letters"
#: the most bytes of one read of the source, unless one batch has more
_SOURCE_BYTES = 64 * 1024
#: the most bytes of one source batch, decompressed
_MAX_DECOMPRESSED = 16 * 1024 * 1024
#: after this many decompressed bytes, one read of the source decodes no further batch
_ENOUGH_DECOMPRESSED = 1024 * 1024
#: errors of source records that no later attempt can read
_UNREADABLE = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_EMPTY = Record(None, None)
#: how many former partitions of a queue are asked at the same time
_PLACES_AT_ONCE = 8
#: the settings of a topic that the broker creates
_OWN_SETTINGS = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
#: errors after which the log may have the batch
_UNCERTAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
#: errors of a batch whose sequence number is not the next one: another leader has written meanwhile
_OVERTAKEN = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)


class DeadLetterQueues:
    """Makes the writers of dead letters. Each share partition has its own.

    Args:
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        replicas: the partitions of this broker.
        peers: the other brokers.
        long_work: decodes source records.
        cold_reads: reads from the disk into memory.
        create: creates topics, and is awaited. It is called with the names of the topics, and with their
            settings, for example ``{"message.timestamp.type": "CreateTime"}``. It returns
            {topic name: error} for the topics that it could not create.
    """

    def __init__(
        self,
        view: BrokerView,
        replicas: ReplicaManager,
        peers: BrokerClient,
        long_work: LongWork,
        cold_reads: ColdReads,
        create: Create,
    ) -> None:
        self.view = view
        self.long_work = long_work
        self.cold_reads = cold_reads
        self._replicas = replicas
        self._peers = peers
        self._create = create

    def writer(
        self, key: SharePartitionKey, partition: Partition, is_in_doubt: bool, check_leader: CheckLeader
    ) -> LetterWriter:
        """Return a writer of one share partition's dead letters. `LetterWriter` explains the arguments."""
        return LetterWriter(self, key, partition, is_in_doubt, check_leader)

    async def find(self, group: str, partition: int) -> TopicIdPartition:
        """Return the partition of the group's dead-letter queue for records of source partition `partition`.

        The result is the partition with the number `partition` modulo the queue's number of partitions. If
        the topic does not exist and the broker may create it, create it.

        Raises:
            KafkaError: INVALID_CONFIG, the topic's name lacks the prefix of dead-letter queues, or the topic
                has not set ``errors.deadletterqueue.group.enable``; UNKNOWN_TOPIC_OR_PARTITION, the topic
                does not exist or is being created; or the error of the creation.
        """
        view = self.view
        name = view.group_config(group).errors_deadletterqueue_topic_name
        prefix = view.config.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"the name of the dead-letter queue {name} must begin with {prefix} "
                "(errors.deadletterqueue.topic.name.prefix)",
            )
        if name not in view.image.topics:
            if not view.config.errors_deadletterqueue_auto_create_topics_enable:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"the topic {name} does not exist: create it with "
                    "errors.deadletterqueue.group.enable=true, or set "
                    "errors.deadletterqueue.auto.create.topics.enable of the brokers",
                )
            for error in (await self._create([name], _OWN_SETTINGS)).values():
                raise error
        topic = view.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name} is being created")
        if not view.topic_config(name).errors_deadletterqueue_group_enable:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"the topic {name} has not set errors.deadletterqueue.group.enable=true",
            )
        return TopicIdPartition(TopicPartition(name, partition % len(topic.partitions)), topic.id)

    def former(self, target: TopicIdPartition, partition: int) -> list[TopicIdPartition]:
        """Return all partitions of a queue but `target` that can have dead letters of a source partition.

        The partition for dead letters is the number of the source partition, modulo the number of the queue's
        partitions. While the queue had fewer partitions, it could be another partition than now. For
        example, a queue with 4 partitions has the dead letters of source partition 5 in partition 1. Older
        ones can be in partition 0 (with 1 partition) or 2 (with 3 partitions).

        Return an empty list if the queue's topic does not exist.

        Args:
            target: the queue's partition for new dead letters of the source partition.
            partition: number of the source partition.
        """
        name, index = target.topic
        topic = self.view.image.topics.get(name)
        counts = range(1, len(topic.partitions) + 1 if topic is not None else 1)
        indexes = dict.fromkeys(partition % count for count in counts)
        return [
            TopicIdPartition(TopicPartition(name, each), target.topic_id) for each in indexes if each != index
        ]

    def leader(self, target: TopicIdPartition) -> Leader:
        """Return the present leader of a partition of a dead-letter queue.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, the partition has no leader now.
        """
        state = self.view.image.partition(target.topic)
        if state is None or state.leader == NO_BROKER:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the partition {target.topic} has no leader now"
            )
        if state.leader == self.view.node_id:
            return LocalLeader(self._replicas, target, self.view, self.long_work, self.cold_reads)
        channel = self._peers.channel(state.leader, _PURPOSE)
        return RemoteLeader(state.leader, channel, target, self.view)


class _Sent(NamedTuple):
    """The batch that the writer sends, and sends again, until it knows whether the log has the batch."""

    batch: LetterBatch
    #: whether the log may have the batch
    is_uncertain: bool


class LetterWriter:
    """Writes the dead letters of one share partition, each once, while this broker leads the partition.

    The writer is an idempotent producer (ADR 24). If the writer gets no response to a batch, it sends the
    same batch again, perhaps to a new leader of the dead-letter queue. The queue's log recognizes a repeated
    batch.

    All leaders of the share partition use the same producer id. After a failover, the queue may have a batch
    whose outcome the former leader has not stored. This can be only the producer's last batch, because a
    leader stores the outcome of each batch before it sends the next one. So the new leader reads the
    producer's last batch before it writes.

    A request of the former leader can still arrive after this read. Its batch has the same sequence number as
    the new leader's first batch, so the queue's log keeps only one of these two batches. After its first
    write, the new leader reads the producer's last batch again. Only the dead letters in that batch count as
    written. The new leader writes all others again.

    Args:
        queues: finds the dead-letter queue of a group, and the leaders of its partitions.
        key: the share partition.
        partition: the partition with the source records.
        is_in_doubt: whether a former leader may have written dead letters whose outcome is not stored.
        check_leader: called without arguments, and awaited, after each read of the producer's last batch;
            raises KafkaError if another leader has taken over the share partition.
    """

    def __init__(
        self,
        queues: DeadLetterQueues,
        key: SharePartitionKey,
        partition: Partition,
        is_in_doubt: bool,
        check_leader: CheckLeader,
    ) -> None:
        self._queues = queues
        self._partition = partition
        self._source = Source(key, partition.topic_partition.topic)
        self._is_in_doubt = is_in_doubt
        self._check_leader = check_leader
        self._target: TopicIdPartition | None = None
        #: the sequence number of the next dead letter; None while it is unknown
        self._sequence: int | None = None
        self._sent: _Sent | None = None

    async def write(self, due: Sequence[DeadLetters]) -> Sequence[Span]:
        """Write one batch of dead letters for the first records of `due`, and wait for its acknowledgement.

        After a failover, first read the former leader's last batch. If that batch has dead letters of `due`,
        write nothing, and return their records. After an error, call again with the records that are still
        due: the next call sends the same batch again, or makes a new one.

        Args:
            due: ranges of offsets whose records the group has given up, in ascending order.

        Returns:
            The first and the last offset of each range of finished records, in ascending order. A record is
            finished if the dead-letter queue has its dead letter, or if the log no longer has the record.

        Raises:
            KafkaError: the dead-letter queue does not exist or does not accept the dead letters; its leader
                does not respond; the source cannot be read; or another leader has taken over the share
                partition.
        """
        key = self._source.key
        target = await self._queues.find(key.group, key.partition)
        if self._sent is not None and self._target is not None and target.topic_id == self._target.topic_id:
            target = self._target  # the queue may have more partitions now, and the former one has the batch
        if target != self._target:
            self._target, self._sequence, self._sent = target, None, None
        leader = self._queues.leader(target)
        if self._sent is None:
            if self._sequence is None:
                written = await self._recover(target, due)
                if written:
                    return written
            batch = await self._make(target, due)
            if not batch.records:
                return batch.spans
            self._sent = _Sent(batch, False)
        batch, was_uncertain = self._sent
        self._sent = _Sent(batch, True)
        try:
            await leader.append(batch.records)
        except KafkaError as error:
            self._failed(error, was_uncertain)
            raise
        self._sent = None
        if self._is_in_doubt:
            self._sequence = None  # until it is certain that the log has this batch, not the predecessor's
            written = await self._recover(target, due)
            self._is_in_doubt = False
            return written
        assert self._sequence is not None
        self._sequence = (self._sequence + batch.letters) % SEQUENCE_LIMIT
        return batch.spans

    async def _recover(self, target: TopicIdPartition, due: Sequence[DeadLetters]) -> Sequence[Span]:
        """Read the producer's next sequence number from the log, and then call `check_leader`.

        If another leader of the share partition takes over before the check, the check fails. Without the
        check, a leader that was paused would write dead letters that its successor has already written. If
        another leader takes over after the check, the log accepts only one batch with this sequence number:
        the other leader's or this leader's.

        Args:
            target: the present partition of the dead-letter queue.
            due: ranges of offsets whose records the group has given up, in ascending order.

        Returns:
            The offsets of due records whose dead letters are in the producer's last batch. If the queue got
            more partitions, that batch can also be in a former partition of the queue. The result is empty
            if `_is_in_doubt` is False: no former leader can have written a dead letter of a due record.

        Raises:
            KafkaError: the last batch cannot be read, or another leader has taken over.
        """
        last = await self._last_batch(target)
        written = self._letters_in(last)
        if self._is_in_doubt:
            written += await self._former_letters(target, due, written)
        await self._check_leader()
        self._sequence = 0 if last is None else (last.last_sequence + 1) % SEQUENCE_LIMIT
        return settled(due, sorted(written))

    async def _former_letters(
        self, target: TopicIdPartition, due: Sequence[DeadLetters], written: Sequence[Offset]
    ) -> list[Offset]:
        """Return the source offsets of the dead letters in other partitions of the queue, in no order.

        Read the producer's last batch in each partition of `DeadLetterQueues.former`. Of all these batches,
        only the most recent one can have dead letters of due records. If one partition has such dead
        letters, ignore the errors of the other partitions.

        Args:
            target: the present partition of the queue.
            due: ranges of offsets whose records the group has given up, in ascending order.
            written: the source offsets of the producer's last batch in the present partition. They only
                decide whether errors are ignored, and are not in the result.

        Raises:
            KafkaError: a former partition cannot be read, and no other partition has dead letters of due
                records.
        """
        offsets: list[Offset] = []
        errors: list[BaseException] = []
        formers = self._queues.former(target, self._source.key.partition)
        for begin in range(0, len(formers), _PLACES_AT_ONCE):
            some = formers[begin : begin + _PLACES_AT_ONCE]
            for found in await asyncio.gather(*map(self._last_batch, some), return_exceptions=True):
                if isinstance(found, BaseException):
                    errors.append(found)
                else:
                    offsets += self._letters_in(found)
        if errors and not any(has_offset(due, offset) for offset in [*written, *offsets]):
            raise errors[0]
        return offsets

    def _letters_in(self, batch: LastBatch | None) -> list[Offset]:
        return [] if batch is None else offsets_of(self._source, batch.records)

    async def _last_batch(self, target: TopicIdPartition) -> LastBatch | None:
        leader = self._queues.leader(target)
        return await leader.last_batch(self._source.producer_id, with_records=self._is_in_doubt)

    def _failed(self, error: KafkaError, was_uncertain: bool) -> None:
        """Decide what the next `write` does after `error`. The first of these cases applies:

        - If the queue's log may have the batch after this error (`_UNCERTAIN`), send the same batch again.
        - If another leader may have written (`_OVERTAKEN`), or if `was_uncertain` is true, read the
          producer's last batch, and then make a new batch.
        - After any other error, make a new batch with the same sequence number.

        Args:
            error: the error of the attempt that has failed.
            was_uncertain: whether the same batch was sent before, and the log may have it.
        """
        if error.code in _UNCERTAIN:
            return
        self._sent = None  # settings may change until the next attempt
        if error.code in _OVERTAKEN or was_uncertain:
            self._sequence = None
            self._is_in_doubt = True

    async def _make(self, target: TopicIdPartition, due: Sequence[DeadLetters]) -> LetterBatch:
        view = self._queues.view
        topic_config = view.topic_config(target.topic.topic)
        found, end = await self._read(due)
        assert self._sequence is not None
        return make_batch(
            self._source,
            due,
            found,
            end,
            is_copy=view.group_config(self._source.key.group).errors_deadletterqueue_copy_record_enable,
            max_bytes=min(topic_config.max_message_bytes, topic_config.segment_bytes),
            sequence=self._sequence,
            now_ms=view.clock.now_ms(),
        )

    async def _read(self, due: Sequence[DeadLetters]) -> tuple[dict[Offset, Record], Offset]:
        """Read the first source records in `due`, and return ({offset: record}, end).

        `due` has ranges of offsets whose records the group has given up, in ascending order.

        `end` is the offset before which the dictionary has all due records that the log has. If the first
        records are damaged, the dictionary has them without key, value and headers.

        Raises:
            KafkaError: OFFSET_NOT_AVAILABLE, the first record of `due` is not committed yet; or an error of
                `PartitionLog.read`, for example KAFKA_STORAGE_ERROR.
        """
        log, first = self._partition.log, due[0].first
        end = log.high_watermark
        if first < log.log_start_offset:
            return {}, log.log_start_offset
        if first >= end:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"the record {first} is not committed yet")

        def read(may_wait: bool) -> bytes:
            fetched = log.read(first, _SOURCE_BYTES, end, True, may_wait)
            return b"".join(bytes(chunk) for chunk in fetched.chunks)

        try:
            try:
                data = read(False)
            except ColdRead as cold:
                data = await self._queues.cold_reads.retry(read, cold)
            return await self._queues.long_work.run(_decoded, data, due, end)
        except KafkaError as error:
            if error.code not in _UNREADABLE:
                raise
            end = min(due[0].last + 1, end)
            return dict.fromkeys(range(first, end), _EMPTY), end


def _decoded(data: bytes, due: Sequence[DeadLetters], end: Offset) -> tuple[dict[Offset, Record], Offset]:
    """Decode the records in `data` whose offsets are in one of the ranges of `due`.

    Return ({offset: record}, next offset). The next offset is the one after the last decoded batch, or `end`
    if `data` has no batch. A few compressed bytes can contain very large records, so decoding stops after
    `_ENOUGH_DECOMPRESSED` decompressed bytes. It also stops after a damaged batch. The result has the records
    of that batch without key, value and headers.
    """
    found: dict[Offset, Record] = {}
    decompressed = 0
    for position, header in batches(data):
        if decompressed >= _ENOUGH_DECOMPRESSED:
            break
        end = header.next_offset
        if header.is_control:
            continue
        base, count = header.base_offset, header.record_count
        batch = memoryview(data)[position : position + header.size]
        try:
            payload = batch_payload(header, batch, _MAX_DECOMPRESSED)
            decompressed += len(payload)
            for record in decode_records(payload, count, base, header.base_timestamp):
                if has_offset(due, record.offset):
                    found[record.offset] = record
        except KafkaError:  # damaged, or too large
            for offset in range(max(base, due[0].first), min(end, due[-1].last + 1)):
                found.setdefault(offset, _EMPTY)
            break
    return found, end
