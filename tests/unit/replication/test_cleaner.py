"""What the cleaner does when a log, its disk or its settings are in the way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.clock import ManualClock
from barnabas.config import BrokerConfig, TopicConfig
from barnabas.records import Record, encode_batch
from barnabas.replication.cleaner import LogCleaner
from barnabas.storage import LogDirectory, OpenFiles
from barnabas.testing.faulty_disk import FaultyDisk
from barnabas.types import TopicPartition

NOW = 1_700_000_000_000
CONFIG = TopicConfig(cleanup_policy=("compact",), delete_retention_ms=0, min_cleanable_dirty_ratio=0.3)


class Logs:
    """What the cleaner asks of a LogManager, with the work done at once."""

    def __init__(self, directory):
        self.directory = directory

    def directory_of(self, _):
        return self.directory

    async def checkpoint_one(self, directory, of):
        of(directory).run()

    def run_later(self, task, _):
        task.run()


class Bench:
    def __init__(self):
        self.disk = FaultyDisk()
        self.clock = ManualClock(NOW)
        files = OpenFiles(self.disk)
        self.directory = LogDirectory.open(files, "/data", self.clock, cluster_id="c", node_id=1)
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

    def clean(self, rounds=1):
        """Clean what is dirtiest, so many times; whether the last time anything was."""

        async def run():
            config = BrokerConfig()
            self.cleaner = LogCleaner(
                lambda: config, self.partitions, Logs(self.directory), self.clock, self.flushed.append
            )
            try:
                for _ in range(rounds):
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
    assert bench.directory.cleaned_to == {log.topic_partition: 5 for log in (little, much)}


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
    assert bench.directory.cleaned_to == {sound.topic_partition: 5}
    assert bench.directory.failure is None


def test_a_full_disk_ends_a_cleaning_and_nothing_else(bench):
    log = bench.make("a", 50)
    bench.disk.space = 10
    assert not bench.clean()
    assert bench.directory.failure is None and not bench.cleaner.uncleanable
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
    assert bench.directory.cleaned_to == {}


def test_nothing_is_cleaned_where_the_cleaner_is_off():
    async def run():
        config = BrokerConfig(log_cleaner_enable=False)
        cleaner = LogCleaner(lambda: config, [], Logs(None), ManualClock(NOW), lambda _: None)
        cleaner.start()
        assert not cleaner._workers
        await cleaner.stop()

    asyncio.run(run())
