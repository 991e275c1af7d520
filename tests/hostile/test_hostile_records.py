"""Small batches with large contents: whatever the codec and the topic, they do not delay other clients."""

from __future__ import annotations

import time

import pytest
from tests.hostile.generated import KEYLESS, RECORD, largest_batch
from tests.hostile.measured import MeasuredBroker, cost
from tests.hostile.test_hostile_requests import check
from tests.hostile.world import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records.compression import Compression

TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "recompressing": {"compression.type": "gzip"},
    "stamping": {"message.timestamp.type": "LogAppendTime"},
}
FAR = 10**13


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with MeasuredBroker(tmp_path_factory.mktemp("records")) as broker:
        wire = Wire(broker)
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=8,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
            )
            for name, configs in TOPICS.items()
        ]
        assert not any(topic.error_code for topic in wire(CreateTopicsRequest(topics=topics)).topics)
        wire.close()
        yield broker


@pytest.fixture
def wire(broker):
    wire = Wire(broker)
    yield wire
    wire.close()


def produce(topic, *batches):
    data = [PartitionProduceData(index=number, records=batch) for number, batch in enumerate(batches)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def framed(request, version):
    header = RequestHeader(request.api_key, version, 1, "hostile")
    return b"".join(bytes(chunk) for chunk in encode_request(header, request))


def bomb(codec, record, timestamp):
    return largest_batch(codec, record, timestamp, 20_000, max_records=400_000)


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("what", ["in time", "far in the future", "without keys"])
def test_a_batch_of_very_many_records_holds_up_nobody(broker, codec, topic, what):
    now = int(time.time() * 1000)
    record = KEYLESS if what == "without keys" else RECORD
    batch = bomb(codec, record, FAR if what == "far in the future" else now)
    request = framed(produce(topic, *[batch] * 8), 9)
    check(f"{what}, {codec.name}, {topic}, {len(request)} bytes", cost(broker, request))


@pytest.mark.parametrize("codec", Compression, ids=lambda codec: codec.name)
def test_to_look_up_a_time_in_such_a_batch_holds_up_nobody(broker, wire, codec):
    now = int(time.time() * 1000)
    (answer,) = wire(produce("plain", bomb(codec, RECORD, now)), 9).responses[0].partition_responses
    assert answer.error_code == 0
    wanted = [ListOffsetsPartition(partition_index=number, timestamp=now) for number in range(8)]
    topics = [ListOffsetsTopic(name="plain", partitions=wanted)]
    check(codec.name, cost(broker, framed(ListOffsetsRequest(topics=topics), 7)))
    (first, *_) = wire(ListOffsetsRequest(topics=topics)).topics[0].partitions
    assert first.error_code == 0
    assert 0 <= first.offset <= answer.base_offset
    assert first.timestamp >= now


def test_refused_records_are_named_up_to_a_bound(wire):
    batch = bomb(Compression.GZIP, RECORD, FAR)
    answers = wire(produce("plain", *[batch] * 8), 9).responses[0].partition_responses
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_TIMESTAMP}
    assert [len(answer.record_errors) for answer in answers] == [100] * 8


def test_batches_that_are_validated_in_a_thread_keep_their_order(wire):
    now = int(time.time() * 1000)
    long = largest_batch(Compression.GZIP, RECORD, now, 20_000, max_records=5_000)
    short = largest_batch(Compression.NONE, RECORD, now, 20_000, max_records=10)
    before = wire(produce("compacted", short), 9).responses[0].partition_responses[0].base_offset
    requests = [produce("compacted", batch) for batch in (long, short, long, short)]
    answers = wire.together(requests, 9)
    offsets = [answer.responses[0].partition_responses[0].base_offset - before for answer in answers]
    assert offsets == [10, 5010, 5020, 10020]
