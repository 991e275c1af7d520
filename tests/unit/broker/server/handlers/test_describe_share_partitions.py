"""Records in flight in many ranges are described a few ranges at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from barnabas.base.errors import ErrorCode
from barnabas.broker.awaitables import resolve
from barnabas.broker.server.handlers.describe_share_partitions import MAX_RANGES, describe_share_partitions
from barnabas.broker.server.requests.long_work import LISTED_AT_ONCE
from barnabas.broker.server.share_requests import SharePorts
from barnabas.broker.sharing.in_flight import ACCEPT, Acknowledgement, InFlight, Limits, ReadBatch
from barnabas.kafka.protocol.messages.describe_share_partitions import (
    DescribeSharePartitionsRequest,
    PartitionRequest,
    TopicRequest,
)

RECORDS = 3 * LISTED_AT_ONCE


class Queue:
    """A share partition that this broker leads, with one range for each record."""

    def __init__(self):
        self.described = 0
        self.in_flight = InFlight(0, Limits(record_locks=RECORDS))
        for offset in range(RECORDS):
            self.in_flight.acquire("a", offset, [ReadBatch(offset, offset)], until=9.0, max_records=1)

    def lock_ms_left(self, locked):
        self.described += 1
        return 1

    def accept(self, first, last):
        self.in_flight.acknowledge("a", [Acknowledgement(first, last, [ACCEPT])], 9.0)
        self.in_flight.begin_write()
        self.in_flight.written()


class Turns:
    """Runs each step in a turn of its own, and calls `between` after each turn."""

    def __init__(self, between):
        self._between = between

    async def finish(self, steps):
        self._between()
        for _ in steps:
            self._between()


class Led:
    """Returns the only share partition, under each index."""

    def __init__(self, queue):
        self._queue = queue

    def find_in_use(self, group, topic, index):
        return self._queue


def described(
    queue, between=lambda: None, partitions=(0,), first_offset=0, limit=MAX_RANGES, is_allowed=True
):
    """Return what the API tells of the partitions, and call `between` after each turn."""
    ports = SharePorts(Led(queue), None, Turns(between), None)
    context = SimpleNamespace(access=SimpleNamespace(on_topic=lambda operation, name: is_allowed))
    asked = [PartitionRequest(partition_index=each, first_offset=first_offset) for each in partitions]
    topics = [TopicRequest(name="t", partitions=asked)]
    request = DescribeSharePartitionsRequest(group_id="g", topics=topics, response_range_limit=limit)

    async def answered():
        return await resolve(describe_share_partitions.handle(ports, context, request))

    return asyncio.run(answered()).topics[0].partitions


def test_one_turn_describes_a_few_ranges():
    queue, turns = Queue(), []
    (answer,) = described(queue, lambda: turns.append(queue.described))
    assert len(answer.state_batches) == RECORDS
    assert max(now - before for before, now in zip([0, *turns], turns, strict=False)) <= LISTED_AT_ONCE


def test_ranges_that_change_between_two_turns_are_told_once():
    queue = Queue()

    def change():
        start = queue.in_flight.start
        if start == 0:
            queue.accept(LISTED_AT_ONCE - 10, LISTED_AT_ONCE + 10)
            queue.accept(0, 5)

    (answer,) = described(queue, change)
    assert (answer.start_offset, answer.end_offset) == (0, RECORDS)
    position = 0
    for each in answer.state_batches:
        assert each.first_offset == position
        position = each.last_offset + 1
    assert position == RECORDS


def test_ranges_that_end_between_two_turns_are_left_out():
    queue = Queue()
    (answer,) = described(queue, lambda: queue.in_flight.start_moved(RECORDS - 1))
    assert (answer.start_offset, answer.end_offset) == (0, RECORDS)
    assert len(answer.state_batches) == LISTED_AT_ONCE + 1
    assert answer.state_batches[-1].first_offset == RECORDS - 1


def test_a_partition_that_a_request_repeats_is_described_once():
    (answer,) = described(Queue(), partitions=[7] * 60)
    assert answer.partition_index == 7


def test_a_response_has_no_more_ranges_than_the_broker_allows():
    answers = described(Queue(), partitions=range(4), limit=2**31 - 1)
    assert [len(each.state_batches) for each in answers] == [RECORDS, MAX_RANGES - RECORDS]
    assert [each.next_offset for each in answers] == [-1, MAX_RANGES - RECORDS]


def test_a_response_has_no_more_ranges_than_the_request_allows():
    (answer,) = described(Queue(), partitions=range(4), limit=7)
    assert (answer.partition_index, len(answer.state_batches), answer.next_offset) == (0, 7, 7)


def test_the_limit_allows_at_least_one_range():
    for limit in (0, -1):
        (answer,) = described(Queue(), limit=limit)
        assert (len(answer.state_batches), answer.next_offset) == (1, 1)


def test_the_pages_of_a_partition_tell_each_range_once():
    queue, told, offset = Queue(), [], 0
    while offset >= 0:
        (answer,) = described(queue, first_offset=offset, limit=700)
        assert (answer.start_offset, answer.end_offset) == (0, RECORDS)
        told += [each.first_offset for each in answer.state_batches]
        offset = answer.next_offset
    assert told == list(range(RECORDS))


def test_a_page_that_begins_after_the_last_range_is_the_last_one():
    for offset in (RECORDS, 2**62):
        (answer,) = described(Queue(), first_offset=offset)
        assert (answer.state_batches, answer.next_offset) == ([], -1)


def test_a_page_begins_at_the_start_offset_if_records_ended_since_the_last_page():
    queue = Queue()
    queue.in_flight.start_moved(900)
    (answer,) = described(queue, first_offset=700, limit=1)
    assert (answer.start_offset, answer.state_batches[0].first_offset, answer.next_offset) == (900, 900, 901)


def test_a_full_response_leaves_out_the_partitions_that_it_did_not_reach():
    answers = described(Queue(), partitions=range(3), limit=RECORDS)
    assert [(each.partition_index, each.next_offset) for each in answers] == [(0, -1)]


def test_a_topic_that_the_client_may_not_describe_is_an_error():
    answers = described(Queue(), partitions=range(2), is_allowed=False)
    assert [each.error_code for each in answers] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert not any(each.state_batches for each in answers)
