"""Logs that diverge, and how a follower agrees with its leader again: KIP-101, 279, 320, 595."""

from __future__ import annotations

import asyncio
import errno

import pytest

from barnabas.broker.storage.truncation import truncate_fully_and_start_at
from barnabas.kafka.protocol.messages.fetch import EpochEndOffset
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import placed


def partition_data(response):
    return [data for topic in response.responses for data in topic.partitions]


def test_a_restarted_follower_that_is_elected_has_what_it_had_not_seen_committed(scenario):
    """KIP-101, case 1: a follower does not truncate at its own high watermark, which is behind."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"m1")
        await cluster.settle()
        leader.produce(b"m2")
        await asyncio.sleep(0.0021)  # committed; the follower has not heard that it is
        assert (leader.log.high_watermark, follower.log.high_watermark) == (2, 1)
        await leader.crash()
        await follower.crash()
        follower.restart()
        cluster.elect(2, 1, isr=(2,))
        assert follower.content() == [(0, 0), (1, 0)]
        assert follower.log.high_watermark == 2

    scenario(story)


def test_logs_of_one_length_that_differ_are_made_equal(scenario):
    """KIP-101, case 2: both fail, and the follower that lacks a record leads first."""

    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"m1")
        await cluster.settle()
        await second.crash()
        first.produce(b"m2")
        await first.crash()
        second.restart()
        cluster.elect(2, 1, isr=(2,))
        second.produce(b"m3")
        first.restart()
        cluster.elect(2, 1, isr=(2,))
        await cluster.settle()
        assert first.content() == second.content() == [(0, 0), (1, 1)]

    scenario(story)


def test_a_follower_truncates_when_the_same_leader_begins_a_new_epoch(scenario):
    """KAFKA-7164: the leader lost the end of its log and leads again."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        for value in (b"a", b"b", b"c"):
            leader.produce(value)
        await cluster.settle()
        await leader.crash()
        leader.restart(end=1)
        cluster.elect(1, 1)
        leader.produce(b"d")
        await cluster.settle()
        assert follower.content() == leader.content() == [(0, 0), (1, 1)]
        leader.produce(b"e")
        await cluster.settle()
        assert follower.content() == leader.content() == [(0, 0), (1, 1), (2, 1)]

    scenario(story)


def test_a_follower_whose_log_is_damaged_is_not_half_truncated(scenario):
    """The truncation continues when the disk returns the written data. Nothing was truncated meanwhile."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        for value in (b"a", b"b", b"c", b"d"):
            leader.produce(value)
        await cluster.settle()
        file = follower.disk.open("/data/t-0/00000000000000000000.log")
        magic = follower.log.files.segments.active.position_of(1) + 16
        file.write_at([b"\xff"], magic)
        await leader.crash()
        leader.restart(end=3)
        cluster.elect(1, 1)
        leader.produce(b"e")
        await cluster.settle()
        assert follower.log.log_end_offset == 4
        assert not follower.log.is_offline
        file.write_at([b"\x02"], magic)
        await cluster.settle()
        assert follower.content() == leader.content() == [(0, 0), (1, 0), (2, 0), (3, 1)]

    scenario(story)


def test_a_leader_that_leads_again_before_it_has_truncated(scenario):
    """KAFKA-6361: the leader does not know the epoch in which the follower led."""

    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        for value in (b"b", b"c", b"d"):
            first.produce(value)  # which the other one lacks
        cluster.elect(2, 1)
        for value in (b"x", b"y"):
            second.produce(value)
        cluster.elect(1, 2)
        first.produce(b"e")
        cluster.cut.clear()
        await cluster.settle()
        assert second.content() == first.content() == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 2)]

    scenario(story)


def test_logs_that_alternate_in_many_epochs_come_to_agree(scenario):
    """KIP-279: more than one request is needed, because each side has epochs that the other lacks."""

    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"common")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        for epoch in range(1, 9):
            leader = (first, second)[epoch % 2]
            cluster.elect(leader.node_id, epoch)
            for _ in range(epoch % 3 + 1):
                leader.produce(b"own")
        cluster.elect(1, 9)
        first.produce(b"last")
        cluster.cut.clear()
        await cluster.settle()
        assert second.content() == first.content()
        assert second.log.epochs.entries == first.log.epochs.entries

    scenario(story)


def test_a_leader_that_wrote_nothing_in_its_epoch_follows_the_next_one(scenario):
    """It has stored the start of its epoch, which the next leader does not know."""

    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        first.log.epochs.assign(1, 1)
        cluster.elect(1, 1, only=[first])
        cluster.elect(2, 2)
        second.produce(b"b")
        await cluster.settle()
        assert first.content() == second.content() == [(0, 0), (1, 2)]

    scenario(story)


def test_a_leader_that_has_lost_everything_is_followed(scenario):
    """It was elected nevertheless, and knows no epoch."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle()
        await leader.crash()
        leader.restart(end=0)
        cluster.elect(1, 1, isr=(1,))
        await cluster.settle()
        assert (follower.log.log_end_offset, follower.content()) == (0, [])
        leader.produce(b"b")
        await cluster.settle()
        assert follower.content() == leader.content() == [(0, 1)]

    scenario(story)


def test_a_late_reply_of_an_older_epoch_truncates_nothing(scenario):
    """KAFKA-18991."""

    async def story(cluster):
        leader, follower, _ = cluster.add(1, 2, 3)
        cluster.cut.add((3, 1))  # nothing is committed: what is cut off would not be missed by the watermark
        cluster.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        await cluster.settle()
        diverging = []

        def tell_of_a_divergence(source, target, request, response):
            for data in partition_data(response):
                data.diverging_epoch = EpochEndOffset(epoch=0, end_offset=0)
                diverging.append(data)

        cluster.alter = tell_of_a_divergence
        letting_go = cluster.hold(follower, leader)
        leader.produce(b"c")
        await asyncio.sleep(0.1)
        cluster.elect(1, 1)
        letting_go.set()
        await asyncio.sleep(0.0005)
        assert diverging
        cluster.cut.add((2, 1))  # nothing that was cut off is copied again
        await asyncio.sleep(0.2)
        assert follower.log.log_end_offset == 2
        cluster.alter = None
        cluster.cut.discard((2, 1))
        await cluster.settle()
        assert follower.content() == leader.content()

    scenario(story)


def test_a_late_reply_of_another_leader_is_not_appended(scenario):
    async def story(cluster):
        first, second, follower = cluster.add(1, 2, 3)
        cluster.elect(1, 0)
        await cluster.settle(0.7)
        letting_go = cluster.hold(follower, first)
        first.produce(b"lost")
        await asyncio.sleep(0.1)
        cluster.cut.add((2, 1))
        cluster.elect(2, 1, only=[second, follower], isr=(2, 3))
        letting_go.set()
        await asyncio.sleep(0.0005)
        second_end = second.log.log_end_offset
        assert follower.log.log_end_offset <= second_end
        second.produce(b"kept")
        await cluster.settle()
        assert follower.content() == second.content()

    scenario(story)


def test_a_batch_of_a_newer_epoch_is_not_appended(scenario):
    """KAFKA-18723: the follower would store an epoch whose leader it has not asked."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 3)
        foreign = encode_batch([Record(None, b"later", timestamp=0)])

        def send_on(source, target, request, response):
            for data in partition_data(response):
                if data.records:
                    data.records = b"".join(map(bytes, (data.records, *placed(foreign, 1, 4))))

        cluster.alter = send_on
        leader.produce(b"a")
        await cluster.settle()
        assert follower.content() == [(0, 3)]

    scenario(story)


def test_a_reply_that_tells_of_a_divergence_moves_no_watermark(scenario):
    """KAFKA-14704: the follower is about to truncate the records that this watermark would cover."""

    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        for value in (b"b", b"c", b"d"):
            first.produce(value)
        cluster.elect(2, 1, isr=(2,))
        for value in (b"x", b"y", b"z"):
            second.produce(value)
        seen = []
        first.log.listener = _Bounds(first, seen)
        assert second.log.high_watermark == 4
        cluster.cut.clear()
        await cluster.settle()
        assert seen[0] == (1, 1)  # end and watermark, as soon as it was truncated
        assert first.content() == second.content()

    scenario(story)


class _Bounds:
    def __init__(self, node, seen):
        self._node, self._seen = node, seen
        self._listener = node.log.listener

    def bounds_moved(self):
        self._seen.append((self._node.log.log_end_offset, self._node.log.high_watermark))
        self._listener.bounds_moved()


@pytest.mark.parametrize("has_some", [True, False])
def test_a_follower_whose_offset_the_leader_has_deleted_starts_where_the_leaders_log_does(scenario, has_some):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        if has_some:
            leader.produce(b"a")
            await cluster.settle()
        await follower.crash()
        cluster.elect(1, 0, isr=(1,), partition_epoch=1)
        for value in (b"b", b"c", b"d"):
            leader.produce(value)
        leader.log.advance_log_start(leader.log.log_end_offset - 1)
        follower.restart()
        cluster.elect(1, 0, isr=(1,), partition_epoch=1)
        await cluster.settle()
        assert follower.log.log_start_offset == leader.log.log_start_offset
        assert follower.content() == leader.content()
        assert len(follower.content()) == 1
        leader.produce(b"e")
        await cluster.settle()
        assert follower.content() == leader.content()
        assert follower.log.epochs.entries == leader.log.epochs.entries

    scenario(story)


def test_a_log_that_starts_within_a_batch_is_copied(scenario):
    """DeleteRecords can have moved the leader's log start into a batch."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, isr=(1,), only=[leader])
        leader.produce(b"a", b"b", b"c")
        leader.log.advance_log_start(2)
        leader.produce(b"d")
        cluster.elect(1, 0, isr=(1,), only=[follower])
        await cluster.settle()
        assert follower.log.log_start_offset == 2
        assert follower.content() == leader.content() == [(0, 0), (3, 0)]

    scenario(story)


def test_deleted_records_stay_deleted_while_the_batch_that_the_start_lies_in_is_copied(scenario):
    """The next leader may not know yet the new log start, nor that it was committed."""

    async def story(cluster):
        leader, follower, _ = cluster.add(1, 2, 3)
        cluster.elect(1, 0, isr=(1, 2, 3), only=[leader])
        leader.produce(b"a", b"b", b"c")
        assert leader.log.high_watermark == 0
        cluster.elect(1, 0, isr=(1, 2, 3), only=[follower])
        truncate_fully_and_start_at(follower.log, 2)
        await cluster.settle()
        log = follower.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 2, 3)
        assert follower.content() == leader.content()

    scenario(story)


def test_an_empty_log_that_must_wait_for_a_checkpoint_stays_in_sync(scenario):
    """The batch begins before the log's start, so a lower recovery point must be on disk first."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, only=[leader])
        leader.produce(b"a", b"b", b"c")
        cluster.elect(1, 0, only=[follower])
        truncate_fully_and_start_at(follower.log, 2)
        async with follower.directory.checkpoints.lock:  # a thread writes one
            await asyncio.sleep(1)
            assert follower.content() == []
            assert follower.partition().propose() is None
        await cluster.settle()
        assert follower.content() == leader.content() == [(0, 0)]
        assert follower.log.log_start_offset == 2

    scenario(story)


def test_an_empty_log_keeps_its_start_when_a_batch_from_before_it_cannot_be_written(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, isr=(1,), only=[leader])
        leader.produce(b"a", b"b", b"c")
        leader.log.advance_log_start(2)
        cluster.elect(1, 0, isr=(1,), only=[follower])
        truncate_fully_and_start_at(follower.log, 2)

        def refuse(operation, path):
            if operation != "write" or not path.endswith(".log"):
                return None
            cluster.cut |= {(1, 2), (2, 1)}  # else it would be told at once where its leader begins
            return OSError(errno.ENOSPC, "full", path)

        follower.disk.refuse = refuse
        await cluster.settle()
        assert cluster.cut
        assert (follower.log.log_start_offset, follower.log.log_end_offset) == (2, 2)
        follower.disk.refuse = None
        cluster.cut.clear()
        await cluster.settle(10)
        assert (follower.log.log_start_offset, follower.log.log_end_offset) == (2, 3)

    scenario(story)


def test_a_new_replica_begins_at_the_leaders_start(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0, isr=(1,), only=[leader])
        for value in (b"a", b"b", b"c"):
            leader.produce(value)
        leader.log.advance_log_start(1)
        cluster.elect(1, 0, isr=(1,), only=[follower])
        await cluster.settle()
        assert follower.content() == leader.content() == [(1, 0), (2, 0)]

    scenario(story)
