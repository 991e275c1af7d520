"""The leader of a dead-letter queue's partition: this broker or another one."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

from barnabas.base.errors import ErrorCode, KafkaError, error_code
from barnabas.base.types import BrokerId, Buffer, Offset, ProducerId, TopicId, TopicPartition
from barnabas.broker.interbroker import Channel, ChannelError
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.replication.acknowledgement import Acknowledgement, Appended
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.server.dead_letters.letters import EPOCH
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.storage import ColdRead, LongValidation, Origin
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records.batch import batches

#: the most bytes of one read of the dead-letter queue
_READ_BYTES = 1024 * 1024
#: in seconds, how long a leader may take longer to answer than it waits for its followers
_GRACE = 5.0
#: in seconds, how often a request without an answer compares its receiver with the partition's leader
_LOOK = 0.5
#: who asks for offsets: a consumer, whose log ends at the high watermark, or anyone who sees all of the log
_CONSUMER = -1
_DEBUGGER = -2
_LATEST = -1


class LastBatch(NamedTuple):
    """The last batch of a producer in a partition."""

    last_sequence: int
    #: the batch; empty if it was not read, or the log does not have it any more
    records: Buffer


class TopicIdPartition(NamedTuple):
    """A partition of a dead-letter queue. A topic that is created again has another id."""

    topic: TopicPartition
    topic_id: TopicId


class Leader(Protocol):
    """Appends to a partition of a dead-letter queue, and finds the last batch of a producer there."""

    async def append(self, batch: bytes) -> None:
        """Append a batch, and wait until all in-sync replicas have it.

        If the log already has the batch, append nothing.

        Raises:
            KafkaError: the leader rejects the batch, cannot be reached, or does not respond in time.
        """

    async def last_batch(self, producer_id: ProducerId, *, with_records: bool) -> LastBatch | None:
        """Return the last batch of a producer; None if the log does not know the producer.

        The result has no records if `with_records` is false, or if the batch was deleted.

        Args:
            producer_id: the id of the producer.
            with_records: whether to read the batch, too.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, the batch is not committed yet; or another error of the leader.
        """


class LocalLeader:
    """Implements `Leader` for a partition that this broker leads."""

    def __init__(
        self,
        replicas: ReplicaManager,
        target: TopicIdPartition,
        view: BrokerView,
        long_work: LongWork,
        cold_reads: ColdReads,
    ) -> None:
        self._replicas = replicas
        self._target = target
        self._view = view
        self._long_work = long_work
        self._cold_reads = cold_reads

    async def append(self, batch: bytes) -> None:
        replica = self._find()
        try:
            info = replica.append(batch, ACKS_ALL, Origin.CLIENT)
        except LongValidation:
            valid = await self._long_work.validate(batch, replica.log.config, self._view.clock.now_ms())
            info = replica.append(batch, ACKS_ALL, Origin.CLIENT, valid)
        if replica.is_acknowledged(info.last_offset, ACKS_ALL):
            return
        errors: list[KafkaError] = []
        appended = Appended(replica, info.last_offset, replica.leader_epoch, errors.append)
        await Acknowledgement([appended], ACKS_ALL, True).wait(self._view.config.request_timeout_ms).future
        for error in errors:
            raise error

    async def last_batch(self, producer_id: ProducerId, *, with_records: bool) -> LastBatch | None:
        replica = self._find()
        known = replica.log.producers.get(producer_id)
        if known is None or not known.batches:
            return None
        last = known.batches[-1]
        if not with_records or last.base_offset < replica.log.log_start_offset:
            return LastBatch(last.last_sequence, b"")
        if replica.log.high_watermark <= last.last_offset:
            raise _not_committed()
        chunk = await self._read(replica, last.base_offset)
        return LastBatch(last.last_sequence, _batch_of(chunk, producer_id, last.last_sequence) or b"")

    def _find(self) -> Partition:
        replica = self._replicas.find(self._target.topic_id, self._target.topic.partition)
        replica.check_leader()
        return replica

    async def _read(self, replica: Partition, offset: Offset) -> bytes:
        def read(may_wait: bool) -> bytes:
            found = replica.log.read(offset, 1, replica.log.high_watermark, True, may_wait)
            return b"".join(bytes(chunk) for chunk in found.chunks)

        try:
            return read(False)
        except ColdRead as cold:
            return await self._cold_reads.retry(read, cold)


class RemoteLeader:
    """Implements `Leader` for a partition that another broker leads, by Kafka requests to that broker.

    Each method raises NOT_LEADER_OR_FOLLOWER if the partition gets another leader before the answer. A broker
    that is cut off from this one gives no answer until the request times out.
    """

    def __init__(
        self, broker: BrokerId, channel: Channel, target: TopicIdPartition, view: BrokerView
    ) -> None:
        self._broker = broker
        self._channel = channel
        self._target = target
        self._view = view

    async def append(self, batch: bytes) -> None:
        name, index = self._target.topic
        timeout_ms = self._view.config.request_timeout_ms
        data = PartitionProduceData(index=index, records=batch)
        topic = TopicProduceData(name=name, topic_id=self._target.topic_id, partition_data=[data])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=[topic])
        response = await self._send(request, timeout_ms / 1000 + _GRACE)
        _check(response.responses[0].partition_responses[0])

    async def last_batch(self, producer_id: ProducerId, *, with_records: bool) -> LastBatch | None:
        name, index = self._target.topic
        described = await self._send(
            DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[index])])
        )
        partition = _check(described.topics[0].partitions[0])
        known = next((each for each in partition.active_producers if each.producer_id == producer_id), None)
        if known is None or known.last_sequence < 0:
            return None
        if not with_records:
            return LastBatch(known.last_sequence, b"")
        end = await self._offset(_LATEST, _DEBUGGER)
        if await self._offset(_LATEST, _CONSUMER) < end:
            raise _not_committed()
        offset = await self._offset(known.last_timestamp, _CONSUMER)
        while 0 <= offset < end:
            fetched = await self._fetch(offset)
            found = _batch_of(fetched, producer_id, known.last_sequence)
            if found is not None:
                return LastBatch(known.last_sequence, found)
            headers = [header for _, header in batches(fetched)]
            if not headers:
                raise _not_committed()
            offset = headers[-1].last_offset + 1
        return LastBatch(known.last_sequence, b"")  # it is deleted

    async def _offset(self, timestamp: int, replica_id: int) -> Offset:
        """Ask the leader by ListOffsets for an offset; -1 if no record is that late.

        Args:
            timestamp: in milliseconds since 1970, for the first record at or after this time; or `_LATEST`
                for the end of the log.
            replica_id: `_CONSUMER` for committed records only, `_DEBUGGER` for all records.

        Raises:
            KafkaError: the leader answers with an error, or cannot be reached (NETWORK_EXCEPTION).
        """
        name, index = self._target.topic
        wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topic = ListOffsetsTopic(name=name, partitions=[wanted])
        listed = await self._send(ListOffsetsRequest(replica_id=replica_id, topics=[topic]))
        offset: Offset = _check(listed.topics[0].partitions[0]).offset
        return offset

    async def _fetch(self, offset: Offset) -> bytes:
        name, index = self._target.topic
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=_READ_BYTES)
        topic = FetchTopic(topic=name, topic_id=self._target.topic_id, partitions=[partition])
        response = await self._send(FetchRequest(max_bytes=_READ_BYTES, min_bytes=0, topics=[topic]))
        if response.error_code:
            raise KafkaError(error_code(response.error_code))
        data = _check(response.responses[0].partitions[0])
        return bytes(data.records or b"")

    async def _send(self, request: Request, timeout_s: float | None = None) -> Any:
        answer = self._channel.submit(request, timeout_s=timeout_s)
        try:
            while not answer.done():
                self._check_leads()
                await asyncio.wait([answer], timeout=_LOOK)
            return answer.result()
        except ChannelError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        finally:
            answer.cancel()

    def _check_leads(self) -> None:
        state = self._view.image.partition(self._target.topic)
        if state is None or state.leader != self._broker:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._broker} does not lead {self._target.topic}"
            )


def _check(result: Any) -> Any:
    """Return `result`, one partition's part of a response.

    Raises KafkaError if the part has an error code.
    """
    if result.error_code:
        raise KafkaError(error_code(result.error_code), getattr(result, "error_message", None))
    return result


def _batch_of(data: Buffer, producer_id: ProducerId, last_sequence: int) -> Buffer | None:
    """Return the batch in `data` whose producer id and last sequence number are the given ones.

    The producer epoch of the batch must be `EPOCH`. Return None if `data` has no such batch.

    Args:
        data: record batches, one after another.
        producer_id: producer of the batch.
        last_sequence: sequence number of the batch's last record.
    """
    view = memoryview(data)
    for position, header in batches(view):
        if (header.producer_id, header.producer_epoch, header.last_sequence) == (
            producer_id,
            EPOCH,
            last_sequence,
        ):
            return view[position : position + header.size]
    return None


def _not_committed() -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the last dead letters are not committed yet")
