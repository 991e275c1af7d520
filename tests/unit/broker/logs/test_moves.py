"""Moves of logs from one log directory to another, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import errno
import random
from contextlib import suppress
from types import SimpleNamespace

import pytest
from simulation.blocking import VirtualPool
from simulation.clocks import VirtualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk, PowerCut
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs import manager as manager_module
from barnabas.broker.logs.cleaner import LogCleaner
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.logs.moves import LogMoves
from barnabas.broker.storage.checkpoints import CLEANED
from barnabas.broker.storage.incomplete import Mark
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.truncation import (
    Truncation,
    begin_truncation,
    truncate_fully_and_start_at,
    truncate_to,
)
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.batch import batches
from barnabas.kafka.records.builder import batch_payload
from barnabas.kafka.records.record import decode_records

T0 = TopicPartition("t", 0)
ID = b"t" * 16
CONFIG = TopicConfig(segment_bytes=400, file_delete_delay_ms=1000)


class Bench:
    """A broker's logs in /a and /b, or in `log_dirs`. The log of T0 is in /a at first."""

    def __init__(self, disk=None, log_dirs=("/a", "/b"), **settings):
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.disk = disk or FaultyDisk()
        config = BrokerConfig(node_id=1, log_dirs=log_dirs, **settings)
        self.environment = environment = simulated_environment(clock=self.clock, filesystem=self.disk)
        self.pool = environment.blocking.pool("disk", 2)
        self.logs = LogManager(config, environment, self.pool, lambda path: None)
        self.logs.open("c")
        self.flushed = []
        self.moves = LogMoves(view_of(config=config), self.logs, environment, self.flushed.append)

    async def load(self, hosted=True):
        await self.logs.load({T0: ID} if hosted else {}, lambda _: CONFIG)
        self.moves.start()

    @property
    def log(self):
        return self.logs.get(T0)

    def create(self, records=0):
        self.logs.create(T0, ID, CONFIG)
        self.append(records)

    def append(self, count, epoch=0):
        for _ in range(count):
            number = self.log.log_end_offset
            record = Record(None, b"%d-%d" % (epoch, number), self.clock.now_ms())
            self.log.append_as_leader(encode_batch([record]), epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)

    async def drop_expired(self):
        for directory in self.logs.directories:
            await self.logs.drop_expired(directory)

    def values(self):
        return values(self.log)

    def check(self):
        """Check the state of the log that is not in its records."""
        assert not self.log.is_offline

    @property
    def place(self):
        return self.logs.directory_of(T0).path

    def folders(self, path):
        return [entry.name for entry in self.disk.entries(path) if entry.is_directory]

    async def until(self, condition):
        for _ in range(10_000):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never happens")

    async def moved(self, path="/b"):
        await self.until(lambda: self.place == path and not self.log.is_held)

    async def stop(self):
        await self.moves.stop()
        await self.logs.stop()


def values(log):
    return [(header.base_offset, header.leader_epoch) for header, _ in found_batches(log)]


def found_batches(log):
    """Yield the header and bytes of each batch in the log."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(bytes(chunk) for chunk in log.read(offset, 1000, log.log_end_offset).chunks)
        found = [(header, data[at : at + header.size]) for at, header in batches(data)]
        if not found:
            return
        yield from found
        offset = found[-1][0].next_offset


@pytest.fixture
def play():
    def run(scenario, **settings):
        async def main():
            bench = Bench(**settings)
            await bench.load(hosted=False)
            await scenario(bench)

        run_virtual(main())

    return run


def test_a_log_moves_with_everything_in_it_and_its_old_files_go(play):
    async def scenario(bench):
        bench.create(20)
        before = bench.values()
        bench.moves.begin(T0, "/b")
        assert bench.logs.copy_of(T0).path == "/b"
        await bench.moved()
        assert bench.values() == before
        bench.append(5)
        assert len(bench.values()) == 25
        await asyncio.sleep(2)
        assert (bench.folders("/a"), bench.folders("/b")) == ([], ["t-0"])
        assert bench.flushed == [T0]
        await bench.stop()

    play(scenario)


def test_an_empty_log_moves_and_goes_on_where_it_was(play):
    async def scenario(bench):
        bench.create()
        bench.moves.begin(T0, "/b")
        async with asyncio.timeout(60):
            await bench.moved()
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (0, 0)
        bench.append(2)
        assert bench.values() == [(0, 0), (1, 0)]
        await bench.stop()

    play(scenario)


def test_a_log_that_was_emptied_moves_and_keeps_its_offsets(play):
    async def scenario(bench):
        bench.create(records=5)
        bench.moves.begin(T0, "/b")
        await asyncio.sleep(0)
        truncate_fully_and_start_at(bench.log, 3)
        async with asyncio.timeout(60):
            await bench.moved()
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (3, 3)
        await bench.stop()

    play(scenario)


def test_what_is_appended_and_cut_off_meanwhile_is_in_the_copy_or_not(play):
    async def scenario(bench):
        bench.create(30)
        bench.moves.begin(T0, "/b")
        for epoch in range(1, 20):
            await asyncio.sleep(0.001)
            bench.log.high_watermark = max(0, bench.log.log_end_offset - 3)
            if bench.place == "/a":
                truncate_to(bench.log, bench.log.log_end_offset - 2)
            bench.append(3, epoch)
        await bench.moved()
        expected = bench.values()
        assert expected[-1] == (bench.log.log_end_offset - 1, 19)
        await bench.stop()
        again = Bench(bench.disk)
        await again.load()
        assert (again.place, again.values()) == ("/b", expected)
        await again.stop()

    play(scenario)


def test_a_log_start_within_the_copied_part_stays(play):
    async def scenario(bench):
        bench.create(20)
        await bench.logs.checkpoints.store_log_starts(bench.logs.directory_of(T0), [(bench.log, 13)])
        bench.log.advance_log_start(13)
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.disk.crash(random.Random(1))
        again = Bench(bench.disk)
        await again.load()
        assert (again.place, again.log.log_start_offset, again.log.log_end_offset) == ("/b", 13, 20)
        await again.stop()

    play(scenario)


def test_a_log_start_that_advances_at_the_end_of_the_copying_stays(play):
    async def scenario(bench):
        bench.create(20)
        fsync = bench.moves._fsync

        async def fsync_and_delete(future):
            await fsync(future)
            if bench.log.is_held and bench.place == "/a" and bench.log.log_start_offset < 13:
                await bench.logs.checkpoints.store_log_starts(bench.logs.directory_of(T0), [(bench.log, 13)])
                bench.log.advance_log_start(13)

        bench.moves._fsync = fsync_and_delete
        bench.moves.begin(T0, "/b")
        await bench.moved()
        assert bench.log.log_start_offset == 13
        bench.disk.crash(random.Random(1))
        again = Bench(bench.disk)
        await again.load()
        assert (again.place, again.log.log_start_offset, again.log.log_end_offset) == ("/b", 13, 20)
        await again.stop()

    play(scenario)


@pytest.mark.parametrize("start", [13, 20])
def test_deleted_records_do_not_come_back_with_the_old_files_of_a_moved_log(play, start):
    async def scenario(bench):
        bench.create(20)
        bench.disk.refuse = lambda operation, path: (
            OSError(16, "busy") if operation == "rename" and path == "/a/t-0" else None
        )
        bench.moves.begin(T0, "/b")
        await bench.moved()
        await bench.logs.checkpoints.store_log_starts(bench.logs.directory_of(T0), [(bench.log, start)])
        bench.log.advance_log_start(start)
        await bench.stop()
        bench.disk.refuse = None
        again = Bench(bench.disk)
        await again.load()
        assert (again.place, again.log.log_start_offset, again.log.log_end_offset) == ("/b", start, 20)
        await asyncio.sleep(2)
        assert again.folders("/a") == []
        await again.stop()

    play(scenario)


def test_a_move_back_gives_the_move_up(play):
    async def scenario(bench):
        bench.create(20)
        bench.moves.begin(T0, "/b")
        bench.moves.begin(T0, "/a")
        await asyncio.sleep(5)
        assert (bench.place, bench.folders("/b")) == ("/a", [])
        await bench.stop()

    play(scenario)


def test_a_replaced_move_does_not_end_the_hold_of_the_move_that_replaces_it(play):
    async def scenario(bench):
        gates = {path: asyncio.Event() for path in ("/b", "/c")}
        entered = []
        write = bench.logs.checkpoints.write_all

        async def write_late(directory):
            entered.append(directory.path)
            await gates[directory.path].wait()
            await write(directory)

        bench.logs.checkpoints.write_all = write_late
        bench.create(20)
        expected = bench.values()
        bench.moves.begin(T0, "/b")
        await bench.until(lambda: entered == ["/b"])
        bench.moves.begin(T0, "/c")
        await asyncio.sleep(5)
        gates["/b"].set()
        await asyncio.sleep(5)
        assert entered == ["/b", "/c"]
        assert bench.log.is_held
        gates["/c"].set()
        await bench.moved("/c")
        assert bench.values() == expected
        await bench.stop()

    play(scenario, log_dirs=("/a", "/b", "/c"))


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(5, "its folder was renamed")])
def test_an_error_of_a_cancelled_move_does_not_cancel_the_next_one(play, error, caplog):
    async def scenario(bench):
        gates = {path: asyncio.Event() for path in ("/b", "/c")}
        copy_some = bench.moves._copy_some

        async def copy_late(current, future, max_bytes):
            path = future.env.path
            await gates[path].wait()
            if path == "/b":
                raise error
            return await copy_some(current, future, max_bytes)

        bench.moves._copy_some = copy_late
        bench.create(20)
        bench.moves.begin(T0, "/b")
        await asyncio.sleep(1)
        bench.moves.begin(T0, "/c")
        await asyncio.sleep(1)
        gates["/b"].set()
        await asyncio.sleep(1)
        assert bench.logs.copy_of(T0).path == "/c"
        assert "is moved to /b later" not in caplog.text
        gates["/c"].set()
        await bench.moved("/c")
        await bench.stop()

    play(scenario, log_dirs=("/a", "/b", "/c"))


def test_a_cancelled_move_stays_cancelled_if_its_copy_cannot_be_renamed(play):
    async def scenario(bench):
        bench.create(20)
        expected = bench.values()
        bench.moves.begin(T0, "/b")
        bench.disk.refuse = lambda operation, path: (
            OSError(16, "busy") if operation == "rename" and path.endswith("-future") else None
        )
        bench.moves.begin(T0, "/a")
        bench.disk.refuse = None
        await bench.stop()
        again = Bench(bench.disk)
        await again.load()
        assert again.logs.copy_of(T0) is None
        await asyncio.sleep(5)
        assert (again.place, again.values(), again.folders("/b")) == ("/a", expected, [])
        await again.stop()

    play(scenario)


def test_a_deleted_log_takes_its_copy_along(play):
    async def scenario(bench):
        bench.create(20)
        bench.moves.begin(T0, "/b")
        bench.logs.delete(T0)
        await asyncio.sleep(5)
        assert (bench.folders("/a"), bench.folders("/b")) == ([], [])
        await bench.stop()

    play(scenario)


def test_a_rate_bounds_the_copying(play):
    async def scenario(bench):
        bench.create(50)
        began = bench.clock.monotonic()
        bench.moves.begin(T0, "/b")
        await bench.moved()
        assert bench.clock.monotonic() - began > bench.log.size / 1000 * 0.8
        await bench.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=1000)


def test_a_full_disk_delays_a_move_and_harms_nothing(play):
    async def scenario(bench):
        bench.create(30)
        bench.moves.begin(T0, "/b")
        bench.disk.refuse = lambda operation, path: (
            OSError(28, "full") if operation == "write" and path.startswith("/b/t-0") else None
        )
        await asyncio.sleep(5)
        bench.append(3)
        assert bench.place == "/a"
        bench.disk.refuse = None
        await bench.moved()
        assert len(bench.values()) == 33
        await bench.stop()

    play(scenario)


@pytest.mark.parametrize(
    ("path", "code"),
    [("/c", ErrorCode.LOG_DIR_NOT_FOUND), ("/b", ErrorCode.REPLICA_NOT_AVAILABLE)],
)
def test_what_cannot_move_is_refused(play, path, code):
    async def scenario(bench):
        with pytest.raises(KafkaError) as refused:
            bench.moves.begin(T0, path)
        assert refused.value.code is code
        await bench.stop()

    play(scenario)


def test_a_replica_that_comes_later_is_made_where_it_was_wanted(play):
    async def scenario(bench):
        bench.logs.create(TopicPartition("other", 0), b"o" * 16, CONFIG)  # in /a
        with pytest.raises(KafkaError):
            bench.moves.begin(T0, "/a")
        bench.create()
        assert bench.place == "/a"
        await bench.stop()

    play(scenario)


def test_a_clean_stop_and_a_start_go_on_with_a_move(play):
    async def scenario(bench):
        bench.create(50)
        expected = bench.values()
        bench.moves.begin(T0, "/b")
        await asyncio.sleep(0.5)
        await bench.stop()
        copied = next(name for name in bench.folders("/b") if name.endswith("-future"))
        again = Bench(bench.disk)
        await again.load()
        future = again.logs.copy_of(T0).futures[T0]
        assert future.files.path == f"/b/{copied}"
        assert 0 < future.log_end_offset <= 50
        await again.moved()
        assert again.values() == expected
        await again.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=1000)


def leave_copy(bench, records, epoch):
    """Leave a copy of the log in /b, as after a crash, and return the name of its folder."""
    directory = next(each for each in bench.logs.directories if each.path == "/b")
    copy = directory.create_future(T0, bench.log.topic_id, bench.log.config, 0)
    for number in range(records):
        copy.append_as_leader(encode_batch([Record(None, b"%d" % number, bench.clock.now_ms())]), epoch)
    del directory.futures[T0]
    copy.close()
    return copy.files.path.rpartition("/")[2]


@pytest.mark.parametrize("is_longer_first", [True, False])
def test_of_two_copies_the_move_continues_with_the_longer_one(play, caplog, is_longer_first):
    async def scenario(bench):
        bench.create(50)
        expected = bench.values()
        lengths = (30, 10) if is_longer_first else (10, 30)
        names = {length: leave_copy(bench, length, 0) for length in lengths}
        await bench.stop()
        again = Bench(bench.disk)
        await again.load()
        assert again.logs.copy_of(T0).futures[T0].files.path == f"/b/{names[30]}"
        assert f"/b/{names[30]} and /b/{names[10]} are copies of t-0" in caplog.text
        await again.moved()
        assert again.values() == expected
        await asyncio.sleep(2)
        assert (again.folders("/a"), again.folders("/b")) == ([], ["t-0"])
        await again.stop()

    play(scenario)


@pytest.mark.parametrize("is_longer_first", [True, False])
def test_a_second_copy_with_records_that_the_log_lacks_is_kept_aside(play, is_longer_first):
    async def scenario(bench):
        bench.create()
        bench.append(50, epoch=1)
        expected = bench.values()
        copies = [(60, 0), (10, 1)] if is_longer_first else [(10, 1), (60, 0)]
        names = {epoch: leave_copy(bench, length, epoch) for length, epoch in copies}
        await bench.stop()
        again = Bench(bench.disk)
        await again.load()
        assert again.logs.copy_of(T0).futures[T0].files.path == f"/b/{names[1]}"
        await again.moved()
        assert again.values() == expected
        await asyncio.sleep(2)
        stray, moved = sorted(again.folders("/b"), key=lambda name: not name.endswith("-stray"))
        assert (again.folders("/a"), moved) == ([], "t-0") and stray.endswith("-stray")
        await again.stop()

    play(scenario)


def test_a_second_copy_whose_folder_cannot_be_renamed_takes_its_directory_offline(play):
    async def scenario(bench):
        bench.create(50)
        names = {length: leave_copy(bench, length, 0) for length in (30, 10)}
        await bench.stop()
        again = Bench(bench.disk)
        shorter = f"/b/{names[10]}"
        bench.disk.refuse = lambda operation, path: (
            OSError(5, "I/O error") if (operation, path) == ("rename", shorter) else None
        )
        await again.load()
        bench.disk.refuse = None
        assert again.log.log_end_offset == 50
        assert sorted(again.folders("/b")) == sorted(names.values())
        await again.stop()

    play(scenario)


def test_a_second_copy_that_cannot_be_opened_does_not_replace_the_first(play):
    async def scenario(bench):
        bench.create(50)
        good, bad = leave_copy(bench, 30, 0), leave_copy(bench, 40, 0)
        await bench.stop()
        bench.disk.refuse = lambda operation, path: (
            OSError(24, "too many files") if operation == "open" and path.startswith(f"/b/{bad}/0") else None
        )
        again = Bench(bench.disk)
        await again.load()
        bench.disk.refuse = None
        assert again.logs.copy_of(T0).futures[T0].files.path == f"/b/{good}"
        await again.moved()
        assert again.log.log_end_offset == 50
        await again.stop()

    play(scenario)


def test_a_damaged_copy_begins_again_at_a_whole_batch(play):
    async def scenario(bench):
        bench.create()
        for _ in range(10):
            records = [Record(None, b"v", bench.clock.now_ms()) for _ in range(6)]
            bench.log.append_as_leader(encode_batch(records), 0)
        bench.log.advance_high_watermark(60)
        await bench.logs.checkpoints.store_log_starts(bench.logs.directory_of(T0), [(bench.log, 4)])
        bench.log.advance_log_start(4)
        bench.moves.begin(T0, "/b")
        await asyncio.sleep(0.5)
        await bench.stop()
        (damaged,) = bench.folders("/b")
        copy = f"/b/{damaged}/0"
        again = Bench(bench.disk)
        bench.disk.refuse = lambda operation, path: (
            OSError(24, "too many files") if operation == "open" and path.startswith(copy) else None
        )
        await again.load()
        assert again.logs.copy_of(T0).futures[T0].files.path != f"/b/{damaged}"
        bench.disk.refuse = None
        await again.moved()
        assert (again.log.log_start_offset, again.log.log_end_offset) == (4, 60)
        await again.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=1000)


def test_the_producers_of_the_log_replace_a_snapshot_that_its_copy_has(play):
    async def scenario(bench):
        bench.create()
        batch = encode_batch([Record(None, b"v", 1)], producer_id=9, producer_epoch=0, base_sequence=0)
        bench.log.append_as_leader(batch, 0)
        bench.log.advance_high_watermark(1)
        bench.moves.begin(T0, "/b")
        # as of a copy that a clean stop closed, and that does not know producers without batches
        bench.logs.copy_of(T0).futures[T0].files.take_snapshot(1, [])
        await bench.moved()
        await bench.stop()
        again = Bench(bench.disk)
        await again.load()
        assert again.log.producers.get(9).last_offset == 0
        await again.stop()

    play(scenario)


def test_a_log_that_opens_late_goes_on_with_its_move(play):
    async def scenario(bench):
        bench.create(50)
        expected = bench.values()
        bench.moves.begin(T0, "/b")
        await asyncio.sleep(0.5)
        await bench.stop()
        (copied,) = bench.folders("/b")
        again = Bench(bench.disk)
        bench.disk.refuse = lambda operation, path: (
            OSError(24, "too many files") if operation == "open" and path.endswith(".log") else None
        )
        await again.load()
        assert again.log is None
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == {T0}
        assert again.logs.copy_of(T0).futures[T0].files.path == f"/b/{copied}"
        again.moves.start()
        await again.moved()
        assert again.values() == expected
        await again.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=1000)


def test_a_copy_does_not_join_the_next_topic_of_its_name(play):
    """The topic is deleted, and created again, while a thread opens the copy of its log."""

    async def scenario(bench):
        bench.create(50)
        bench.moves.begin(T0, "/b")
        await asyncio.sleep(0.5)
        await bench.stop()
        again = Bench(bench.disk)
        bench.disk.refuse = lambda operation, path: (
            OSError(24, "too many files") if operation == "open" and path.endswith(".log") else None
        )
        await again.load()
        bench.disk.refuse = None
        opening = asyncio.ensure_future(again.logs.open_postponed())
        while again.log is None:
            await asyncio.sleep(1e-5)
        again.logs.delete(T0)
        again.logs.prefer(T0, again.logs.directory_at("/a"))
        again.logs.create(T0, b"u" * 16, CONFIG)
        again.append(3)
        expected = again.values()
        await opening
        assert again.logs.copy_of(T0) is None
        again.moves.start()
        await asyncio.sleep(5)
        assert (again.place, again.values()) == ("/a", expected)
        assert again.folders("/b") == []
        await again.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=1000)


@pytest.mark.parametrize("full", ["/a", "/b"])
def test_a_log_in_two_directories_is_served_only_if_both_can_be_read(play, full):
    """A move had ended, but its former folder could not be removed. Then a start finds one disk full."""

    async def scenario(bench):
        bench.create(6)
        bench.disk.refuse = lambda operation, path: (
            OSError(5, "failing") if operation == "rename" and path == "/a/t-0" else None
        )
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.append(12)
        expected = bench.values()
        assert (bench.folders("/a"), bench.folders("/b")) == (["t-0"], ["t-0"])
        bench.disk.process_ended()

        again = Bench(bench.disk)
        bench.disk.refuse = lambda operation, path: (
            OSError(28, "full") if operation == "write" and path.startswith(f"{full}/t-0/") else None
        )
        await again.load()
        assert again.log is None
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == {T0}
        assert again.values() == expected
        assert again.place == "/b"
        assert "t-0" not in again.folders("/a")
        await again.stop()

    play(scenario)


class Gate:
    """Holds the next call of `LogMoves._fsync` for a log until it is opened."""

    def __init__(self, bench, monkeypatch):
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        fsync = bench.moves._fsync

        async def held(log):
            if log is bench.log:
                self.reached.set()
                await self.opened.wait()
            await fsync(log)

        monkeypatch.setattr(bench.moves, "_fsync", held)


def test_a_log_that_is_deleted_between_the_switch_and_its_fsync_leaves_no_folder(play, monkeypatch):
    async def scenario(bench):
        bench.create(20)
        gate = Gate(bench, monkeypatch)
        bench.moves.begin(T0, "/b")
        await gate.reached.wait()
        bench.logs.delete(T0)
        gate.opened.set()
        await asyncio.sleep(5)
        assert (bench.folders("/a"), bench.folders("/b")) == ([], [])
        assert await bench.logs.topics_without_folder([ID]) == {ID}
        await bench.stop()

    play(scenario)


def test_a_log_that_is_deleted_while_its_copy_is_fsynced_ends_its_move_without_an_error(play, caplog):
    async def scenario(bench):
        bench.create(20)
        fsync = bench.moves._fsync

        async def delete(log):
            await fsync(log)
            bench.moves._fsync = fsync
            bench.logs.delete(T0)

        bench.moves._fsync = delete
        bench.moves.begin(T0, "/b")
        await bench.until(lambda: bench.log is None)
        await asyncio.sleep(5)
        assert (bench.folders("/a"), bench.folders("/b")) == ([], [])
        await bench.stop()

    play(scenario)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_log_that_is_deleted_during_the_fsync_after_its_switch_leaves_no_folder(play):
    async def scenario(bench):
        bench.create(20)

        def delete(operation, path):
            if operation == "write" and path.startswith("/b/t-0/leader-epoch"):
                bench.disk.refuse = None
                bench.logs.delete(T0)
                return OSError(2, "the folder is gone")
            return None

        bench.disk.refuse = delete
        bench.moves.begin(T0, "/b")
        await bench.until(lambda: bench.log is None)
        await asyncio.sleep(5)
        assert (bench.folders("/a"), bench.folders("/b")) == ([], [])
        assert await bench.logs.topics_without_folder([ID]) == {ID}
        await bench.stop()

    play(scenario)


def refuse_epochs(bench):
    bench.disk.refuse = lambda operation, path: (
        OSError(28, "full") if operation == "write" and path.startswith("/b/t-0/leader-epoch") else None
    )


def test_old_files_stay_until_the_deletion_if_the_new_ones_cannot_be_fsynced(play, caplog):
    async def scenario(bench):
        bench.create(20)
        refuse_epochs(bench)
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.disk.refuse = None
        assert (bench.folders("/a"), bench.folders("/b")) == (["t-0"], ["t-0"])
        assert "the old ones stay in /a" in caplog.text
        bench.logs.delete(T0)
        await asyncio.sleep(5)
        assert (bench.folders("/a"), bench.folders("/b")) == ([], [])
        assert await bench.logs.topics_without_folder([ID]) == {ID}
        await bench.stop()

    play(scenario)


def test_old_files_stay_until_a_later_fsync_of_the_new_ones(play):
    async def scenario(bench):
        bench.create(20)
        refuse_epochs(bench)
        bench.moves.begin(T0, "/b")
        await bench.moved()
        await bench.drop_expired()
        assert bench.folders("/a") == ["t-0"]
        with pytest.raises(KafkaError):
            bench.log.flush()
        await bench.drop_expired()
        assert bench.folders("/a") == ["t-0"]
        bench.disk.refuse = None
        bench.log.flush()
        await bench.drop_expired()
        await asyncio.sleep(2)
        assert (bench.folders("/a"), bench.folders("/b")) == ([], ["t-0"])
        await bench.stop()

    play(scenario)


async def moved_without_fsync(bench):
    """Move a log of 20 records to /b. The fsync of its new files fails, and then the disk has space again."""
    bench.create(20)
    bench.log.flush()
    refuse_epochs(bench)
    bench.moves.begin(T0, "/b")
    await bench.moved()
    bench.disk.refuse = None


async def truncate_and_crash(bench, seed, truncation=None):
    """Truncate the moved log to 10, flush it, and crash. The next start must not use the longer old files."""
    if truncation is None:
        truncation = await bench.logs.prepare_truncation(bench.log, 10)
    truncate_to(bench.log, 10, truncation=truncation)
    bench.log.flush()
    await bench.moves.stop()
    bench.disk.crash(random.Random(seed))
    again = Bench(bench.disk)
    await again.load()
    assert (again.place, again.log.log_end_offset) == ("/b", 10)
    await again.stop()


@pytest.mark.parametrize("seed", range(5))
def test_old_files_that_have_stayed_do_not_bring_truncated_records_back(play, seed):
    async def scenario(bench):
        await moved_without_fsync(bench)
        bench.log.flush()
        await truncate_and_crash(bench, seed)

    play(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_old_files_do_not_bring_truncated_records_back_after_an_append_of_a_new_leader_epoch(play, seed):
    """The default settings flush no leader epochs after an append."""

    async def scenario(bench):
        await moved_without_fsync(bench)
        bench.log.flush()
        bench.append(1, epoch=1)
        await truncate_and_crash(bench, seed)

    play(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_old_files_do_not_bring_truncated_records_back_if_a_later_flush_is_under_way(play, seed):
    async def scenario(bench):
        await moved_without_fsync(bench)
        bench.log.flush()
        bench.append(1)
        flush = bench.log.prepare_flush()
        truncation = await bench.logs.prepare_truncation(bench.log, 10)
        flush.run()
        bench.log.complete_flush(flush)
        await truncate_and_crash(bench, seed, truncation)

    play(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_a_truncation_after_a_move_waits_for_the_first_flush_of_the_new_files(play, seed):
    """Before this flush, only the old files are certainly on disk. After it, they must not be used again."""

    async def scenario(bench):
        await moved_without_fsync(bench)
        await truncation_is_rejected(bench)
        flush = bench.log.prepare_flush()
        await truncation_is_rejected(bench)
        assert bench.folders("/a") == ["t-0"]
        flush.run()
        bench.log.complete_flush(flush)
        await truncate_and_crash(bench, seed)

    play(scenario)


def test_a_truncation_waits_if_the_log_moves_meanwhile_and_its_new_files_are_not_fsynced(play, monkeypatch):
    async def scenario(bench):
        bench.create(20)
        bench.log.flush()
        refuse_epochs(bench)

        async def run_after_the_move(function, *args):
            await bench.moved()
            return function(*args)

        monkeypatch.setattr(bench.logs, "_disk", SimpleNamespace(run=run_after_the_move))
        bench.moves.begin(T0, "/b")
        await truncation_is_rejected(bench)
        monkeypatch.undo()
        assert bench.place == "/b"
        await bench.stop()

    play(scenario)


async def truncation_is_rejected(bench):
    with pytest.raises(KafkaError, match="its new files are not fsynced yet") as caught:
        await bench.logs.prepare_truncation(bench.log, 10)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_whose_old_files_stay_can_move_back(play):
    async def scenario(bench):
        bench.create(20)
        expected = bench.values()
        refuse_epochs(bench)
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.disk.refuse = None
        assert bench.flushed == [T0]
        bench.log.flush()
        bench.moves.begin(T0, "/a")
        await bench.moved("/a")
        await asyncio.sleep(5)
        assert bench.values() == expected
        assert (bench.folders("/a"), bench.folders("/b")) == (["t-0"], [])
        await bench.stop()

    play(scenario)


def test_a_log_is_offline_and_its_old_files_stay_if_its_new_name_is_lost(play):
    async def scenario(bench):
        bench.create(20)
        bench.disk.refuse = lambda operation, path: (
            OSError(5, "input/output error")
            if (operation, path) == ("sync_directory", "/b") and bench.place == "/b"
            else None
        )
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.disk.refuse = None
        assert bench.log.is_offline
        with pytest.raises(KafkaError):
            bench.log.flush()
        await bench.drop_expired()
        assert bench.folders("/a") == ["t-0"]
        await bench.stop()

    play(scenario)


def test_old_files_stay_if_the_log_cannot_move_back_until_the_new_ones_are_durable(play):
    async def scenario(bench):
        bench.create(20)
        expected = bench.values()
        refuse_epochs(bench)
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.moves.begin(T0, "/a")
        await asyncio.sleep(5)
        assert bench.place == "/b"
        assert "t-0" in bench.folders("/a")
        bench.disk.refuse = None
        bench.log.flush()
        await bench.moved("/a")
        await asyncio.sleep(5)
        assert bench.values() == expected
        assert (bench.folders("/a"), bench.folders("/b")) == (["t-0"], [])
        await bench.stop()

    play(scenario)


def test_a_move_back_ends_if_the_old_files_cannot_be_renamed_and_the_next_one_succeeds(play, caplog):
    async def scenario(bench):
        bench.create(20)
        expected = bench.values()
        refuse_epochs(bench)
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.disk.refuse = None
        bench.log.flush()
        bench.disk.refuse = lambda operation, path: (
            OSError(16, "busy") if operation == "rename" and path == "/a/t-0" else None
        )
        bench.moves.begin(T0, "/a")
        await bench.until(lambda: bench.logs.copy_of(T0) is None)
        assert bench.place == "/b"
        assert "the old files of an earlier move cannot be removed" in caplog.text
        bench.disk.refuse = None
        bench.moves.begin(T0, "/a")
        await bench.moved("/a")
        await asyncio.sleep(5)
        assert bench.values() == expected
        assert (bench.folders("/a"), bench.folders("/b")) == (["t-0"], [])
        await bench.stop()

    play(scenario)


def test_a_move_back_keeps_the_offset_up_to_which_the_log_is_clean(play):
    async def scenario(bench):
        bench.create(20)
        bench.logs.directory_of(T0).note_clean(T0, 7)
        refuse_epochs(bench)
        bench.moves.begin(T0, "/b")
        await bench.moved()
        bench.disk.refuse = None
        bench.log.flush()
        bench.moves.begin(T0, "/a")
        await bench.moved("/a")
        assert bench.logs.directory_of(T0).cleaned_to == {T0: 7}
        await bench.stop()

    play(scenario)


def test_a_deleted_topic_whose_old_files_cannot_be_renamed_counts_as_present(play):
    async def scenario(bench):
        bench.create(20)
        bench.disk.refuse = lambda operation, path: (
            OSError(16, "busy") if operation == "rename" and path == "/a/t-0" else None
        )
        bench.moves.begin(T0, "/b")
        await bench.moved()
        await asyncio.sleep(1)
        bench.logs.delete(T0)
        assert list(await bench.logs.topics_without_folder([ID])) == []
        await bench.stop()

    play(scenario)


def test_long_topic_names_fit(play):
    async def scenario(bench):
        long = TopicPartition("x" * 249, 7)
        log = bench.logs.create(long, ID, CONFIG)
        log.append_as_leader(encode_batch([Record(None, b"v", 0)]), 0)
        bench.moves.begin(long, "/b")
        (folder,) = bench.folders("/b")
        assert len(folder) <= 255
        await bench.stop()

    play(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_power_may_go_at_any_moment_of_a_move(seed):
    """All data that was fsynced before the power cut exists afterwards, and the log can be moved again."""
    cut = 0
    while _move_with_power_cut_after(cut, random.Random(f"{seed} {cut}"), Bench):
        cut += 1 + seed
    assert cut > 20


class IdempotentBench(Bench):
    """The first record is of a producer without further records, and was deleted. The others are of another.

    The sequence of a record is its offset minus 1.
    """

    GONE, PRODUCER = 8, 9
    #: time of the deletion: no record has expired yet
    deletes_at_ms = 0

    def create(self, records=0):
        super().create()
        self.log.append_as_leader(self._batch(self.GONE, 0), 0)
        self.append(records)
        self.log.flush()
        self.log.advance_log_start(self.log.files.segments[1].base_offset)
        delete_old_segments(self.log, self.deletes_at_ms).run()
        assert self.log.files.segments[0].base_offset > 0

    def append(self, count, epoch=0):
        for _ in range(count):
            self.log.append_as_leader(self._batch(self.PRODUCER, self.log.log_end_offset - 1), epoch)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def _batch(self, producer, sequence):
        record = Record(None, b"%d" % sequence, 1)
        return encode_batch([record], producer_id=producer, producer_epoch=0, base_sequence=sequence)

    def check(self):
        super().check()
        last = self.log.log_end_offset - 1
        again = self.log.append_as_leader(self._batch(self.PRODUCER, last - 1), 0)
        assert again.duplicate and again.base_offset == last
        assert self.log.producers.knows(self.GONE)


class EmptiedBench(IdempotentBench):
    """All records have expired."""

    deletes_at_ms = 2**40


@pytest.mark.parametrize("bench_type", [IdempotentBench, EmptiedBench])
@pytest.mark.parametrize("seed", range(25))
def test_power_may_go_at_any_moment_of_the_move_of_a_log_and_it_knows_its_producers(seed, bench_type):
    cut = 0
    while _move_with_power_cut_after(cut, random.Random(f"producers {seed} {cut}"), bench_type):
        cut += 1 + seed
    assert cut > 20


def _move_with_power_cut_after(changes, chance, bench_type):
    """Move a log and cut the power after some changes. Return whether this was before the end of the move."""
    disk = FaultyDisk()
    state = {}

    async def life():
        bench = bench_type(disk)
        await bench.load(hosted=False)
        bench.create(12)
        bench.log.flush()
        state["safe"] = bench.values()
        disk.changes_left = changes
        bench.moves.begin(T0, "/b")
        (worker,) = bench.moves._workers.values()
        try:
            for _ in range(400):
                await asyncio.sleep(0.01)
                if bench.place == "/b" and not bench.log.is_held and bench.folders("/a") == []:
                    break
                if chance.random() < 0.2 and bench.log.log_end_offset < 30:
                    bench.append(1)
                    if chance.random() < 0.5 and not bench.log.is_held and not bench.log.files.is_flushing:
                        bench.log.flush()
                        state["safe"] = bench.values()
            if disk.changes_left == 0:
                raise PowerCut
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        disk.changes_left = None
        assert bench.place == "/b"
        state["over"] = True
        await bench.stop()

    with suppress(PowerCut):
        run_virtual(life())
    went = "over" not in state
    disk.crash(chance)

    async def next_life():
        bench = bench_type(disk)
        await bench.load()
        assert bench.values()[: len(state["safe"])] == state["safe"]
        bench.check()
        other = "/b" if bench.place == "/a" else "/a"
        bench.append(2)
        expected = bench.values()
        bench.moves.begin(T0, other)
        await bench.moved(other)
        assert bench.values() == expected
        bench.check()
        await asyncio.sleep(2)
        assert [*bench.folders("/a"), *bench.folders("/b")] == ["t-0"]
        await bench.stop()

    run_virtual(next_life())
    return went


def test_a_copy_is_truncated_in_threads(play, monkeypatch):
    in_thread, found, told = [], [], []
    run = Truncation.run
    monkeypatch.setattr(Truncation, "run", lambda self: (found.append(bool(in_thread)), run(self)))
    make = VirtualPool._make

    def made(self, call, done):
        in_thread.append(call)
        try:
            make(self, call, done)
        finally:
            in_thread.pop()

    monkeypatch.setattr(VirtualPool, "_make", made)

    async def scenario(bench):
        bench.create(30)
        bench.moves.begin(T0, "/b")
        (future,) = (directory.futures[T0] for directory in bench.logs.directories if directory.futures)
        await bench.until(lambda: future.log_end_offset > 10)
        truncation = begin_truncation(bench.log, 5)
        run(truncation)
        bench.log.high_watermark = 5
        truncate_to(bench.log, 5, truncation=truncation)
        bench.append(3, 1)
        bench.disk.refuse = lambda operation, path: (
            told.append(bool(in_thread)) if path.startswith("/b") and operation.startswith("sync") else None
        )
        await bench.moved()
        bench.disk.refuse = None
        assert bench.values()[-1] == (7, 1)
        await bench.stop()

    play(scenario)
    assert found == [True]
    assert told
    assert all(told)


def test_a_copy_that_is_durable_is_truncated_in_threads(play, monkeypatch):
    """The loop wrote the copy's lower recovery point, perhaps while a thread wrote the same checkpoint."""
    in_thread, told = [], []
    make = VirtualPool._make

    def made(self, call, done):
        in_thread.append(call)
        try:
            make(self, call, done)
        finally:
            in_thread.pop()

    monkeypatch.setattr(VirtualPool, "_make", made)

    async def scenario(bench):
        bench.create(30)
        bench.logs.incomplete.note(T0, ID, Mark("it cannot switch yet"), bench.log)
        bench.moves.begin(T0, "/b")
        (future,) = (directory.futures[T0] for directory in bench.logs.directories if directory.futures)
        await bench.until(lambda: future.recovery_point == 30)
        target = bench.logs.directory_at("/b")
        await bench.logs.checkpoint(target, LogDirectory.recovery_point_checkpoint)
        bench.log.high_watermark = 5
        truncate_to(bench.log, 5)
        bench.append(3, 1)
        bench.disk.refuse = lambda operation, path: (
            told.append(bool(in_thread)) if path.startswith("/b") and operation.startswith("sync") else None
        )
        await bench.until(lambda: future.log_end_offset == 8)
        bench.logs.incomplete.forget(T0)
        await bench.moved()
        bench.disk.refuse = None
        await bench.stop()

    play(scenario)
    assert told
    assert all(told)


COMPACTED = TopicConfig(
    cleanup_policy=("compact",), delete_retention_ms=0, min_cleanable_dirty_ratio=0.01, segment_bytes=10_000
)


class CompactedLog:
    """The compacted log of T0, and a cleaner for it. Of the key ``gone`` it has a record and a tombstone."""

    def __init__(self, bench, log):
        self.bench, self.log = bench, log
        partition = SimpleNamespace(log=log, unavailable=None)
        self.cleaner = LogCleaner(
            bench.moves._view, [partition], bench.logs, bench.environment, lambda _: None
        )

    @classmethod
    def create(cls, bench):
        log = cls(bench, bench.logs.create(T0, ID, COMPACTED))
        log.append(b"gone", b"here")
        for number in range(20):
            log.append(b"%d" % number, bytes(100))
        log.seal()
        log.append(b"gone", None)
        log.seal()
        return log

    @classmethod
    async def load(cls, bench):
        await bench.logs.load({T0: ID}, lambda _: COMPACTED)
        bench.moves.start()
        bench.log.advance_high_watermark(bench.log.log_end_offset)
        return cls(bench, bench.log)

    def append(self, key, value):
        self.log.append_as_leader(encode_batch([Record(key, value, self.bench.clock.now_ms())]), 0)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def seal(self):
        self.log.roll()
        self.log.flush()

    async def clean_thrice(self):
        """Let the cleaner remove the record of ``gone``, then its tombstone."""
        for _ in range(3):
            await self.cleaner.clean_dirtiest()
            self.append(b"another", b"1")
            self.seal()
            await asyncio.sleep(0.01)

    async def is_cleaned(self):
        self.append(b"more", b"1")
        self.seal()
        return await self.cleaner.clean_dirtiest()

    def state(self):
        found = {}
        for header, batch in found_batches(self.log):
            payload = batch_payload(header, batch)
            for record in decode_records(payload, header.record_count, 0, 0):
                found[record.key] = record.value
        return found

    async def stop(self):
        await self.cleaner.stop()
        await self.bench.stop()


def test_a_key_that_was_deleted_does_not_come_back_because_its_log_was_compacted_while_it_moved(play):
    async def scenario(bench):
        compacted = CompactedLog.create(bench)
        bench.moves.begin(T0, "/b")
        future = bench.logs.directory_at("/b").futures[T0]
        await bench.until(lambda: future.log_end_offset > 0)
        assert future.log_end_offset < 20
        await compacted.clean_thrice()
        await bench.moved()
        assert compacted.state().get(b"gone") is None
        assert await compacted.is_cleaned()
        await compacted.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=300)


def test_a_key_that_was_deleted_does_not_come_back_because_its_log_was_compacted_without_the_copys_disk(play):
    async def scenario(bench):
        compacted = CompactedLog.create(bench)
        bench.moves.begin(T0, "/b")
        future = bench.logs.directory_at("/b").futures[T0]
        await bench.until(lambda: future.log_end_offset > 0)
        await compacted.stop()
        alone = Bench(bench.disk, log_dirs=("/a",))
        compacted = await CompactedLog.load(alone)
        await compacted.clean_thrice()
        assert b"gone" not in compacted.state()
        await compacted.stop()
        again = Bench(bench.disk)
        compacted = await CompactedLog.load(again)
        await again.moved()
        assert b"gone" not in compacted.state()
        await compacted.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=300)


def test_the_truncation_of_a_copy_whose_move_is_cancelled_leaves_nothing_in_memory(play, monkeypatch):
    async def scenario(bench):
        bench.create(50)
        bench.moves.begin(T0, "/b")
        future = bench.logs.copy_of(T0).futures[T0]
        await bench.until(lambda: len(future.files.segments) > 5)
        future.flush()
        assert future.files.sealed is not None
        monkeypatch.setattr(manager_module, "sync_sealed", lambda _: bench.logs.drop_copy(T0))
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await bench.logs.prepare_truncation(future, 0)
        assert not bench.logs._lowered
        await bench.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=1000)


def test_a_start_goes_on_with_the_copy_of_a_compacted_log_that_was_not_compacted_meanwhile(play):
    async def scenario(bench):
        compacted = CompactedLog.create(bench)
        await compacted.clean_thrice()
        bench.moves.begin(T0, "/b")
        future = bench.logs.directory_at("/b").futures[T0]
        await bench.until(lambda: future.log_end_offset > 0)
        await compacted.stop()
        again = Bench(bench.disk)
        compacted = await CompactedLog.load(again)
        assert again.logs.directory_at("/b").futures[T0].files.path == future.files.path
        await again.moved()
        await compacted.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=300)


def test_after_each_power_cut_the_move_of_a_compacted_log_continues_with_the_same_copy(play, caplog):
    async def scenario(bench):
        compacted = CompactedLog.create(bench)
        await compacted.clean_thrice()
        bench.moves.begin(T0, "/b")
        future = bench.logs.directory_at("/b").futures[T0]
        for _ in range(2):
            end = future.log_end_offset
            await bench.until(lambda: future.log_end_offset > end)  # noqa: B023
            future.flush()
            end, path = future.log_end_offset, future.files.path
            await bench.moves.stop()
            bench.disk.crash(random.Random(1))
            bench = Bench(bench.disk, replica_alter_log_dirs_io_max_bytes_per_second=300)
            compacted = await CompactedLog.load(bench)
            future = bench.logs.directory_at("/b").futures[T0]
            assert (future.files.path, future.log_end_offset) == (path, end)
        await bench.moved()
        assert b"gone" not in compacted.state()
        await compacted.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=300)
    assert "does not use it" not in caplog.text


def test_no_record_is_copied_before_the_copys_disk_has_stored_up_to_where_the_log_is_compacted(play):
    async def scenario(bench):
        compacted = CompactedLog.create(bench)
        await compacted.clean_thrice()
        full = OSError(errno.ENOSPC, "full")
        bench.disk.refuse = lambda operation, path: full if path.startswith(f"/b/{CLEANED}") else None
        bench.moves.begin(T0, "/b")
        future = bench.logs.directory_at("/b").futures[T0]
        await asyncio.sleep(60)
        assert future.log_start_offset == future.log_end_offset
        bench.disk.refuse = None
        await bench.moved()
        await compacted.stop()

    play(scenario)


def test_a_start_says_if_it_does_not_know_whether_a_copy_is_older_than_the_compaction(play, caplog):
    async def scenario(bench):
        compacted = CompactedLog.create(bench)
        await compacted.clean_thrice()
        bench.moves.begin(T0, "/b")
        future = bench.logs.directory_at("/b").futures[T0]
        await bench.until(lambda: future.log_end_offset > 0)
        await compacted.stop()
        bench.disk.remove(f"/b/{CLEANED}")
        again = Bench(bench.disk)
        compacted = await CompactedLog.load(again)
        await again.moved()
        assert f"{future.files.path} may be older than the last compaction of the log" in caplog.text
        await compacted.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=300)


def test_a_segment_that_a_crash_took_from_a_copy_is_no_hole_of_the_compaction_of_the_log(play):
    async def scenario(bench):
        bench.create(50)
        bench.log.flush()
        expected = bench.values()
        source, target = bench.logs.directories
        source.note_clean(T0, 50)
        bench.moves.begin(T0, "/b")
        future = target.futures[T0]
        await bench.until(lambda: len(future.files.segments) > 5)
        await bench.logs.checkpoints.write_all(source)
        await bench.logs.checkpoints.write_all(target)
        await bench.moves.stop()
        bench.disk.process_ended()
        path = future.files.path
        segments = sorted(each.name for each in bench.disk.entries(path) if each.name.endswith(".log"))
        bench.disk.remove(f"{path}/{segments[2]}")
        again = Bench(bench.disk)
        await again.load()
        await again.moved()
        assert again.values() == expected
        await again.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=1000)


def test_a_log_is_compacted_again_after_the_disk_of_its_copy_failed_and_the_next_start_moves_it(play, caplog):
    async def scenario(bench):
        compacted = CompactedLog.create(bench)
        bench.moves.begin(T0, "/b")
        future = bench.logs.directory_at("/b").futures[T0]
        await bench.until(lambda: future.log_end_offset > 0)
        broken = OSError(errno.EIO, "broken")
        bench.disk.refuse = lambda operation, path: broken if path.startswith("/b") else None
        await bench.until(lambda: bench.logs.copy_of(T0) is None)
        assert bench.logs.directory_at("/a").failure is None
        assert await compacted.is_cleaned()
        await compacted.clean_thrice()
        await compacted.stop()
        bench.disk.refuse = None
        again = Bench(bench.disk)
        compacted = await CompactedLog.load(again)
        await again.moved()
        assert b"gone" not in compacted.state()
        await compacted.stop()

    play(scenario, replica_alter_log_dirs_io_max_bytes_per_second=300)
    assert "/b has failed: the next start that can use it continues the moves of t-0" in caplog.text
    assert "later" not in caplog.text
