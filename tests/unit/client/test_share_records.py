"""The client reads a share group's records in flight page by page."""

from __future__ import annotations

from barnabas.base.types import TopicPartition
from barnabas.client.connection import UnservedError
from barnabas.client.errors import ClientError
from barnabas.client.share_groups import in_flight
from barnabas.kafka.protocol.messages.describe_share_partitions import (
    DescribeSharePartitionsResponse,
    PartitionResponse,
    StateBatch,
    TopicResponse,
)

A, B, C = (TopicPartition("t", number) for number in range(3))


class Leaders:
    """Two leaders that describe at most `limit` ranges in a response. Each partition has `records` ranges."""

    def __init__(self, records, limit, failures=()):
        self._records = records
        self._limit = limit
        #: by leader, the errors of its next requests
        self._failures = {leader: list(errors) for leader, errors in dict(failures).items()}
        self.calls = 0

    def ask_each(self, requests, response_timeout=None, deadline=None):
        self.calls += 1
        found, failures = {}, {}
        for leader, repeated in requests.items():
            errors = self._failures.get(leader)
            error = errors.pop(0) if errors else None
            if error is not None:
                failures[leader] = error
            else:
                found[leader] = self._described(repeated.request)
        return found, failures

    def _described(self, request):
        room = self._limit
        (topic,) = request.topics
        results = TopicResponse(name=topic.name)
        for each in topic.partitions:
            if not room:
                break
            records = self._records[TopicPartition(topic.name, each.partition_index)]
            end = min(records, each.first_offset + room)
            room -= end - each.first_offset
            result = PartitionResponse(
                partition_index=each.partition_index, start_offset=0, end_offset=records
            )
            result.state_batches = [
                StateBatch(first_offset=offset, last_offset=offset)
                for offset in range(each.first_offset, end)
            ]
            result.next_offset = end if end < records else -1
            results.partitions.append(result)
        return DescribeSharePartitionsResponse(topics=[results])


def told(leaders, partitions):
    """Return the offsets of the ranges of each partition."""
    return {
        partition: [each.first for each in found.batches]
        for partition, found in in_flight(leaders, "g", partitions, partitions).items()
    }


def test_all_pages_of_all_leaders_are_put_together():
    leaders = Leaders({A: 5, B: 4, C: 7}, limit=3)
    assert told(leaders, {A: 1, B: 1, C: 2}) == {
        A: [0, 1, 2, 3, 4],
        B: [0, 1, 2, 3],
        C: [0, 1, 2, 3, 4, 5, 6],
    }
    assert leaders.calls == 3


def test_a_single_page_needs_one_request():
    leaders = Leaders({A: 2, B: 1}, limit=2000)
    assert told(leaders, {A: 1, B: 1}) == {A: [0, 1], B: [0]}
    assert leaders.calls == 1


def test_a_partition_whose_leader_stops_answering_is_left_out():
    leaders = Leaders({A: 5, C: 5}, limit=3, failures={2: [None, ClientError("gone")]})
    assert told(leaders, {A: 1, C: 2}) == {A: [0, 1, 2, 3, 4]}


def test_leaders_without_the_api_are_told_from_leaders_without_records():
    assert in_flight(Leaders({}, 1, {1: [UnservedError("no such API")]}), "g", [A], {A: 1}) is None
    assert in_flight(Leaders({}, 1, {1: [ClientError("gone")]}), "g", [A], {A: 1}) == {}
