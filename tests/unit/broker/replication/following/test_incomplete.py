"""Replicas that lack records in the middle: they start empty before their leader counts them."""

from __future__ import annotations

import errno

import pytest

from barnabas.base.types import TopicPartition
from barnabas.broker.storage.incomplete import Mark, read_mark
from barnabas.broker.storage.truncation import truncate_fully_and_start_at
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import placed

P0 = TopicPartition("t", 0)


def with_holes(node, *offsets):
    """Keep only these batches of a follower's log, as after a repair."""
    log = node.directory.logs.get(P0) or node.directory.create(P0, bytes(range(16)), node._topic_config)
    for offset in offsets:
        batch = encode_batch([Record(None, b"old", timestamp=0)])
        log.append_as_follower(b"".join(map(bytes, placed(batch, offset, 0))), 0)
    log.advance_high_watermark(log.log_end_offset)
    node.incomplete.note(P0, log.topic_id, Mark("it was repaired"), log)


def told(requests):
    """Return the offsets from which a follower has fetched."""
    return [
        partition.fetch_offset
        for request in requests
        for topic in request.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("start", [0, 3])
def test_a_log_with_holes_is_copied_again_from_the_leaders_start(scenario, start):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, only=[leader], isr=(1,))
        for number in range(6):
            leader.produce(b"%d" % number)
        leader.log.advance_log_start(start)
        with_holes(follower, 0, 5)
        cluster.elect(1, 0, only=[follower], isr=(1,))
        await cluster.settle()
        assert follower.content() == [(offset, 0) for offset in range(start, 6)]
        assert told(cluster.fetches(follower))[0] == 0, "the leader hears of no offset that was not copied"
        assert follower.log.log_start_offset == start
        assert read_mark(follower.disk, "/data/t-0").is_emptied
        assert leader.partition().state.isr == (1,)

    scenario(story)


def test_a_disk_that_cannot_take_the_new_beginning_keeps_the_log_from_being_copied_to(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, only=[leader], isr=(1,))
        for number in range(6):
            leader.produce(b"%d" % number)
        with_holes(follower, 0, 5)
        full = OSError(errno.ENOSPC, "the disk is full")
        follower.disk.refuse = lambda operation, path: (
            full if operation == "write" and "barnabas-incomplete" in path else None
        )
        cluster.elect(1, 0, only=[follower], isr=(1,))
        await cluster.settle()
        assert cluster.fetches(follower) == []
        follower.disk.refuse = lambda operation, path: None
        await cluster.settle(5.0)
        assert follower.content() == [(offset, 0) for offset in range(6)]

    scenario(story)


def test_a_leader_that_changes_meanwhile_hears_of_no_earlier_offset_either(scenario):
    async def story(cluster):
        first, second, follower = cluster.add(1, 2, 3)
        cluster.elect(1, 0, only=[first, second], isr=(1, 2))
        for number in range(6):
            first.produce(b"%d" % number)
        await cluster.settle()
        with_holes(follower, 0, 5)
        cluster.elect(1, 0, only=[follower], isr=(1, 2))
        cluster.elect(2, 1, isr=(1, 2))  # before the disk has answered
        await cluster.settle()
        assert set(told(cluster.fetches(follower))) <= {0, 6}
        assert follower.content() == [(offset, 0) for offset in range(6)]

    scenario(story)


def test_an_incomplete_replica_that_was_emptied_goes_on_with_what_it_has_copied(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, only=[leader], isr=(1,))
        for number in range(6):
            leader.produce(b"%d" % number)
        log = follower.directory.create(P0, bytes(range(16)), follower._topic_config)
        follower.incomplete.note(P0, log.topic_id, Mark("it was discarded", is_emptied=True), log)
        for offset in range(3):
            batch = encode_batch([Record(None, b"%d" % offset, timestamp=0)])
            log.append_as_follower(b"".join(map(bytes, placed(batch, offset, 0))), 0)
        cluster.elect(1, 0, only=[follower], isr=(1,))
        await cluster.settle()
        assert told(cluster.fetches(follower))[0] == 3
        assert follower.content() == [(offset, 0) for offset in range(6)]

    scenario(story)


def test_a_log_that_lost_its_beginning_is_copied_from_the_leaders_start_and_not_from_its_own(scenario):
    """If it led, the others would move their log starts to its own."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, only=[leader], isr=(1,))
        for number in range(6):
            leader.produce(b"%d" % number)
        log = follower.directory.create(P0, bytes(range(16)), follower._topic_config)
        truncate_fully_and_start_at(log, 4)
        with_holes(follower, 4, 5)
        assert log.log_start_offset == 4
        cluster.elect(1, 0, only=[follower], isr=(1,))
        await cluster.settle()
        assert follower.log.log_start_offset == 0
        assert follower.content() == [(offset, 0) for offset in range(6)]

    scenario(story)
