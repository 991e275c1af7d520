"""The ListOffsets request of consumers, and its answers."""

from __future__ import annotations

from barnabas.base.types import TopicPartition
from barnabas.client.leaders import by_partition
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_request
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_partitions_of_one_topic_stand_together_in_a_consumers_request():
    request = offsets_request({A0: EARLIEST, B0: 1_000, A1: LATEST}, committed=True, timeout_ms=5)
    asked = [(t.name, [(p.partition_index, p.timestamp) for p in t.partitions]) for t in request.topics]
    assert asked == [("a", [(0, -2), (1, -1)]), ("b", [(0, 1_000)])]
    assert (request.replica_id, request.isolation_level, request.timeout_ms) == (-1, 1, 5)


def test_uncommitted_records_count_unless_the_caller_wants_committed_ones():
    assert offsets_request({A0: LATEST}).isolation_level == 0


def test_answers_come_with_their_partitions():
    parts = [ListOffsetsPartitionResponse(partition_index=n, offset=10 + n) for n in (0, 1)]
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=parts)])
    assert [(tp, each.offset) for tp, each in by_partition(response)] == [(A0, 10), (A1, 11)]
