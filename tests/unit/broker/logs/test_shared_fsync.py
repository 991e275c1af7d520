"""Fsyncs that several requests share."""

from __future__ import annotations

import asyncio
import threading

from barnabas.base.environment.blocking import Threads
from barnabas.broker.logs import shared_fsync
from barnabas.broker.logs.shared_fsync import FsyncsByDirectory, SharedFsync


class Partition:
    topic_partition = "t-0"

    def __init__(self, error=None, log_dir="/a"):
        self.log_dir = log_dir
        self.flushes = 0
        self.gate = asyncio.Event()
        self._error = error

    async def flush(self, _executor):
        self.flushes += 1
        await self.gate.wait()
        if self._error is not None:
            raise self._error


def no_move(partition):
    raise AssertionError(f"{partition} has not moved")


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_comes_during_a_round_is_one_round_more():
    async def scenario():
        commit, partition = SharedFsync("/a", None, no_move), Partition()
        commit.add(partition)
        await turns()
        for _ in range(10):
            commit.add(partition)
        assert partition.flushes == 1
        partition.gate.set()
        await commit.stop()
        assert partition.flushes == 2
        commit.add(partition)
        await commit.stop()
        assert partition.flushes == 3

    asyncio.run(scenario())


def test_partition_whose_flush_has_a_bug_does_not_keep_the_others_from_theirs(caplog):
    async def scenario():
        commit, broken, sound = SharedFsync("/a", None, no_move), Partition(RuntimeError("bug")), Partition()
        for partition in (broken, sound):
            partition.gate.set()
            commit.add(partition)
        await commit.stop()
        assert (broken.flushes, sound.flushes) == (1, 1)
        commit.add(sound)
        await commit.stop()
        assert sound.flushes == 2

    asyncio.run(scenario())
    assert "t-0" in caplog.text


def test_no_more_partitions_are_flushed_at_once_than_may_hold_their_files_open(monkeypatch):
    monkeypatch.setattr(shared_fsync, "_AT_ONCE", 3)

    async def scenario():
        commit, partitions = SharedFsync("/a", None, no_move), [Partition() for _ in range(7)]
        for partition in partitions:
            commit.add(partition)
        await turns()
        assert [partition.flushes for partition in partitions] == [1, 1, 1, 0, 0, 0, 0]
        for partition in partitions:
            partition.gate.set()
        await commit.stop()
        assert [partition.flushes for partition in partitions] == [1] * 7

    asyncio.run(scenario())


def test_log_that_moves_while_it_waits_is_flushed_in_its_new_directory_alone():
    """A log has one flush at a time: two rounds would flush it at once."""

    async def scenario():
        fsyncs = FsyncsByDirectory(Threads())
        hanging, moving = Partition(), Partition()
        fsyncs.add(hanging)
        await turns()
        fsyncs.add(moving)  # the next round of /a
        moving.log_dir = "/b"
        fsyncs.add(moving)
        await turns()
        assert moving.flushes == 1
        hanging.gate.set()
        await turns()
        assert moving.flushes == 1
        moving.gate.set()
        await fsyncs.stop()
        assert moving.flushes == 2

    asyncio.run(scenario())


class OnDisk(Partition):
    """A partition whose fsync holds a thread until its gate opens."""

    def __init__(self, log_dir):
        super().__init__(log_dir=log_dir)
        self.opened = threading.Event()

    async def flush(self, disk):
        self.flushes += 1
        await disk.run(self.opened.wait)
        self.gate.set()


def test_logs_do_not_wait_for_the_hanging_disk_of_another_directory():
    async def scenario():
        fsyncs = FsyncsByDirectory(Threads())
        hanging, healthy = [OnDisk("/a") for _ in range(10)], OnDisk("/b")
        healthy.opened.set()
        for partition in (*hanging, healthy):
            fsyncs.add(partition)
        try:
            await asyncio.wait_for(healthy.gate.wait(), 5)
            healthy.gate.clear()
            fsyncs.add(healthy)
            await asyncio.wait_for(healthy.gate.wait(), 5)
            assert not any(partition.gate.is_set() for partition in hanging)
        finally:
            for partition in hanging:
                partition.opened.set()
            await fsyncs.stop()
        assert all(partition.gate.is_set() for partition in hanging)
        fsyncs.add(healthy)  # a timer can request it
        assert healthy.flushes == 2

    asyncio.run(scenario())
