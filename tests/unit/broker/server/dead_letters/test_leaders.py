"""The last dead letters of a producer, at another broker: in its log, committed, or deleted."""

from __future__ import annotations

import asyncio

import pytest
from immutables import Map
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.image import PartitionState, TopicImage
from barnabas.broker.server.dead_letters.leaders import LastBatch, RemoteLeader, TopicIdPartition
from barnabas.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.kafka.records import Record, encode_batch

PRODUCER, TIME, LEADER = 7, 1000, 2
TARGET = TopicIdPartition(TopicPartition("dlq.t", 0), bytes(16))
BATCH = encode_batch([Record(None, b"letter", TIME)], producer_id=PRODUCER, producer_epoch=0, base_sequence=4)


class Queue:
    """Answers as the broker that leads the dead-letter queue. Its producer has written sequence number 4."""

    def __init__(self, *, start: int, high_watermark: int) -> None:
        self._start, self._high_watermark, self._end = start, high_watermark, 1

    def submit(self, request, *, timeout_s=None):
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(self._answer(request))
        return answer

    def _answer(self, request):
        match request:
            case DescribeProducersRequest():
                known = ProducerState(producer_id=PRODUCER, last_sequence=4, last_timestamp=TIME)
                return DescribeProducersResponse(
                    topics=[TopicResponse(partitions=[PartitionResponse(active_producers=[known])])]
                )
            case ListOffsetsRequest():
                (topic,) = request.topics
                bound = self._end if request.replica_id == -2 else self._high_watermark
                offset = bound if topic.partitions[0].timestamp == -1 else self._start
                if topic.partitions[0].timestamp == TIME and offset >= bound:
                    offset = -1
                found = ListOffsetsPartitionResponse(offset=offset)
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[found])])
            case FetchRequest():
                data = PartitionData(high_watermark=self._high_watermark, records=BATCH)
                return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])


def led_by(broker: int) -> ClusterImage:
    topic = TopicImage(TARGET.topic.topic, TARGET.topic_id, (PartitionState((1, 2, 3), (1, 2, 3), broker),))
    return ClusterImage(topics=Map({TARGET.topic.topic: topic}))


def last_batch(queue: Queue) -> LastBatch | None:
    leader = RemoteLeader(LEADER, queue, TARGET, view_of(led_by(LEADER)))
    return run_virtual(leader.last_batch(PRODUCER, with_records=True))


def test_the_last_batch_is_found():
    assert last_batch(Queue(start=0, high_watermark=1)) == LastBatch(4, BATCH)


def test_a_batch_that_is_not_committed_is_not_taken_as_deleted():
    with pytest.raises(KafkaError, match="not committed yet"):
        last_batch(Queue(start=0, high_watermark=0))


def test_a_deleted_batch_is_known_by_its_sequence_number_at_once():
    assert last_batch(Queue(start=1, high_watermark=1)) == LastBatch(4, b"")


class Mute:
    """A leader that gives no answer."""

    def submit(self, request, *, timeout_s=None):
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer


def test_a_batch_whose_leader_is_cut_off_waits_for_no_timeout_once_another_broker_leads():
    view, mute = view_of(led_by(LEADER)), Mute()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(5, lambda: setattr(view, "image", led_by(3)))
        with pytest.raises(KafkaError) as raised:
            await RemoteLeader(LEADER, mute, TARGET, view).append(BATCH)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert 5 <= loop.time() <= 6
        assert mute.answer.cancelled()

    run_virtual(scenario())
