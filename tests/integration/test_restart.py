"""The state of a broker after a stop, and after a kill."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.testing import BarnabasBroker


@pytest.fixture(params=["stopped", "killed"])
def broker(request):
    """Start a broker. Its method `again()` stops or kills it, and starts it again."""
    with BarnabasBroker(mode="thread" if request.param == "stopped" else "process") as broker:

        def again():
            if request.param == "stopped":
                broker.stop()
            else:
                broker.kill()
            broker.start()

        broker.again = again
        yield broker


def test_records_topics_and_ids_are_as_they_were(
    broker, connect, make_topic, produce, batch, fetch_request, read_values
):
    wire = connect(broker)
    topic = make_topic(2, by=wire, **{"retention.ms": "123456789"})
    produce(topic, batch(b"a", b"b"), by=wire)
    produce(topic, batch(b"c"), partition=1, by=wire)
    broker.again()
    wire = connect(broker)
    data = wire(fetch_request(topic, {0: 0, 1: 0})).responses[0].partitions
    assert [read_values(partition) for partition in data] == [[b"a", b"b"], [b"c"]]
    assert produce(topic, batch(b"d"), by=wire).base_offset == 2
    described = wire(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])).topics[0]
    assert (described.topic_id, len(described.partitions)) == (topic.id, 2)


def test_a_duplicate_is_still_known(broker, connect, make_topic, produce, batch):
    wire = connect(broker)
    topic = make_topic(by=wire)
    batches = [batch(b"a", b"b", producer_id=5, producer_epoch=1, base_sequence=2 * n) for n in range(5)]
    offsets = [produce(topic, data, by=wire).base_offset for data in batches]
    broker.again()
    wire = connect(broker)
    again = [produce(topic, data, by=wire) for data in batches]
    assert [(result.error_code, result.base_offset) for result in again] == [(0, n) for n in offsets]
    gap = batch(b"z", producer_id=5, producer_epoch=1, base_sequence=99)
    assert produce(topic, gap, by=wire).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=[0])])
    (producer,) = wire(request).topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 1, 9)


def test_a_restarted_leader_begins_an_epoch(broker, connect, make_topic, produce, batch, fetch_request):
    wire = connect(broker)
    topic = make_topic(by=wire)
    produce(topic, batch(b"a"), by=wire)
    broker.again()
    wire = connect(broker)
    (partition,) = wire(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)])).topics[0].partitions
    assert partition.leader_epoch == 1

    def end_of(epoch):
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic.name, partitions=[wanted])]
        )
        (result,) = wire(request).topics[0].partitions
        return result.leader_epoch, result.end_offset

    assert (end_of(0), end_of(1)) == ((0, 1), (1, 1))
    produce(topic, batch(b"b"), by=wire)
    assert (end_of(0), end_of(1)) == ((0, 1), (1, 2))
    old = wire(fetch_request(topic, {0: 0}, leader_epoch=0)).responses[0].partitions[0]
    assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
