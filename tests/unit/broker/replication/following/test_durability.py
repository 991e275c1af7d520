"""The data on a follower's disk: fsyncs, damage, failures, and changes in the middle."""

from __future__ import annotations

import asyncio
import errno
import logging

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.replication.following.fetcher import _FSYNC_PATIENCE
from barnabas.broker.replication.partition.follower import Follower
from barnabas.broker.storage import segment
from barnabas.broker.storage.damage import read_small_file
from barnabas.broker.storage.epochs import LeaderEpochs


def partition_data(response):
    return [data for topic in response.responses for data in topic.partitions]


def offsets_told(cluster, node, index=0):
    """Return the log ends that a follower has reported since the last call."""
    return [
        partition.fetch_offset
        for fetch in cluster.fetches(node)
        for topic in fetch.topics
        for partition in topic.partitions
        if partition.partition == index
    ]


def test_with_acks_fsync_a_follower_fsyncs_before_it_says_that_it_has_something(scenario):
    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        await cluster.settle()
        cluster.fetches(follower)
        follower.threads.mean_delay = 0.1
        leader.produce(b"a")
        durable = []
        while not (told := offsets_told(cluster, follower)):
            durable.append(follower.log.recovery_point)
            assert leader.log.high_watermark == 0
            await asyncio.sleep(0.001)
        assert durable[-1] in (0, 1)
        assert durable[0] == 0
        assert len(durable) > 20
        assert told == [1]
        assert follower.log.recovery_point == 1

    scenario(story)


def test_what_could_not_be_fsynced_is_never_said_to_be_there(scenario):
    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        await cluster.settle()
        cluster.fetches(follower)

        def refuse(operation, path):
            return OSError(errno.EIO, "the disk is broken", path) if operation == "sync" else None

        follower.disk.refuse = refuse
        leader.produce(b"a")
        await cluster.settle(5)
        assert follower.log.is_offline and follower.log.log_end_offset == 1
        assert 1 not in offsets_told(cluster, follower)
        assert leader.log.high_watermark == 0
        cluster.elect(1, 1)
        await cluster.settle(5)
        assert 1 not in offsets_told(cluster, follower)

    scenario(story)


def test_a_disk_that_hangs_holds_up_its_own_partitions_alone(scenario):
    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2)
        cluster.elect(1, 0)
        cluster.elect(1, 0, index=1)
        await cluster.settle()
        slow = follower.partition(0)
        hanging = asyncio.Event()

        async def hang(disk):
            await hanging.wait()
            await type(slow).flush(slow, disk)

        follower.shared_fsync.add = lambda partition: asyncio.ensure_future(hang(follower.pool))
        slow._flushes._on_due = follower.shared_fsync.add
        slow._flushes._every = 1
        leader.produce(b"a", index=0)
        await asyncio.sleep(_FSYNC_PATIENCE + 0.1)
        cluster.fetches(follower)
        leader.produce(b"b", index=1)
        await asyncio.sleep(0.1)
        assert leader.partition(1).log.high_watermark == 1
        assert leader.partition(0).log.high_watermark == 0
        await asyncio.sleep(5)
        assert len(cluster.fetches(follower)) < 15
        hanging.set()
        await asyncio.sleep(0.1)
        assert leader.partition(0).log.high_watermark == 1

    scenario(story)


def test_damaged_records_are_refused_with_one_line_until_they_come_whole(scenario, caplog):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        cluster.elect(1, 0, index=1)

        def damage(source, target, request, response):
            for data in partition_data(response):
                if data.records and data.partition_index == 0:
                    records = bytearray(data.records)
                    records[-1] ^= 1
                    data.records = bytes(records)

        cluster.alter = damage
        leader.produce(b"a")
        leader.produce(b"b", index=1)
        with caplog.at_level(logging.ERROR):
            await asyncio.sleep(20)
        assert follower.content() == []
        assert follower.content(1) == [(0, 0)]
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith("t-0 cannot be copied from broker 1: CORRUPT_MESSAGE")
        assert len(cluster.fetches(follower)) < 120
        cluster.alter = None
        await cluster.settle()
        assert follower.content() == leader.content()

    scenario(story)


def test_a_log_that_cannot_be_written_is_not_fetched_for_ever(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        cluster.elect(1, 0, index=1)
        await cluster.settle()
        follower.disk.fail_writes = True
        leader.produce(b"a")
        await cluster.settle()
        assert follower.log.is_offline
        follower.partition().refuse_writes(follower.partition().unwritable or ValueError())
        cluster.fetches(follower)
        await cluster.settle(10)
        assert all(not fetch.topics for fetch in cluster.fetches(follower)[2:])

    scenario(story)


def test_a_follower_that_is_elected_while_it_fsyncs_leads_what_it_has_appended(scenario):
    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        await cluster.settle()
        follower.threads.mean_delay = 0.1
        leader.produce(b"a")
        await asyncio.sleep(0.01)
        assert (follower.log.log_end_offset, follower.log.recovery_point) == (1, 0)
        cluster.elect(2, 1, isr=(2,))
        assert follower.log.high_watermark == 0
        await cluster.settle(1.0)
        assert follower.log.high_watermark == 1
        assert leader.content() == follower.content()

    scenario(story)


def test_what_comes_after_a_topic_was_deleted_is_dropped(scenario):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        await cluster.settle()
        letting_go = cluster.hold(follower, leader)
        leader.produce(b"a")
        await asyncio.sleep(0.1)
        partition = follower.partition()
        partition.close(ValueError("deleted"))
        follower.following.partition_changed(partition)
        letting_go.set()
        await cluster.settle()
        assert partition.log.log_end_offset == 0

    scenario(story)


def test_a_truncated_log_is_not_fetched_for_before_the_disk_knows(scenario):
    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        first.produce(b"b")
        first.log.flush()
        cluster.elect(2, 1, isr=(2,))
        second.produce(b"c")
        first.threads.mean_delay = 0.1
        cluster.cut.clear()
        while first.log.log_end_offset == 2:
            await asyncio.sleep(0.001)
        assert first.log.recovery_point == 1
        cluster.fetches(first)
        waited = 0
        while not (told := offsets_told(cluster, first)):
            waited += 1
            await asyncio.sleep(0.001)
        assert first.partition().follower(1).is_durable
        assert waited > 10
        assert told == [1]
        await cluster.settle()
        assert first.content() == second.content()

    scenario(story)


def test_a_leader_epoch_that_the_next_leader_has_not_is_gone_from_the_disk_too(scenario):
    """With this epoch, an emptied log could be the longest one after a crash, and lead."""

    async def story(cluster):
        first, _ = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        first.log.epochs.assign(1, 1)
        first.log.flush()
        cluster.fetches(first)
        cluster.elect(2, 2)
        await cluster.settle()
        assert offsets_told(cluster, first) == [1, 1]
        file = f"{first.log.files.path}/leader-epoch-checkpoint"
        assert LeaderEpochs.decode(read_small_file(first.disk, file)).entries == [(0, 0)]

    scenario(story)


def test_a_new_leader_epoch_does_not_say_what_is_not_fsynced_yet(scenario):
    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        await cluster.settle()
        follower.threads.mean_delay = 0.3
        leader.produce(b"a")
        await asyncio.sleep(0.01)
        assert (follower.log.log_end_offset, follower.log.recovery_point) == (1, 0)
        cluster.fetches(follower)
        cluster.elect(1, 1)
        while not (told := offsets_told(cluster, follower)):
            await asyncio.sleep(0.001)
        assert told == [1]
        assert follower.log.recovery_point == 1

    scenario(story)


def test_a_truncation_that_another_epoch_overtakes_cuts_nothing(scenario):
    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        first.produce(b"b")
        first.log.flush()
        cluster.elect(2, 1, isr=(2,))
        first.threads.mean_delay = 1.0
        cluster.cut.clear()
        while first.log.recovery_point == 2:
            await asyncio.sleep(0.001)
        cluster.elect(1, 2)
        await cluster.settle(10)
        assert first.log.log_end_offset == 2
        assert first.content() == second.content() == [(0, 0), (1, 0)]

    scenario(story)


def test_a_truncation_that_fails_is_tried_again(scenario):
    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        first.produce(b"b")
        first.log.flush()
        cluster.elect(2, 1, isr=(2,))
        second.produce(b"c")
        refused = []

        def refuse(operation, path):
            if operation == "sync" and not refused:
                refused.append(path)
                return OSError(errno.ENOSPC, "no space left", path)
            return None

        first.disk.refuse = refuse
        cluster.cut.clear()
        await cluster.settle(10)
        assert refused
        assert first.content() == second.content() == [(0, 0), (1, 1)]

    scenario(story)


def test_a_leader_commits_although_the_truncation_that_it_overtook_fails(scenario):
    """The truncation lowers the recovery point when the replica leads already. Then the disk is full."""

    async def story(cluster):
        first, second = cluster.add(1, 2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        first.produce(b"b")
        await cluster.settle()
        assert first.log.recovery_point == 2
        cluster.elect(2, 1, isr=(2,))
        second.produce(b"c")

        def refuse(operation, path):
            is_checkpoint = path.endswith("recovery-point-offset-checkpoint.tmp")
            return OSError(errno.ENOSPC, "no space left", path) if is_checkpoint else None

        first.disk.refuse = refuse
        computing = asyncio.Event()
        run = first.pool.run

        async def slow(work, *args):
            if getattr(work, "__qualname__", "") == "Truncation.run":
                computing.set()
                await asyncio.sleep(1.0)
            await run(work, *args)

        first.pool.run = slow
        cluster.cut.remove((1, 2))
        await computing.wait()
        cluster.elect(1, 2)
        await cluster.settle()  # the truncation fails before the other replica has the record
        cluster.cut.clear()
        await cluster.settle(10)
        assert first.content() == second.content() == [(0, 0), (1, 0)]
        assert first.log.high_watermark == 2

    scenario(story)


def test_a_follower_goes_on_when_an_overtaken_truncation_fails_while_it_waits_for_an_fsync(
    scenario, monkeypatch
):
    """The truncation lowers the recovery point between the end of an fsync and the next fetch."""
    overtaken = []
    durable = Follower.durable

    def lower_at_the_end(follower):
        waited = durable(follower)
        if overtaken and not waited.done():
            waited.add_done_callback(overtaken.pop())
        return waited

    monkeypatch.setattr(Follower, "durable", lower_at_the_end)

    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle()

        def lower(_durable):
            follower.log.files.lower_recovery_point(0)
            follower.partition().flush_if_due()

        for epoch in (0, 1):
            if epoch:
                follower.threads.mean_delay = 0.3
            overtaken.append(lower)
            leader.produce(b"b")
            await asyncio.sleep(0.01)
            cluster.elect(1, epoch)
            await cluster.settle(10)
            assert not overtaken
            assert leader.log.high_watermark == follower.log.log_end_offset == 2 + epoch

    scenario(story)


def test_whoever_waits_until_a_log_is_on_disk_has_it_fsynced(scenario):
    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle()
        follower.log.files.lower_recovery_point(0)  # as a truncation does, which then could not be stored
        async with asyncio.timeout(10):
            await follower.partition().follower(0).durable()
        assert follower.log.recovery_point == 1

    scenario(story)


def test_nobody_waits_for_the_fsync_of_a_log_that_accepts_no_more_writes(scenario):
    async def story(cluster):
        (leader,) = cluster.add(1)
        (follower,) = cluster.add(2, barnabas_acks_fsync=True)
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle()
        follower.log.files.lower_recovery_point(0)
        partition = follower.partition()
        partition.refuse_writes(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        async with asyncio.timeout(10):
            await partition.follower(0).durable()

    scenario(story)


def test_other_things_happen_between_the_parts_of_a_large_truncation(scenario, monkeypatch):
    monkeypatch.setattr(segment, "_CUT_AT_ONCE", 200)

    async def story(cluster):
        first, second = cluster.add(1, 2)
        cluster.elect(1, 0)
        first.produce(b"a")
        await cluster.settle()
        cluster.cut |= {(1, 2), (2, 1)}
        for _ in range(12):
            first.produce(b"b" * 50)
        cluster.elect(2, 1, isr=(2,))
        second.produce(b"c")
        loop = asyncio.get_running_loop()
        others, seen = [], []

        def note(operation, path):
            if operation == "truncate" and path.endswith(".log"):
                seen.append(len(others))
                loop.call_soon(others.append, path)

        first.disk.refuse = note
        cluster.cut.clear()
        await cluster.settle(10)
        assert seen == list(range(len(seen)))
        assert len(seen) > 3
        assert first.content() == second.content() == [(0, 0), (1, 1)]

    scenario(story)
