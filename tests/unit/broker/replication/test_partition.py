"""A partition on its leader: epochs, in-sync replicas, acknowledgements, pending fsyncs."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest
from simulation.blocking import VirtualThreads
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from simulation.virtual_time import run_virtual

from barnabas.base.environment.blocking import Threads
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.acknowledgement import Acknowledgement, Appended
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.storage import OpenFiles, Origin, log_files
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.kafka.records import Record, encode_batch

ME, OTHER = 1, 2
BATCH = encode_batch([Record(None, b"v", timestamp=1_700_000_000_000)])


class Waiter:
    def __init__(self):
        self.woken = 0
        self.new_bytes = 0

    def progressed(self, new_bytes):
        self.woken += 1
        self.new_bytes += new_bytes


class WatchedPartition(Partition):
    """Counts the requests for a flush of the partition. Has its disk."""

    __slots__ = ("disk", "due")


@pytest.fixture
def open_partition():
    def make(state=None, *, flush_every=None, **settings):
        disk = FaultyDisk()
        directory = LogDirectory.open(
            OpenFiles(disk),
            "/data",
            simulated_environment(clock=ManualClock()),
            cluster_id="c",
            node_id=ME,
        )
        log = directory.create(TopicPartition("t", 0), bytes(range(16)), TopicConfig(**settings))
        due = []
        partition = WatchedPartition(
            log, state or led_by(ME), ME, flush_every=flush_every, on_flush_due=due.append
        )
        partition.due = due
        partition.disk = disk
        return partition

    return make


def led_by(leader, *, epoch=0, isr=(ME,), replicas=None):
    return PartitionState(replicas or isr, isr=isr, leader=leader, leader_epoch=epoch)


def refused(code, call):
    with pytest.raises(KafkaError) as error:
        call()
    assert error.value.code is code


def append(partition, acks=ACKS_ALL):
    return partition.append(BATCH, acks, Origin.CLIENT)


def test_alone_what_is_appended_is_committed_at_once(open_partition):
    partition = open_partition()
    waiter = Waiter()
    partition.watchers[waiter] = None
    info = append(partition)
    assert partition.log.high_watermark == 1
    assert partition.is_acknowledged(info.last_offset, ACKS_ALL)
    assert (waiter.woken, waiter.new_bytes) == (1, len(BATCH))


def test_a_duplicate_is_not_counted_twice(open_partition):
    partition = open_partition()
    batch = encode_batch([Record(None, b"v", timestamp=0)], producer_id=1, producer_epoch=0, base_sequence=0)
    waiter = Waiter()
    partition.watchers[waiter] = None
    first = partition.append(batch, ACKS_ALL, Origin.CLIENT)
    again = partition.append(batch, ACKS_ALL, Origin.CLIENT)
    assert (first.base_offset, again.base_offset, again.duplicate) == (0, 0, True)
    assert waiter.new_bytes == len(batch)


def test_watchers_hear_that_the_start_of_the_log_has_moved(open_partition):
    partition = open_partition()
    append(partition)
    waiter = Waiter()
    partition.watchers[waiter] = None
    assert partition.log.advance_log_start(1)
    assert (waiter.woken, waiter.new_bytes) == (1, 0)


def test_only_the_leader_takes_records(open_partition):
    partition = open_partition(led_by(OTHER, isr=(ME, OTHER)))
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: append(partition))
    assert partition.log.log_end_offset == 0


def test_the_clients_epoch_must_be_the_leaders(open_partition):
    partition = open_partition(led_by(ME, epoch=5))
    partition.check_leader()
    partition.check_leader(5)
    refused(ErrorCode.FENCED_LEADER_EPOCH, lambda: partition.check_leader(4))
    refused(ErrorCode.UNKNOWN_LEADER_EPOCH, lambda: partition.check_leader(6))


def test_acks_all_is_refused_when_too_few_are_in_sync(open_partition):
    partition = open_partition(led_by(ME, isr=(ME,), replicas=(ME, OTHER)), min_insync_replicas=2)
    refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: append(partition))
    assert append(partition, acks=1).base_offset == 0


def test_an_older_state_changes_nothing_and_a_newer_wakes_who_waits(open_partition):
    partition = open_partition(led_by(ME, epoch=3))
    waiter = Waiter()
    partition.watchers[waiter] = None
    partition.update(led_by(OTHER, epoch=2))
    assert partition.is_leader
    assert waiter.woken == 0
    partition.update(led_by(OTHER, epoch=4))
    assert not partition.is_leader
    assert waiter.woken == 1


def test_retention_that_seals_the_active_segment_has_it_and_the_epoch_fsynced(open_partition):
    partition = open_partition(retention_bytes=0)
    append(partition)
    delete_old_segments(partition.log, 0)
    assert partition.log.log_start_offset == partition.log.log_end_offset == 1
    assert partition.due == [partition]


def test_records_due_for_an_fsync_count_when_it_is_done(open_partition):
    async def main():
        partition = open_partition(flush_every=1)
        info = append(partition)
        assert partition.due == [partition]
        assert partition.log.high_watermark == 0
        assert [partition.is_acknowledged(info.last_offset, acks) for acks in (0, 1, -1)] == [
            True,
            False,
            False,
        ]
        pool = Threads().pool("disk", 1)
        await partition.flush(pool)
        await pool.close()
        assert partition.log.high_watermark == 1
        assert partition.is_acknowledged(info.last_offset, 1)

    asyncio.run(main())


def test_a_flush_of_many_sealed_segments_asks_for_the_next_one_until_all_are_on_disk(
    open_partition, monkeypatch
):
    async def main():
        monkeypatch.setattr(log_files, "SEGMENTS_A_FLUSH", 3)
        partition = open_partition(segment_bytes=len(BATCH))
        for _ in range(8):
            append(partition)
        pool = Threads().pool("disk", 4)
        points = []
        while partition.due:
            partition.due.clear()
            await partition.flush(pool)
            points.append(partition.log.recovery_point)
        await pool.close()
        assert points == [3, 6, 8]

    asyncio.run(main())


@pytest.mark.parametrize("sealed", [0, 2])
def test_a_partition_opened_with_sealed_segments_that_are_not_on_disk_asks_for_a_flush(
    open_partition, sealed
):
    log = open_partition(segment_bytes=len(BATCH)).log
    for _ in range(sealed + 1):
        log.append_as_leader(BATCH, 0)
    due = []
    partition = WatchedPartition(log, led_by(ME), ME, flush_every=None, on_flush_due=due.append)
    assert due == ([partition] if sealed else [])


def test_a_log_that_has_moved_is_flushed_although_no_record_requires_it(open_partition):
    """A truncation waits for this flush."""
    partition, copy = open_partition(), open_partition()
    for each in (partition, copy):
        append(each)
    partition.log.switch_files(copy.log)
    partition.flush_if_due()
    assert partition.due == [partition]
    partition.log.flush()
    partition.flush_if_due()
    assert partition.due == [partition]


@pytest.mark.parametrize("failing", [0, 6])
def test_an_fsync_that_fails_in_one_of_several_threads_takes_the_log_offline(open_partition, failing):
    async def main():
        partition = open_partition(segment_bytes=len(BATCH))
        for _ in range(8):
            append(partition)
        synced = []

        def refuse(operation, path):
            if operation == "sync":
                synced.append(path)
                return OSError(errno.EIO, "no") if len(synced) == failing + 1 else None
            return None

        partition.disk.refuse = refuse
        pool = Threads().pool("disk", 4)
        await partition.flush(pool)
        await pool.close()
        assert partition.log.is_offline
        assert partition.log.recovery_point == 0

    asyncio.run(main())


def test_an_fsync_that_comes_after_the_log_was_closed_is_no_failure(open_partition, caplog):
    async def main():
        partition = open_partition(flush_every=1)
        append(partition)
        partition.log.close()
        pool = Threads().pool("disk", 1)
        await partition.flush(pool)
        await pool.close()

    asyncio.run(main())
    assert caplog.text == ""


def test_flush_messages_asks_for_an_fsync_every_so_many_records(open_partition):
    partition = open_partition(flush_messages=3)
    assert [partition.is_acknowledged(append(partition).last_offset, 1) for _ in range(3)] == [
        True,
        True,
        False,
    ]
    assert partition.due == [partition]
    assert partition.log.high_watermark == 2


def test_flush_ms_asks_for_an_fsync_in_time_and_holds_nobody_up(open_partition):
    async def main():
        partition = open_partition(flush_ms=200)
        assert partition.is_acknowledged(append(partition).last_offset, ACKS_ALL)
        append(partition)
        assert partition.due == []
        await asyncio.sleep(0.25)
        assert partition.due == [partition]

    run_virtual(main())


def test_epochs_without_records_end_where_the_last_one_with_records_ended(open_partition):
    partition = open_partition(led_by(ME, epoch=2))
    append(partition)
    append(partition)
    partition.update(led_by(ME, epoch=5))
    ends = {epoch: partition.end_offset_for_epoch(epoch) for epoch in range(1, 7)}
    assert ends == {1: (1, 0), 2: (2, 2), 3: (2, 2), 4: (2, 2), 5: (5, 2), 6: (-1, -1)}
    append(partition)
    assert partition.end_offset_for_epoch(4) == (2, 2)
    assert partition.end_offset_for_epoch(5) == (5, 3)


def test_a_log_without_epochs_ends_an_earlier_epoch_where_the_leader_began(open_partition):
    """Kafka answers the same, because a new leader adds its own epoch to the epochs of its log."""
    partition = open_partition(led_by(ME, epoch=5))
    ends = {epoch: partition.end_offset_for_epoch(epoch) for epoch in (-1, 0, 4, 5, 6)}
    assert ends == {-1: (-1, -1), 0: (0, 0), 4: (4, 0), 5: (5, 0), 6: (-1, -1)}
    append(partition)
    assert [partition.end_offset_for_epoch(epoch) for epoch in (0, 4, 5)] == [(0, 0), (4, 0), (5, 1)]


def wait_for_all(partition, info, timeout_ms=1000):
    failures = []
    appended = Appended(partition, info.last_offset, partition.leader_epoch, failures.append)
    return Acknowledgement([appended], ACKS_ALL, failures).wait(timeout_ms).future


def test_an_acknowledgement_that_does_not_come_in_time_is_a_timeout(open_partition):
    async def main():
        partition = open_partition(flush_every=1)
        failures = await wait_for_all(partition, append(partition))
        assert [error.code for error in failures] == [ErrorCode.REQUEST_TIMED_OUT]
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)

    run_virtual(main())


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (lambda p: p.update(led_by(OTHER, epoch=1)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda p: p.close(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_losing_the_partition_ends_the_wait_for_an_acknowledgement(open_partition, event, code):
    async def main():
        partition = open_partition(flush_every=1)
        future = wait_for_all(partition, append(partition))
        event(partition)
        assert [error.code for error in await future] == [code]
        assert asyncio.get_running_loop().time() == 0

    run_virtual(main())


@pytest.mark.parametrize(("error", "is_refused"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_an_fsync_that_fails_ends_writing_only_when_the_log_is_offline(open_partition, error, is_refused):
    async def main():
        partition = open_partition(flush_every=1)
        append(partition)

        def refuse(operation, path):
            return OSError(error, "no") if operation == "sync" else None

        partition.disk.refuse = refuse
        pool = Threads().pool("disk", 1)
        await partition.flush(pool)
        assert (partition.unwritable is not None) is is_refused
        assert partition.log.high_watermark == 0
        partition.disk.refuse = None
        await partition.flush(pool)
        await pool.close()
        assert partition.log.high_watermark == (0 if is_refused else 1)

    asyncio.run(main())


def test_an_fsync_that_fails_on_a_full_disk_is_tried_again_soon_although_flush_ms_is_long(open_partition):
    async def main():
        partition = open_partition(flush_messages=2, flush_ms=3_600_000)
        append(partition)
        append(partition)
        pool = VirtualThreads(Random(1), 0.0001).pool("disk", 1)
        partition.disk.refuse = lambda operation, path: OSError(errno.ENOSPC, "no space left")
        await partition.flush(pool)
        partition.due.clear()
        await asyncio.sleep(1)
        assert partition.due == [partition]
        await pool.close()

    run_virtual(main())
