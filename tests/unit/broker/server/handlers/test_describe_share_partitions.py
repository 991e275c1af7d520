"""Records in flight in many ranges are described a few ranges at a time."""

from __future__ import annotations

import asyncio

from barnabas.broker.server.handlers.describe_share_partitions import describe_share_partitions
from barnabas.broker.server.requests.long_work import LISTED_AT_ONCE
from barnabas.broker.server.share_requests import SharePorts
from barnabas.broker.sharing.in_flight import ACCEPT, Acknowledgement, InFlight, Limits, ReadBatch
from barnabas.kafka.protocol.messages.describe_share_partitions import (
    DescribeSharePartitionsRequest,
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


def described(queue, between, partitions=(0,)):
    """Return what the API tells of the partitions, and call `between` after each turn."""
    ports = SharePorts(Led(queue), None, Turns(between), None)
    topics = [TopicRequest(name="t", partition_indexes=list(partitions))]
    request = DescribeSharePartitionsRequest(group_id="g", topics=topics)

    async def answered():
        return await describe_share_partitions.handle(ports, None, request)

    return asyncio.run(answered()).topics[0].partitions


def test_one_turn_describes_a_few_ranges():
    queue, turns = Queue(), []
    answers = described(queue, lambda: turns.append(queue.described), partitions=range(4))
    assert [len(each.state_batches) for each in answers] == [RECORDS] * 4
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
    (answer,) = described(Queue(), lambda: None, partitions=[7] * 60)
    assert answer.partition_index == 7
