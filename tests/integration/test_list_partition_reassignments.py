"""ListPartitionReassignments, as raw requests and by the client that supports it."""

import pytest
from kafka.admin import KafkaAdminClient

from barnabas.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


@pytest.mark.parametrize("partitions", [[], [0], [0, 0, 7, -1]])
def test_partitions_that_stay_where_they_are_and_those_that_are_not_there_are_left_out(
    wire, topic, partitions
):
    asked = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=partitions)
        for name in (topic.name, topic.name, "no-such-topic")
    ]
    for topics in (asked, [], None):
        response = wire(ListPartitionReassignmentsRequest(topics=topics))
        assert (response.error_code, response.topics) == (0, [])


def test_kafka_python_lists_reassignments(barnabas_broker, topic):
    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
    try:
        assert admin.list_partition_reassignments() == {}
    finally:
        admin.close()
