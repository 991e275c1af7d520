"""Administration of groups, with the admin clients of confluent-kafka and kafka-python."""

from __future__ import annotations

import time
import uuid

import pytest


@pytest.fixture
def topic(make_topic):
    return make_topic(partitions=2).name


@pytest.fixture
def admin(barnabas_broker):
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": barnabas_broker.bootstrap_servers})


@pytest.fixture
def group_id():
    return f"group-{uuid.uuid4().hex}"


@pytest.fixture
def member(barnabas_broker, topic, group_id):
    """Start a consumer in a stable group, which has committed offset 5 of partition 0."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": barnabas_broker.bootstrap_servers,
            "group.id": group_id,
            "client.id": "reader",
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    yield consumer
    consumer.close()


def test_group_is_listed_by_state_and_described(admin, member, group_id, topic):
    from confluent_kafka import ConsumerGroupState

    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(60)
    assert (group_id, False) in {(g.group_id, g.is_simple_consumer_group) for g in listed.valid}
    assert listed.errors == []
    empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(60)
    assert group_id not in {g.group_id for g in empty.valid}
    described = admin.describe_consumer_groups([group_id])[group_id].result(60)
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (found,) = described.members
    assert (found.client_id, found.host) == ("reader", "/127.0.0.1")
    assert {(p.topic, p.partition) for p in found.assignment.topic_partitions} == {(topic, 0), (topic, 1)}
    (node,) = admin.describe_cluster().result(60).nodes
    assert (described.coordinator.host, described.coordinator.port) == (node.host, node.port)


def test_offsets_are_read_and_set(admin, member, group_id, topic):
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

    def read():
        whole = [ConsumerGroupTopicPartitions(group_id)]
        found = admin.list_consumer_group_offsets(whole)[group_id].result(60)
        return {(p.topic, p.partition): p.offset for p in found.topic_partitions}

    assert read() == {(topic, 0): 5}
    wanted = [
        ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 2)])
    ]

    def alter():
        altered = admin.alter_consumer_group_offsets(wanted)[group_id].result(60)
        return {p.error and p.error.code() for p in altered.topic_partitions}

    assert alter() == {KafkaError.UNKNOWN_MEMBER_ID}  # members are at work
    member.close()
    assert alter() == {None}
    assert read() == {(topic, 0): 1, (topic, 1): 2}


def test_group_is_deleted_once_it_is_empty(admin, member, group_id):
    from confluent_kafka import KafkaError, KafkaException

    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group_id])[group_id].result(60)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.close()
    admin.delete_consumer_groups([group_id])[group_id].result(60)
    with pytest.raises(KafkaException) as gone:
        admin.delete_consumer_groups([group_id])[group_id].result(60)
    assert gone.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_a_deleted_topic_are_forgotten(admin, barnabas_broker, make_topic, group_id):
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

    kept, deleted = make_topic().name, make_topic().name
    consumer = Consumer({"bootstrap.servers": barnabas_broker.bootstrap_servers, "group.id": group_id})
    offsets = [TopicPartition(kept, 0, 1), TopicPartition(deleted, 0, 2)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    admin.delete_topics([deleted])[deleted].result(60)

    def committed():
        whole = [ConsumerGroupTopicPartitions(group_id)]
        found = admin.list_consumer_group_offsets(whole)[group_id].result(60)
        return [(p.topic, p.offset) for p in found.topic_partitions]

    deadline = time.monotonic() + 60  # Apache Kafka's coordinator hears of it a moment later
    while committed() != [(kept, 1)]:
        assert time.monotonic() < deadline, committed()


def test_kafka_python_does_the_same(barnabas_broker, member, group_id, topic):
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import MemberToRemove
    from kafka.errors import GroupSubscribedToTopicError, NoError

    used = TopicPartition(topic, 0)
    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
    try:
        listed = admin.list_groups(states_filter=["stable"], types_filter=["classic"])
        assert group_id in {group["group_id"] for group in listed}
        described = admin.describe_groups([group_id])[group_id]
        (found,) = described["members"]
        assert (described["group_state"], found["client_id"]) == ("Stable", "reader")
        assert admin.list_group_offsets([group_id])[group_id][used].offset == 5
        assert admin.delete_group_offsets(group_id, [used]) == {used: GroupSubscribedToTopicError}
        leaver = MemberToRemove(member_id=found["member_id"])
        (outcome,) = admin.remove_group_members(group_id, [leaver]).values()
        assert outcome is NoError
        assert admin.delete_group_offsets(group_id, [used]) == {used: NoError}
        assert used not in admin.list_group_offsets([group_id])[group_id]
    finally:
        admin.close()
