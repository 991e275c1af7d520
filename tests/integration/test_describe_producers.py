"""DescribeProducers: who has written lately."""

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest


def describe(wire, topic, *partitions):
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic.name, partition_indexes=list(partitions))]
    )
    return {p.partition_index: p for p in wire(request).topics[0].partitions}


def test_idempotent_producers_are_shown_with_their_last_sequence(make_topic, produce, batch, wire):
    topic = make_topic(2)
    produce(topic, batch(b"a", b"b", producer_id=71, producer_epoch=2, base_sequence=0, timestamp=1000))
    produce(topic, batch(b"c", producer_id=71, producer_epoch=2, base_sequence=2, timestamp=2000))
    produce(topic, batch(b"d"))
    found = describe(wire, topic, 0, 1)
    (producer,) = found[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (71, 2, 2)
    assert (producer.last_timestamp, producer.current_txn_start_offset) == (2000, -1)
    assert found[1].active_producers == []


def test_a_partition_that_does_not_exist_is_an_error(topic, wire):
    assert describe(wire, topic, 4)[4].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
