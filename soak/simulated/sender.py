"""Sends batches of an idempotent producer: several in flight, and again with the same sequence after an
error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.kafka.records.builder import encode_batch
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.records.record import Record
from soak.roles.common import Draft, Writer
from soak.simulated.client import Client, Place, code_of, is_retriable, name_of
from soak.simulated.stage import SHRINKING

#: how many batches of a producer and partition a broker recognises
WINDOW = 5
_CODECS = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD)


@dataclass(eq=False)
class _Batch:
    drafts: Sequence[Draft]
    sequence: int
    data: bytes
    #: the topic's id, as the leader knew it when the batch was sent; None if that cannot be told
    topic_id: bytes | None = None


#: answers to a batch that may be in the log
_APPENDED = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class _Lane:
    """The batches of one partition, in the order of their sequences."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self.waiting: deque[_Batch] = deque()
        #: sequences of those that may be in the log, though nobody has said so for sure
        self.uncertain: set[int] = set()
        self.task: asyncio.Task[None] | None = None


class Sender:
    """Sends batches with one producer id and epoch.

    Args:
        window: the largest number of batches of a partition in flight.
        max_version: the highest version of Produce to use.
    """

    def __init__(
        self,
        client: Client,
        writer: Writer,
        clock: Clock,
        *,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str | None = None,
        max_version: int,
        window: int = WINDOW,
    ) -> None:
        self._client = client
        self._writer = writer
        self._clock = clock
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._transactional_id = transactional_id
        self._max_version = max_version
        self._window = window
        self._lanes: dict[Place, _Lane] = {}
        #: why nothing more can be sent: the broker refused a batch for good
        self.refused: ErrorCode | None = None

    @property
    def waiting(self) -> int:
        """The number of batches without an acknowledgement."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def put(self, place: Place, drafts: Sequence[Draft]) -> None:
        """Send a batch after the earlier batches of the partition."""
        lane = self._lanes.setdefault(place, _Lane())
        now = self._clock.now_ms()
        records = [Record(draft.key.encode(), draft.value, now, tuple(draft.headers)) for draft in drafts]
        data = encode_batch(
            records,
            compression=self._client.random.choice(_CODECS),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=lane.next_sequence,
            transactional=self._transactional_id is not None,
        )
        lane.waiting.append(_Batch(drafts, lane.next_sequence, data))
        lane.next_sequence += len(drafts)
        if lane.task is None:
            lane.task = asyncio.get_running_loop().create_task(self._drive(place, lane))

    async def flush(self) -> bool:
        """Wait until each batch has an answer. Return False if the broker rejected one."""
        for lane in self._lanes.values():
            while lane.task is not None:
                await asyncio.wait([lane.task])
        return self.refused is None

    async def _drive(self, place: Place, lane: _Lane) -> None:
        while lane.waiting and self.refused is None:
            if not await self._send_waiting(place, lane):
                await self._client.back_off()
        if self.refused is not None:
            for batch in lane.waiting:
                for draft in batch.drafts:
                    self._writer.failed(draft.id, name_of(self.refused))
            lane.waiting.clear()
        lane.task = None

    async def _send_waiting(self, place: Place, lane: _Lane) -> bool:
        """Send up to `window` batches at a time. Return False after a failure, True when all are
        acknowledged.
        """
        await self._client.going()
        if self._max_version >= 13 and place[0] not in self._client.topic_ids:
            await self._client.learn(place[0])
            if place[0] not in self._client.topic_ids:
                return False
        leader = await self._client.find_leader(place)
        if leader is None:
            return False
        under_way: deque[tuple[_Batch, asyncio.Future[Any]]] = deque()
        sent = 0
        failed = False
        while under_way or (sent < len(lane.waiting) and not failed):
            while not failed and len(under_way) < self._window and sent < len(lane.waiting):
                batch = lane.waiting[sent]
                under_way.append((batch, self._submit(leader, place, batch)))
                sent += 1
            batch, future = under_way.popleft()
            try:
                topic = (await future).responses[0]
            except ChannelError:
                self._client.routes.doubt_leader(place)
                lane.uncertain.add(batch.sequence)
                if self._max_version < 13:
                    for draft in batch.drafts:
                        self._writer.on_its_way(draft.id)
                failed = True
                continue
            answer = topic.partition_responses[0]
            self._client.check_named_leader(topic.topic_id, answer.index, answer.current_leader)
            await self._client.going()
            if code_of(answer.error_code) in _APPENDED:
                lane.uncertain.add(batch.sequence)
            if self._is_stored(leader, place, lane, batch, answer):
                if lane.waiting[0] is not batch and lane.waiting[0].sequence not in lane.uncertain:
                    self._client.stage.complain(
                        "gap-accepted", f"{place} took sequence {batch.sequence} and not the one before"
                    )
                lane.waiting.remove(batch)
                lane.uncertain.discard(batch.sequence)
                sent -= 1
                for number, draft in enumerate(batch.drafts):
                    offset = answer.base_offset + number if answer.base_offset >= 0 else None
                    if self._is_gone(place, batch):
                        self._writer.failed(draft.id, "written to the topic that was deleted")
                    else:
                        self._writer.acknowledged(draft.id, offset)
            else:
                failed = True
        return not failed

    def _submit(self, leader: int, place: Place, batch: _Batch) -> asyncio.Future[Any]:
        topic, partition = place
        known = self._client.stage.known_by(leader, topic, partition)
        batch.topic_id = None if known is None else known.topic_id
        if self._is_gone(place, batch):
            for draft in batch.drafts:
                self._writer.to_former_topic(draft.id)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=3000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self._client.topic_ids.get(topic, bytes(16)),
                    partition_data=[PartitionProduceData(index=partition, records=batch.data)],
                )
            ],
        )
        return self._client.channel(leader).submit(request, max_version=self._max_version)

    def _is_gone(self, place: Place, batch: _Batch) -> bool:
        """Return whether the leader to which the batch was sent still has the log of a deleted topic."""
        decided = self._client.stage.decided(*place)
        now = None if decided is None else decided.topic_id
        return batch.topic_id is not None and batch.topic_id != now

    def _is_stored(
        self, leader: int, place: Place, lane: _Lane, batch: _Batch, answer: PartitionProduceResponse
    ) -> bool:
        code = code_of(answer.error_code)
        if code is ErrorCode.NONE:
            return True
        self._client.judge_leader(place, code, "Produce")
        if code is ErrorCode.UNKNOWN_TOPIC_ID:
            self._client.topic_ids.pop(place[0], None)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if lane.waiting[0] is not batch:
                return False
            if not self._client.stage.leads(leader, *place):
                self._client.routes.doubt_leader(place)
                return False
            if place[0] in SHRINKING and batch.sequence in lane.uncertain:
                # It was written and is deleted: a replica made since then knows nothing of it, as in Kafka.
                code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            answer.base_offset = -1
            return True
        if is_retriable(code):
            return False
        self._client.stage.trace.note(f"{self._client.name} {place} {batch.sequence}: {code.name}")
        self.refused = code
        return False
