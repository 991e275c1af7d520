"""AlterPartitionReassignments to a single broker, as raw requests and by the client that supports it."""

import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)


@pytest.fixture
def alter(wire):
    """Return the error code of each reassignment, by topic and partition."""

    def ask(*moves, **options):
        topics = [
            ReassignableTopic(
                name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
            )
            for name, index, replicas in moves
        ]
        response = wire(AlterPartitionReassignmentsRequest(topics=topics, **options))
        assert (response.error_code, response.error_message) == (0, None)
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in response.responses
            for partition in topic.partitions
        }

    return ask


def test_a_partition_stays_where_it_is_when_asked_to(alter, topic):
    assert alter((topic.name, 0, [1])) == {(topic.name, 0): ErrorCode.NONE}


def test_each_partition_is_answered_by_itself(alter, topic):
    assert alter(
        (topic.name, 0, [2]), (topic.name, 7, [1]), ("no-such-topic", 0, [1]), (topic.name, 9, None)
    ) == {
        (topic.name, 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        (topic.name, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic.name, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_partition_that_is_not_moving_cannot_be_cancelled(alter, topic):
    assert alter((topic.name, 0, None)) == {(topic.name, 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


def test_a_partition_that_is_named_twice_is_not_moved(alter, topic):
    assert alter((topic.name, 0, [1]), (topic.name, 0, [1])) == {(topic.name, 0): ErrorCode.INVALID_REQUEST}


def test_nothing_is_asked_and_nothing_answered(alter):
    assert alter() == {}


def test_a_large_request_is_answered_in_full(alter, topic):
    moves = [(topic.name, index, [1]) for index in range(5000)]
    assert sum(code is ErrorCode.NONE for code in alter(*moves).values()) == 1


def test_kafka_python_alters_reassignments(barnabas_broker, topic):
    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
    try:
        admin.alter_partition_reassignments({TopicPartition(topic.name, 0): [1]})
    finally:
        admin.close()
