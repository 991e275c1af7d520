"""DescribeProducers: the producers that wrote recently."""

from contextlib import closing

from confluent_kafka import Producer
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest


def describe(wire, topic, *partitions):
    return describe_named(wire, topic.name, *partitions)


def describe_named(wire, name, *partitions):
    request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=list(partitions))])
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


def test_invalid_name_of_a_topic_is_told(wire):
    assert describe_named(wire, "..", 0)[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_followers_answer_as_the_leader_and_others_do_not(barnabas_cluster):
    """`kafka-transactions find-hanging` asks each broker for all of its replicas, as with Apache Kafka."""
    cluster = barnabas_cluster(brokers=3)
    cluster.admin().create_topic("t", 1, replication_factor=2)
    cluster.wait_in_sync("t")
    sender = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t", "log_level": 0}
    )
    sender.init_transactions(60)
    sender.begin_transaction()
    sender.produce("t", b"open")
    sender.flush()
    found = []
    for broker in cluster.brokers:
        with closing(Wire(cluster.address_of(broker))) as wire:
            found.append(describe_named(wire, "t", 0)[0])
    sender.abort_transaction(60)
    assert sorted(each.error_code for each in found) == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    (leader,), (follower,) = [each.active_producers for each in found if not each.error_code]
    assert leader.current_txn_start_offset == 0
    assert follower == leader
