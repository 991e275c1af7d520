"""Reads from the disk by threads."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest
from simulation.blocking import VirtualThreads
from simulation.faulty_disk import FaultyDisk
from simulation.virtual_time import run_virtual

from barnabas.base.environment.blocking import Threads
from barnabas.base.environment.os_filesystem import OsFile, OsFileSystem
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.storage import ColdRead, OpenFiles
from barnabas.broker.storage.open_files import LogFile


class HeldFile(OsFile):
    """A file whose reads in other threads wait until the test releases them."""

    asked = threading.Event()
    let_go = threading.Event()

    def read_at(self, size, position):
        self.asked.set()
        assert self.let_go.wait(60)
        return super().read_at(size, position)


class HeldDisk(OsFileSystem):
    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        descriptor, file._fd = file._fd, -1
        return HeldFile(descriptor)


def cold_file(files, path):
    file = LogFile(files, str(path))
    file.write_at([b"x" * 1000], 0)
    return file


def test_a_cancelled_read_keeps_its_file_open_until_the_thread_is_done_with_it(tmp_path):
    async def scenario():
        HeldFile.asked.clear()
        HeldFile.let_go.clear()
        file = cold_file(OpenFiles(HeldDisk()), tmp_path / "log")
        reads = ColdReads(Threads())
        waiting = asyncio.create_task(reads.warm([ColdRead(file, 100, 0)]))
        await asyncio.to_thread(HeldFile.asked.wait, 20)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        file.close()
        assert file.is_open
        HeldFile.let_go.set()
        await reads._pool.close()
        await asyncio.sleep(0)
        assert not file.is_open

    asyncio.run(scenario())


def test_a_read_that_fails_is_left_to_whoever_reads_again():
    async def scenario():
        disk = FaultyDisk()
        disk.make_directory("/data")
        files = OpenFiles(disk)
        broken, gone = cold_file(files, "/data/broken"), LogFile(files, "/data/gone")
        disk.fail_reads = True
        reads = ColdReads(VirtualThreads(random.Random(1), 0.001))
        await reads.warm([ColdRead(gone, 100, 0), ColdRead(broken, 100, 0)])
        assert not broken.pins

    run_virtual(scenario())


def test_what_is_cold_again_at_once_is_read_all_the_same():
    async def scenario():
        disk = FaultyDisk()
        disk.make_directory("/data")
        file = cold_file(OpenFiles(disk), "/data/log")
        asked = []

        def read(may_wait):
            asked.append(may_wait)
            if not may_wait:
                raise ColdRead(file, 100, 0 if len(asked) == 1 else 100)
            return "read"

        reads = ColdReads(VirtualThreads(random.Random(1), 0.001))
        assert await reads.retry(read, ColdRead(file, 100, 50)) == "read"
        assert asked == [False, False, False, True]

    run_virtual(scenario())


def test_a_stopped_broker_reads_nothing_more():
    async def scenario():
        reads = ColdReads(Threads())
        reads.stop()
        with pytest.raises(asyncio.CancelledError):
            await reads.warm([])

    asyncio.run(scenario())
