"""The cleaner when a log, its disk or its settings prevent a cleaning."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from types import SimpleNamespace

import pytest
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from tests.views import view_of

from barnabas.base.environment.blocking import Threads
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.logs.cleaner import LogCleaner
from barnabas.broker.storage import CleaningCancelled, OpenFiles, Origin
from barnabas.cli.log.check import check_directories
from barnabas.kafka.records import Record, encode_batch
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

NOW = 1_700_000_000_000
CONFIG = TopicConfig(cleanup_policy=("compact",), delete_retention_ms=0, min_cleanable_dirty_ratio=0.3)


class Logs:
    """The part of a LogManager that the cleaner uses. It does all work at once."""

    def __init__(self, directory):
        self.directory = directory
        self.checkpoints = self

    def directory_of(self, _):
        return self.directory

    def copy_of(self, _):
        return None

    async def write(self, directory, of):
        of(directory).run()

    def remove_later(self, _log_dir, removal, _delay_ms):
        removal.run()


class Bench:
    def __init__(self, disk=None, path="/data"):
        self.disk = disk or FaultyDisk()
        self.clock = ManualClock(NOW)
        self.environment = simulated_environment(clock=self.clock, blocking=Threads())
        files = OpenFiles(self.disk)
        self.directory = LogDirectory.open(files, path, self.environment, cluster_id="c", node_id=1)
        self.partitions = []
        self.flushed = []

    def make(self, name, values):
        log = self.directory.create(TopicPartition(name, 0), name.encode() * 16, CONFIG)
        self.partitions.append(SimpleNamespace(log=log, unavailable=None))
        for value in range(values):
            log.append_as_leader(encode_batch([Record(b"k", b"%d" % value, NOW)]), 0)
        log.advance_high_watermark(log.log_end_offset)
        log.roll()
        log.flush()
        return log

    @property
    def cleaned(self):
        """Return the offset up to which each log is clean."""
        return {name: offset for name, offset in self.directory.cleaned_to.items() if offset}

    def names(self, log):
        return [entry.name for entry in self.disk.entries(log.files.path)]

    def clean(self, rounds=1, before_each=lambda number: None):
        """Clean the dirtiest log `rounds` times. Return whether there was one the last time."""

        async def run():
            config = BrokerConfig()
            self.cleaner = LogCleaner(
                view_of(config=config),
                self.partitions,
                Logs(self.directory),
                self.environment,
                self.flushed.append,
            )
            try:
                for number in range(rounds):
                    before_each(number)
                    outcome = await self.cleaner.clean_dirtiest()
                return outcome
            finally:
                await self.cleaner.stop()

        return asyncio.run(run())


@pytest.fixture
def bench():
    return Bench()


def test_the_dirtiest_log_comes_first(bench):
    little, much = bench.make("a", 5), bench.make("b", 5)
    assert bench.clean()
    cleaned = [log for log in (little, much) if bench.directory.cleaned_to.get(log.topic_partition)]
    assert len(cleaned) == 1
    assert bench.clean() and not bench.clean()
    assert bench.cleaned == {log.topic_partition: 5 for log in (little, much)}


def test_logs_that_are_not_compacted_are_passed_over(bench):
    bench.make("a", 5).config = TopicConfig(cleanup_policy=("delete",))
    compacted = bench.make("b", 5)
    bench.make("c", 5).config = TopicConfig(cleanup_policy=("delete",))
    assert bench.clean() and not bench.clean()
    assert bench.cleaned == {compacted.topic_partition: 5}


def test_a_log_that_is_not_flushed_is_flushed_first(bench):
    log = bench.make("a", 5)
    log.append_as_leader(encode_batch([Record(b"k", b"6", NOW)]), 0)
    log.advance_high_watermark(6)
    log.roll()
    bench.clean()
    assert bench.flushed == bench.partitions
    assert bench.directory.cleaned_to[log.topic_partition] == 5


@pytest.mark.parametrize("position", [68, 70], ids=["a value", "a base offset"])
def test_a_damaged_log_is_left_alone_and_the_others_are_cleaned(bench, position):
    damaged, sound = bench.make("a", 9), bench.make("b", 5)
    file = bench.disk.open(f"{damaged.files.path}/00000000000000000000.log")
    file.write_at([b"\xff"], position)
    file.close()
    bench.clean(rounds=2)
    assert bench.cleaner.uncleanable.keys() == {damaged.topic_partition}
    assert bench.cleaned == {sound.topic_partition: 5}
    assert bench.directory.failure is None


def test_a_full_disk_ends_a_cleaning_and_nothing_else(bench):
    log = bench.make("a", 50)
    bench.disk.space = 10
    assert not bench.clean()
    assert bench.directory.failure is None and log.failure is None
    assert not [name for name in bench.names(log) if name.endswith((".cleaned", ".swap"))]
    bench.disk.mend()
    assert bench.clean()
    assert log.read(0, 1000, 50).size == log.size


def test_a_broken_disk_takes_its_directory_offline(bench):
    bench.make("a", 5)
    bench.disk.fail_reads = True
    assert not bench.clean()
    assert bench.directory.failure is not None


def test_a_log_that_changes_under_its_cleaning_stays_as_it_is(bench, monkeypatch):
    log = bench.make("a", 5)

    def change(self, log, cleaning):
        log.config = log.config.replace(cleanup_policy=("delete",))
        return True

    monkeypatch.setattr(LogCleaner, "_is_current", change)
    assert not bench.clean()
    assert len(log.files.segments) == 2 and log.files.segments[0].size
    names = [entry.name for entry in bench.disk.entries(log.files.path)]
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert bench.cleaned == {}


def test_nothing_is_cleaned_where_the_cleaner_is_off():
    async def run():
        config = BrokerConfig(log_cleaner_enable=False)
        cleaner = LogCleaner(
            view_of(config=config),
            [],
            Logs(None),
            simulated_environment(clock=ManualClock(NOW)),
            lambda _: None,
        )
        cleaner.start()
        assert not cleaner._workers
        await cleaner.stop()

    asyncio.run(run())


def refuse(error, *operations, path=""):
    return lambda operation, name: error if operation in operations and path in name else None


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EINVAL, "an argument is wrong"),
        OSError(errno.EMFILE, "too many open files"),
        OSError(errno.EACCES, "not allowed"),
        OSError(errno.ENOENT, "gone"),
        OSError(errno.EFBIG, "too large"),
        OSError("no number at all"),
        TypeError("a bug of ours"),
        AssertionError("another"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("operation", ["open", "read", "write", "sync", "sync_directory", "rename"])
def test_a_cleaning_that_fails_harms_its_own_log_only(bench, caplog, error, operation):
    bad, good = bench.make("bad", 9), bench.make("good", 5)
    bench.disk.refuse = refuse(error, operation, path="bad-0")
    bench.clean(rounds=3)
    assert bench.directory.failure is None
    assert bench.cleaner.uncleanable.keys() == {bad.topic_partition}
    assert bench.cleaned == {good.topic_partition: 5}
    (line,) = [r for r in caplog.records if "could not be cleaned" in r.getMessage()]
    assert "bad-0" in line.getMessage() and str(error.args[-1]) in line.getMessage()
    bench.disk.mend()
    bench.clock.advance(60_000)
    assert bad.append_as_leader(encode_batch([Record(b"k", b"more", NOW)]), 0).base_offset == 9
    assert bench.clean()
    assert bench.directory.cleaned_to[bad.topic_partition] == 9
    assert bad.read(0, 1 << 20, 10).size and not bench.cleaner.uncleanable


def test_a_cleaning_that_failed_is_tried_again_later_and_later(bench):
    log = bench.make("bad", 9)
    bench.disk.refuse = refuse(OSError(errno.EINVAL, "wrong"), "write", path="bad-0")
    tries = []
    bench.clean(rounds=1)
    config_backoff = BrokerConfig().log_cleaner_backoff_ms

    def at(number):
        tries.append(bench.cleaner._setbacks[log.topic_partition].failures if number else 0)
        bench.clock.advance(2 * config_backoff)

    bench.clean(rounds=7, before_each=at)
    assert tries == [0, 1, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(("number", "longest_ms"), [(errno.ENOSPC, 300_000), (errno.EINVAL, 3_600_000)])
def test_a_cleaning_that_found_the_disk_full_is_tried_again_soon_after_there_is_space(
    bench, number, longest_ms
):
    log = bench.make("bad", 9)
    bench.disk.refuse = refuse(OSError(number, "no"), "write", path="bad-0")
    waits = []

    def after(_number):
        if setback := bench.cleaner._setbacks.get(log.topic_partition):
            waits.append(setback.wait_ms)
            bench.clock.advance(setback.wait_ms)

    bench.clean(rounds=12, before_each=after)
    assert len(waits) == 11
    assert waits == sorted(waits) and waits[-1] == longest_ms


@pytest.mark.parametrize("failing", range(24))
def test_a_swap_that_an_error_interrupts_is_completed_or_undone(bench, failing):
    log = bench.make("a", 9)
    calls = []
    on_loop = []

    def ask(operation, name):
        if (
            operation == "sync_directory"
            and "a-0" in name
            and threading.current_thread() is threading.main_thread()
        ):
            on_loop.append(name)
        if operation in ("rename", "sync_directory") and "a-0" in name:
            calls.append(name)
            if len(calls) - 1 == failing:
                return OSError(errno.ENOMEM, "no memory")
        return None

    bench.disk.refuse = ask
    bench.clean()
    bench.disk.mend()
    log.append_as_leader(encode_batch([Record(b"other", b"1", NOW)]), 0)
    log.flush()  # removes no file that a read needs
    read = log.read(0, 1 << 20, 9)
    assert read.size, "the records are there, whatever their files are called"
    bench.clock.advance(60_000)
    bench.clean(rounds=2)
    assert bench.directory.failure is None and log.failure is None and log.files.swap is None
    assert bench.cleaned == {log.topic_partition: 9}
    assert not [n for n in bench.names(log) if n.endswith((".cleaned", ".swap", ".deleted"))]
    assert log.files.segments[0].size < 100
    assert not on_loop, "folders are fsynced in threads"


@pytest.mark.parametrize("failing", range(16))
def test_a_log_whose_swap_an_error_interrupted_opens_after_a_stop(bench, failing):
    log = bench.make("a", 9)
    calls = []

    def ask(operation, name):
        if operation in ("rename", "sync_directory") and "a-0" in name:
            calls.append(name)
            if len(calls) - 1 == failing:
                return OSError(errno.EMFILE, "too many open files")
        return None

    bench.disk.refuse = ask
    bench.clean()
    bench.disk.mend()
    bench.directory.close()
    assert bench.directory.closed_cleanly
    again = Bench(bench.disk)
    opened = again.directory.load(log.topic_partition, log.topic_id, CONFIG)
    assert (opened.log_start_offset, opened.log_end_offset) == (0, 9)
    assert opened.read(8, 1 << 20, 9).size
    assert not [n for n in again.names(opened) if n.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_does_not_lose_a_record_with_the_marker_of_the_transaction_that_replaced_it(bench, seed):
    log = bench.make("a", 1)
    replaced = encode_batch(
        [Record(b"k", b"new", NOW)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(replaced, 0)
    log.advance_high_watermark(2)
    log.roll()
    log.flush()
    marker = encode_end_transaction(EndTransaction(True, 0), producer_id=7, producer_epoch=0, timestamp=NOW)
    log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
    log.advance_high_watermark(3)
    bench.clean()
    log.abandon()
    bench.disk.crash(random.Random(seed))
    again = Bench(bench.disk)
    opened = again.directory.load(log.topic_partition, log.topic_id, CONFIG)
    is_committed = opened.log_end_offset == 3
    first = next(header for _, header in opened.files.segments[0].headers(0))
    assert is_committed or (first.base_offset, first.record_count) == (0, 1), "both values are gone"
    opened.advance_high_watermark(opened.log_end_offset)
    opened.flush()
    again.partitions.append(SimpleNamespace(log=opened, unavailable=None))
    assert again.clean() is is_committed


@pytest.fixture
def interrupted(monkeypatch):
    """Create a log of three segments, and stop its first cleaning after the first of them."""
    put_in_place = LogCleaner._put_in_place

    async def put_one_in_place(self, log, cleaning, cleaned, group):
        await put_in_place(self, log, cleaning, cleaned, group)
        raise CleaningCancelled("the broker stops")

    monkeypatch.setattr(LogCleaner, "_put_in_place", put_one_in_place)

    def interrupt(bench):
        log = bench.make("a", 5)
        for number in range(10):
            log.append_as_leader(encode_batch([Record(b"k", b"%d" % number, NOW)]), 0)
            log.advance_high_watermark(log.log_end_offset)
            if number % 5 == 4:
                log.roll()
        log.flush()
        size = log.files.segments[0].size
        log.config = log.config.replace(segment_bytes=size)
        assert not bench.clean()
        assert [segment.size for segment in log.files.segments] == [0, size, size, 0]
        return log

    return interrupt


def test_log_check_finds_no_damage_in_a_log_whose_first_cleaning_was_interrupted(tmp_path, interrupted):
    bench = Bench(OsFileSystem(), str(tmp_path))
    interrupted(bench)
    bench.directory.close()
    (partition,) = check_directories([tmp_path]).partitions
    assert [finding for finding in partition.findings if finding.is_damage] == []


def test_a_log_whose_first_cleaning_was_interrupted_opens_though_it_is_not_compacted_any_more(
    bench, interrupted
):
    log = interrupted(bench)
    log.abandon()
    bench.directory._lock.release()
    again = Bench(bench.disk)
    opened = again.directory.load(log.topic_partition, log.topic_id, TopicConfig(cleanup_policy=("delete",)))
    assert (opened.log_start_offset, opened.log_end_offset) == (0, 15)
