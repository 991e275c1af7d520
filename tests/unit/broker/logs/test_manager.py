"""The logs of a broker in several log directories: their places, and the lives of their files."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import string
import threading

import pytest
from simulation.blocking import VirtualThreads
from simulation.clocks import VirtualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from simulation.virtual_time import run_virtual
from tests.unit.broker.logs.bench import CONFIG, DELAY_MS, AtOnce, Bench, append, hosted, incomplete

from barnabas.base.environment.blocking import ThreadPool
from barnabas.base.environment.filesystem import read_file
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig, TopicConfig
from barnabas.broker.logs import LogDirectory, manager
from barnabas.broker.logs.manager import LogManager, files_for_connections
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.incomplete import Mark, read_mark, write_mark
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.kafka.records import Record, encode_batch


def test_new_logs_go_where_the_fewest_are_and_never_where_it_is_offline(play):
    async def scenario(bench):
        first, second = bench.logs.directories
        for name in "pqrs":
            bench.create(name)
        assert (len(first.logs), len(second.logs)) == (2, 2)
        first.env.fail(OSError("gone"))
        for name in "tu":
            bench.create(name)
        assert (len(first.logs), len(second.logs)) == (2, 4)
        await asyncio.sleep(0)
        assert bench.offline == ["/a"]
        second.env.fail(OSError("gone"))
        with pytest.raises(KafkaError) as refused:
            bench.create("v")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario)


def test_deleted_log_is_gone_at_once_and_its_files_after_the_delay(play):
    async def scenario(bench):
        bench.create("t", records=3)
        bench.logs.delete(TopicPartition("t", 0))
        assert bench.logs.get(TopicPartition("t", 0)) is None
        assert list(bench.logs) == []
        assert not any(name == "t-0" for name in bench.folders("/a"))
        await asyncio.sleep(DELAY_MS / 1000 - 1)
        assert any(name.startswith("t-0.") for name in bench.folders("/a"))
        await asyncio.sleep(2)
        assert not any(name.startswith("t-0") for name in bench.folders("/a"))

    play(scenario)


def test_a_start_after_a_kill_with_a_full_disk_leaves_each_folder_its_topic(play):
    async def scenario(bench):
        bench.create("t", records=3)
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk)
        full = OSError(errno.ENOSPC, "the disk is full")
        # the small file is the one that the last block was not enough for
        bench.disk.refuse = lambda operation, path: (
            full if operation == "write" and path.endswith("partition.metadata") else None
        )
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        bench.disk.process_ended()
        content = read_file(bench.disk, "/a/t-0/partition.metadata")
        assert checkpoints.decode_partition_metadata(content) == b"t" * 16

    play(scenario, "/a")


def test_a_folder_without_its_topic_id_is_not_opened_for_another_topic_than_the_checkpoints_name(
    play, caplog
):
    async def scenario(bench):
        bench.create("t", records=3)
        bench.logs.close()
        bench.disk.remove("/a/t-0/partition.metadata")
        partition = TopicPartition("t", 0)
        for topic_id, is_open in ((b"u" * 16, False), (b"t" * 16, True)):
            again = Bench("/a", disk=bench.disk)
            await again.logs.load({partition: topic_id}, lambda _: CONFIG)
            assert (again.logs.get(partition) is not None) is is_open
            again.logs.close()

    play(scenario, "/a")
    assert "t-0 in /a cannot be opened" in caplog.text


def test_a_stop_flushes_the_logs_in_a_thread():
    """Many fsyncs take long, and the session with ZooKeeper needs the event loop."""

    async def scenario():
        disk, pool = FaultyDisk(), ThreadPool("disk", 1)
        environment = simulated_environment(clock=VirtualClock(asyncio.get_running_loop()), filesystem=disk)
        logs = LogManager(BrokerConfig(node_id=1, log_dirs=("/a",)), environment, pool, lambda path: None)
        logs.open("c")
        log = logs.create(TopicPartition("t", 0), b"t" * 16, CONFIG)
        log.append_as_leader(encode_batch([Record(None, b"1", 0)]), 0)
        used = set()

        def note(operation, path):
            used.add((operation, threading.current_thread() is threading.main_thread()))

        disk.refuse = note
        await logs.stop()
        await pool.close()
        return used, logs.directories[0].closed_cleanly

    used, closed_cleanly = asyncio.run(scenario())
    assert closed_cleanly
    assert {is_loop for _, is_loop in used} == {False}
    assert {operation for operation, _ in used} >= {"write", "sync"}


def test_files_whose_delay_is_not_over_at_the_stop_are_left_to_the_next_start(play):
    async def scenario(bench):
        bench.create("t", records=3)
        bench.logs.delete(TopicPartition("t", 0))
        await bench.logs.stop()
        await asyncio.sleep(2 * DELAY_MS / 1000)
        assert any(name.startswith("t-0.") for name in bench.folders("/a"))
        again = Bench(disk=bench.disk)
        await again.logs.load({}, lambda _: CONFIG)
        await asyncio.sleep(0)
        assert not any(name.startswith("t-0") for name in again.folders("/a"))
        again.logs.close()

    play(scenario)


def test_retention_of_one_log_does_not_depend_on_that_of_another(play, caplog, monkeypatch):
    def delete(log, now_ms, synced=None):
        if log.topic_partition.topic == "p":
            raise RuntimeError("bug")
        return delete_old_segments(log, now_ms, synced)

    async def scenario(bench):
        logs = [bench.create(name, records=5) for name in "pqrs"]
        await asyncio.sleep(10)
        monkeypatch.setattr(manager, "delete_old_segments", delete)
        bench.logs.directories[1].env.fail(OSError("gone"))  # has the second and the fourth
        await bench.drop_expired()
        assert [log.log_start_offset for log in logs] == [0, 0, 5, 0]
        assert "p-0" in caplog.text
        assert len(bench.segments(logs[2])) > 1  # renamed, until readers are done with them
        await asyncio.sleep(DELAY_MS / 1000 + 1)
        assert len(bench.segments(logs[2])) == 1

    play(scenario)


class Noted(AtOnce):
    """A pool that tells whether a call runs."""

    is_at_work = False

    def run(self, work, /, *args, **kwargs):
        self.is_at_work = True
        try:
            return super().run(work, *args, **kwargs)
        finally:
            self.is_at_work = False


def test_retention_fsyncs_folders_in_threads(play):
    async def scenario(bench):
        logs = [bench.create(name, records=5) for name in "pqrs"]
        pool = bench.logs._disk = Noted()
        folders = {log.files.path: [] for log in logs}

        def ask(operation, path):
            if operation == "sync_directory" and path in folders:
                folders[path].append(pool.is_at_work)

        bench.disk.refuse = ask
        await asyncio.sleep(10)
        await bench.drop_expired()
        assert [log.log_start_offset for log in logs] == [5, 5, 5, 5]
        assert set(map(tuple, folders.values())) == {(True,)}

    play(scenario)


def test_retention_of_a_log_whose_folder_cannot_be_fsynced_keeps_its_segments(play, caplog):
    async def scenario(bench):
        log = bench.create("p", records=5)
        bench.disk.refuse = lambda operation, path: (
            OSError(errno.ENOMEM, "no memory")
            if operation == "sync_directory" and path == log.files.path
            else None
        )
        await asyncio.sleep(10)
        await bench.drop_expired()
        assert log.log_start_offset == 0 and not log.is_offline
        assert "no memory" in caplog.text
        bench.disk.refuse = None
        await bench.drop_expired()
        assert log.log_start_offset == 5

    play(scenario)


def test_a_start_after_a_crash_can_tell_that_retention_has_removed_segments(play, caplog):
    async def scenario(bench):
        bench.create("t", records=5).flush()
        await asyncio.sleep(10)
        await bench.drop_expired()
        await asyncio.sleep(DELAY_MS / 1000 + 1)
        bench.disk.crash(random.Random(1))
        again = Bench(disk=bench.disk)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        assert again.logs.get(TopicPartition("t", 0)).log_start_offset == 5
        assert "are missing, and retention" not in caplog.text
        again.logs.close()

    play(scenario)


def test_producers_that_have_been_silent_for_long_are_forgotten(play):
    async def scenario(bench):
        log = bench.create("t", records=1, producer_id=7, producer_epoch=0, base_sequence=0)
        await asyncio.sleep(10)
        await bench.logs.expire_producers(11_000)
        assert len(log.producers) == 1
        await bench.logs.expire_producers(9_000)
        assert len(log.producers) == 0

    play(scenario)


def test_checkpoint_of_a_directory_that_fails_does_not_keep_the_others_from_theirs(play):
    async def scenario(bench):
        for name in "pq":
            bench.create(name, records=2).flush()
        first, second = bench.logs.directories
        written = []

        def checkpoint(directory):
            class Task:
                is_needed = True

                def prepare(self):
                    return ()

                def run(self):
                    written.append(directory)
                    if directory is first:
                        raise OSError("no")

            return Task()

        await bench.checkpoint(checkpoint)
        assert written == [first, second]
        first.env.fail(OSError("gone"))
        written.clear()
        await bench.checkpoint(LogDirectory.recovery_point_checkpoint)
        await bench.checkpoint(checkpoint)
        assert written == [second]

    play(scenario)


def test_only_what_the_cluster_places_on_this_broker_is_opened():
    async def scenario():
        bench = Bench()
        for name in "pqr":
            bench.create(name, records=2)
        await bench.logs.stop()
        again = Bench(disk=bench.disk)
        await again.logs.load(hosted("p"), lambda _: CONFIG)
        assert [log.topic_partition for log in again.logs] == [TopicPartition("p", 0)]
        assert again.logs.get(TopicPartition("p", 0)).log_end_offset == 2
        left = again.folders("/a") + again.folders("/b")
        assert {"q-0", "r-0"} <= set(left)  # its metadata may be what was lost
        again.logs.close()

    asyncio.run(scenario())


def test_logs_behind_one_that_is_deleted_unknown_or_anothers_are_opened():
    async def scenario():
        bench = Bench("/a")
        for name in "opqrs":
            bench.create(name, records=2)
        bench.logs.close()
        again = Bench("/a", disk=bench.disk)
        known = {**hosted("qs"), TopicPartition("r", 0): b"other topic id.."}
        await again.logs.load(known, lambda _: CONFIG, is_deleted=lambda _, topic_id: topic_id == b"o" * 16)
        assert sorted(log.topic_partition.topic for log in again.logs) == ["q", "s"]
        assert {"p-0", "r-0"} <= set(again.folders("/a")) and "o-0" not in again.folders("/a")
        with pytest.raises(KafkaError):  # what lies there may be its records
            again.create("r")
        again.logs.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("limit", "left"),
    [(None, None), (1000, 1000 - 500 - 64), (100, 1), (1_000_000, 1_000_000 - 16_384 - 64)],
)
def test_connections_get_the_files_that_logs_and_the_rest_leave(limit, left):
    disk = FaultyDisk()
    disk.open_files_limit = limit
    assert files_for_connections(disk) == left


def test_what_checkpoints_say_of_a_deleted_topic_does_not_hold_for_a_new_one_of_its_name(caplog):
    """The disk was full, or the broker died, before the checkpoints could be written again."""

    async def scenario():
        bench = Bench("/a")
        for name in ("g", "e", "k"):
            bench.create(name, records=3).flush()
        bench.logs.get(TopicPartition("g", 0)).advance_log_start(2)
        for of in (
            LogDirectory.recovery_point_checkpoint,
            LogDirectory.log_start_checkpoint,
            LogDirectory.high_watermark_checkpoint,
        ):
            await bench.checkpoint(of)
        for name in ("g", "e"):
            bench.logs.delete(TopicPartition(name, 0))
        config = TopicConfig(segment_bytes=10_000)
        new = bench.logs.create(TopicPartition("g", 0), b"another topic id", config)
        new.append_as_leader(encode_batch([Record(None, b"new", bench.clock.now_ms())]), 0)
        new.flush()
        bench.disk.crash(random.Random(1))
        again = Bench("/a", disk=bench.disk)
        ids = {**hosted("k"), TopicPartition("g", 0): b"another topic id"}
        ids[TopicPartition("e", 0)] = b"again a topic id"
        await again.logs.load(ids, lambda _: config)
        assert again.logs.get(TopicPartition("k", 0)).log_end_offset == 3
        reopened = again.logs.get(TopicPartition("g", 0))
        assert (reopened.log_start_offset, reopened.log_end_offset) == (0, 1)
        assert again.logs.create(TopicPartition("e", 0), b"again a topic id", config).log_end_offset == 0
        again.logs.close()

    asyncio.run(scenario())
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_folder_that_is_missing_counts_as_lost_only_for_the_topic_that_the_checkpoint_means():
    async def scenario():
        bench = Bench("/a")
        bench.create("t", records=3).flush()
        bench.logs.close()
        bench.disk.remove_tree("/a/t-0")
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        with pytest.raises(KafkaError):
            again.create("t")
        again.logs.close()
        other = Bench("/a", disk=bench.disk)
        await other.logs.load({TopicPartition("t", 0): b"another topic id"}, lambda _: CONFIG)
        assert other.logs.create(TopicPartition("t", 0), b"another topic id", CONFIG).log_end_offset == 0
        other.logs.close()

    asyncio.run(scenario())


def test_truncations_that_come_together_lower_their_recovery_points_in_one_write_before_they_cut(play):
    async def scenario(bench):
        logs = [bench.create(f"t{number}", records=5) for number in range(20)]
        for log in logs:
            log.flush()
        await bench.checkpoint(LogDirectory.recovery_point_checkpoint)
        writes = []
        bench.disk.refuse = lambda operation, path: (
            writes.append(operation) if "recovery-point" in path else None
        )
        await asyncio.gather(*(bench.logs.prepare_truncation(log, 2) for log in logs))
        assert writes.count("rename") <= 2
        written = offsets_in(bench.disk, "/a/recovery-point-offset-checkpoint")
        assert set(written.values()) == {2}
        writes.clear()
        for log in logs:
            truncate_to(log, 2, sync=False)
            assert log.files.is_cut
        assert writes == []
        flush = logs[0].prepare_flush()
        flush.run()
        logs[0].complete_flush(flush)
        assert not logs[0].files.is_cut
        assert logs[0].recovery_point == 2

    play(scenario, "/a")


def test_a_recovery_point_that_a_full_disk_refused_is_written_when_the_cut_is_tried_again(play):
    """Simulation seed 71094: the log was truncated, and could not be opened after a kill."""

    async def scenario(bench):
        log = bench.create("t", records=5)
        log.flush()
        await bench.checkpoint(LogDirectory.recovery_point_checkpoint)
        bench.disk.refuse = lambda operation, path: (
            OSError(errno.ENOSPC, "the disk is full") if "recovery-point" in path else None
        )
        with pytest.raises(KafkaError, match="the disk is full"):
            await bench.logs.prepare_truncation(log, 2)
        bench.disk.refuse = None
        await bench.logs.prepare_truncation(log, 2)
        assert offsets_in(bench.disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 2}

    play(scenario, "/a")


def test_a_cleaned_offset_that_a_full_disk_refused_is_written_when_the_cut_is_tried_again(play):
    """If it stayed, the cleaner would take the records after the truncation for clean ones after a crash."""

    async def scenario(bench):
        log = bench.create("t", records=5)
        log.flush()
        directory = bench.logs.directory_of(log.topic_partition)
        directory.note_clean(log.topic_partition, 4)
        await bench.checkpoint(LogDirectory.cleaned_checkpoint)
        bench.disk.refuse = lambda operation, path: (
            OSError(errno.ENOSPC, "the disk is full") if "cleaner-offset" in path else None
        )
        with pytest.raises(KafkaError, match="the disk is full"):
            truncate_to(log, 2)
        bench.disk.refuse = None
        truncate_to(log, 2)
        assert offsets_in(bench.disk, "/a/cleaner-offset-checkpoint") == {("t", 0): 2}

    play(scenario, "/a")


def test_what_is_not_known_to_be_on_disk_is_cut_without_a_write(play):
    async def scenario(bench):
        log = bench.create("t", records=5)
        bench.disk.refuse = lambda operation, path: pytest.fail(operation) if "recovery" in path else None
        await bench.logs.prepare_truncation(log, 2)
        truncate_to(log, 2, sync=False)

    play(scenario, "/a")


def test_a_flush_that_overlaps_a_truncation_does_not_raise_the_recovery_point_again(play):
    async def scenario(bench):
        log = bench.create("t", records=5)
        log.flush()
        append(bench, log)
        flush = log.prepare_flush()
        await bench.logs.prepare_truncation(log, 2)
        flush.run()
        log.complete_flush(flush)
        assert log.recovery_point == 2

    play(scenario, "/a")


STARTS = "/a/log-start-offset-checkpoint"


def refuse_starts(operation, path):
    return OSError(errno.ENOSPC, "the disk is full") if "log-start" in path else None


async def after_crash(bench):
    """Return the log of the topic `t` after a crash and a start of its broker."""
    log = bench.logs.get(TopicPartition("t", 0))
    log.abandon()
    bench.logs.directories[0]._lock.release()
    again = Bench("/a", disk=bench.disk, is_clustered=True)
    await again.logs.load({log.topic_partition: log.topic_id}, lambda _: CONFIG)
    return again.logs.get(log.topic_partition)


def test_a_truncation_below_the_start_lowers_the_start_on_disk_first(play):
    """With the old start, the log would seem to have all records before it, and would win elections."""

    async def scenario(bench):
        log = bench.create("t", records=10)
        log.flush()
        log.advance_log_start(8)
        await bench.logs.store_log_start(log)
        truncation = await bench.logs.prepare_truncation(log, 5)
        assert offsets_in(bench.disk, STARTS) == {("t", 0): 5}
        truncate_to(log, 5, truncation=truncation)
        append(bench, log)
        log = await after_crash(bench)
        assert (log.log_start_offset, log.log_end_offset) == (5, 6)

    play(scenario, "/a")


def test_a_deletion_that_a_truncation_has_made_invalid_deletes_nothing(play):
    async def scenario(bench):
        log = bench.create("t", records=10)
        directory = bench.logs.directory_of(log.topic_partition)
        async with directory.checkpoints.lock:
            storing = asyncio.ensure_future(
                bench.logs.checkpoints.store_log_starts(directory, [(log, 3), (log, 8)])
            )
            await asyncio.sleep(0)
            truncate_to(log, 5)
        await storing
        assert offsets_in(bench.disk, STARTS) == {("t", 0): 3}  # that deletion is still valid

    play(scenario, "/a")


def test_a_deletion_above_the_end_of_a_planned_truncation_deletes_nothing(play):
    async def scenario(bench):
        log = bench.create("t", records=10)
        log.flush()
        directory = bench.logs.directory_of(log.topic_partition)
        async with directory.checkpoints.lock:
            storing = asyncio.ensure_future(bench.logs.checkpoints.store_log_starts(directory, [(log, 8)]))
            cutting = asyncio.ensure_future(bench.logs.prepare_truncation(log, 5))
            await asyncio.sleep(0)
        truncate_to(log, 5, truncation=await cutting)
        await storing
        assert offsets_in(bench.disk, STARTS) == {}

    play(scenario, "/a")


def test_a_checkpoint_that_comes_between_the_lower_start_and_the_truncation_has_it(play):
    async def scenario(bench):
        log = bench.create("t", records=10)
        log.flush()
        log.advance_log_start(8)
        await bench.logs.store_log_start(log)
        cutting = asyncio.ensure_future(bench.logs.prepare_truncation(log, 5))
        others = [
            asyncio.ensure_future(bench.checkpoint(LogDirectory.log_start_checkpoint)) for _ in range(3)
        ]
        truncate_to(log, 5, truncation=await cutting)
        await asyncio.gather(*others)
        assert offsets_in(bench.disk, STARTS) == {("t", 0): 5}

    play(scenario, "/a")


def test_a_lower_start_that_a_full_disk_refused_is_stored_when_the_cut_is_tried_again(play):
    async def scenario(bench):
        log = bench.create("t", records=10)
        log.flush()
        log.advance_log_start(8)
        await bench.logs.store_log_start(log)
        bench.disk.refuse = refuse_starts
        with pytest.raises(KafkaError, match="the disk is full"):
            await bench.logs.prepare_truncation(log, 5)
        bench.disk.refuse = None
        await bench.checkpoint(LogDirectory.log_start_checkpoint)
        assert offsets_in(bench.disk, STARTS) == {("t", 0): 8}  # the log is not truncated
        await bench.logs.prepare_truncation(log, 5)
        assert offsets_in(bench.disk, STARTS) == {("t", 0): 5}

    play(scenario, "/a")


async def forget_start(bench):
    """Return a log that has started at 8, and whose start its file name shows: it needs no entry any more."""
    log = bench.create("t", records=10)
    log.flush()
    log.advance_log_start(8)
    await bench.logs.store_log_start(log)
    bench.disk.refuse = refuse_starts
    await bench.drop_expired()
    log.flush()
    return log


def test_a_truncation_lowers_a_start_that_only_the_file_still_has(play):
    async def scenario(bench):
        log = await forget_start(bench)
        await bench.checkpoint(LogDirectory.log_start_checkpoint)
        bench.disk.refuse = None
        assert not bench.logs.directories[0].checkpoints.log_starts
        assert offsets_in(bench.disk, STARTS) == {("t", 0): 8}
        truncate_to(log, 5, truncation=await bench.logs.prepare_truncation(log, 5))
        for _ in range(2):
            append(bench, log)
        log.flush()
        log = await after_crash(bench)
        assert (log.log_start_offset, log.log_end_offset) == (5, 7)

    play(scenario, "/a")


def test_a_truncation_lowers_a_start_whose_removal_fails_meanwhile(play):
    async def scenario(bench):
        log = await forget_start(bench)
        directory = bench.logs.directories[0]
        async with directory.checkpoints.lock:
            writing = directory.log_start_checkpoint()
            for _ in writing.prepare():
                pass
            assert not directory.checkpoints.log_starts
            lowering = asyncio.ensure_future(bench.logs.checkpoints.lower_start(directory, log, 5))
            await asyncio.sleep(0)
            with pytest.raises(OSError, match="the disk is full"):
                writing.run()
        bench.disk.refuse = None
        await lowering
        assert offsets_in(bench.disk, STARTS).get(("t", 0), 0) <= 5

    play(scenario, "/a")


def test_a_lower_start_that_no_truncation_followed_is_reported_as_the_start_on_disk(play):
    async def scenario(bench):
        log = bench.create("t", records=10)
        log.flush()
        log.advance_log_start(8)
        await bench.logs.store_log_start(log)
        assert log.stored_start is None
        await bench.logs.prepare_truncation(log, 5)
        assert log.stored_start == 5

    play(scenario, "/a")


def test_a_lower_start_that_a_full_disk_refused_is_not_stored_for_a_deleted_log(play):
    """The start would hide the records of the next topic with that name."""

    async def scenario(bench):
        log = bench.create("t", records=10)
        log.flush()
        log.advance_log_start(8)
        await bench.logs.store_log_start(log)
        directory = bench.logs.directories[0]
        async with directory.checkpoints.lock:
            cutting = asyncio.ensure_future(bench.logs.prepare_truncation(log, 5))
            await asyncio.sleep(0)
        while not directory.checkpoints.planned_ends:
            await asyncio.sleep(0)
        bench.logs.delete(log.topic_partition)
        bench.disk.refuse = refuse_starts
        with pytest.raises(KafkaError, match="the disk is full"):
            await cutting
        bench.disk.refuse = None
        await bench.checkpoint(LogDirectory.log_start_checkpoint)
        assert offsets_in(bench.disk, STARTS) == {}
        log = bench.logs.create(TopicPartition("t", 0), b"u" * 16, CONFIG)
        for _ in range(3):
            append(bench, log)
        log.flush()
        log = await after_crash(bench)
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)

    play(scenario, "/a")


@pytest.mark.parametrize(("flushed", "start"), [(5, 8), (0, 0)])
def test_a_log_found_by_a_late_creation_does_not_end_before_its_start_on_disk(play, flushed, start):
    """The log ends at `flushed`. Without records, it has no leader epoch, and so it begins at its end."""

    async def scenario(bench):
        log = bench.create("t", records=flushed, config=TopicConfig())
        log.flush()
        size = log.size
        for _ in range(10 - flushed):
            append(bench, log)
        log.advance_high_watermark(10)
        log.advance_log_start(8)
        await bench.logs.store_log_start(log)
        log.abandon()
        bench.logs.directories[0]._lock.release()
        file = bench.disk.open("/a/t-0/00000000000000000000.log")
        file.truncate(size)
        file.close()
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load({}, lambda _: CONFIG)  # the metadata does not name the partition yet
        log = again.create("t")
        assert (log.log_start_offset, log.log_end_offset) == (start, start)
        await asyncio.sleep(1)
        assert offsets_in(bench.disk, STARTS) == {}
        for _ in range(2):
            append(again, log)
        log.flush()
        log = await after_crash(again)
        assert (log.log_start_offset, log.log_end_offset) == (start, start + 2)

    play(scenario, "/a")


def test_stop_waits_for_a_write_whose_waiters_have_gone(play):
    """Simulation seed 428: a fetcher was stopped while it truncated a log, and the thread pool closed."""

    async def scenario(bench):
        pool = VirtualThreads(random.Random(1)).pool("disk", 2)
        bench.logs._disk = bench.logs.checkpoints._disk = pool
        log = bench.create("t", records=5)
        log.flush()
        cutting = asyncio.ensure_future(bench.logs.prepare_truncation(log, 2))
        while not bench.logs.checkpoints._shared_writes:
            await asyncio.sleep(0.00001)
        cutting.cancel()
        await bench.logs.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await pool.close()

    play(scenario, "/a")


def test_a_stop_waits_for_a_checkpoint_whose_job_was_cancelled():
    """Two writers of a checkpoint would corrupt it, or fail: then the stop would not be marked as clean."""
    entered, release = threading.Event(), threading.Event()

    async def scenario():
        bench = Bench("/a")
        bench.logs._disk = bench.logs.checkpoints._disk = pool = ThreadPool("disk", 2)
        bench.create("t", records=5)

        def hold(operation, path):
            if operation == "sync" and path.endswith("recovery-point-offset-checkpoint.tmp"):
                bench.disk.refuse = None
                entered.set()
                release.wait()

        bench.disk.refuse = hold
        job = asyncio.ensure_future(bench.checkpoint(LogDirectory.recovery_point_checkpoint))
        await asyncio.to_thread(entered.wait)
        job.cancel()
        await asyncio.wait([job])
        stopping = asyncio.ensure_future(bench.logs.stop())
        await asyncio.wait([stopping], timeout=0.2)
        is_early = stopping.done()
        release.set()
        await stopping
        await pool.close()
        assert not is_early
        assert [each.closed_cleanly for each in bench.logs.directories] == [True]

    asyncio.run(scenario())


def hang_at(disk, path):
    """Let the next fsync of the file `path` wait. Return (event of the wait, event that ends it)."""
    entered, release = threading.Event(), threading.Event()

    def hold(operation, name):
        if operation == "sync" and name == path:
            disk.refuse = None
            entered.set()
            release.wait()

    disk.refuse = hold
    return entered, release


def test_a_truncation_does_not_write_a_checkpoint_that_a_thread_is_writing():
    """The thread's older recovery points would replace the lower one, or both would write the same file."""

    async def scenario():
        bench = Bench("/a")
        bench.logs._disk = bench.logs.checkpoints._disk = pool = ThreadPool("disk", 2)
        log = bench.create("t", records=5)
        log.flush()
        entered, release = hang_at(bench.disk, "/a/recovery-point-offset-checkpoint.tmp")
        job = asyncio.ensure_future(bench.checkpoint(LogDirectory.recovery_point_checkpoint))
        await asyncio.to_thread(entered.wait)
        try:
            with pytest.raises(KafkaError, match="are being written"):
                truncate_to(log, 2)
        finally:
            release.set()
            await job
            await pool.close()
        assert log.log_end_offset == 5
        truncate_to(log, 2)
        assert log.log_end_offset == 2
        assert offsets_in(bench.disk, "/a/recovery-point-offset-checkpoint") == {("t", 0): 2}

    asyncio.run(scenario())


def test_a_checkpoint_does_not_wait_for_that_of_a_directory_whose_disk_hangs():
    async def scenario():
        bench = Bench("/a", "/b")
        bench.logs._disk = bench.logs.checkpoints._disk = pool = ThreadPool("disk", 2)
        logs = [bench.create(name, records=5) for name in "tu"]
        for log in logs:
            log.flush()
        entered, release = hang_at(bench.disk, "/a/recovery-point-offset-checkpoint.tmp")
        job = asyncio.ensure_future(bench.checkpoint(LogDirectory.recovery_point_checkpoint))
        await asyncio.to_thread(entered.wait)
        try:
            await asyncio.wait_for(bench.logs.prepare_truncation(logs[1], 2), 5)
            assert offsets_in(bench.disk, "/b/recovery-point-offset-checkpoint") == {("u", 0): 2}
        finally:
            release.set()
            await job
            await pool.close()

    asyncio.run(scenario())


def test_deletions_on_a_disk_that_hangs_leave_threads_to_other_disks():
    async def scenario():
        bench = Bench("/a", "/b")
        pool = ThreadPool("disk", 4)
        bench.logs._disk = bench.logs.checkpoints._disk = bench.logs._directories._disk = pool
        config = TopicConfig(file_delete_delay_ms=0)
        names = [f"t{number}" for number in range(20)]
        for name in names:
            bench.create(name, records=1, config=config)
        released = threading.Event()

        def hang(_operation, path):
            if threading.current_thread() is not threading.main_thread() and path.startswith("/a"):
                released.wait()

        bench.disk.refuse = hang
        for name in names:
            bench.logs.delete(TopicPartition(name, 0))
        try:
            checkpoint = bench.logs.checkpoint(
                bench.logs.directories[1], LogDirectory.recovery_point_checkpoint
            )
            await asyncio.wait_for(checkpoint, 5)
            while any(name.endswith("-delete") for name in bench.folders("/b")):
                await asyncio.sleep(0.01)
            assert sum(name.endswith("-delete") for name in bench.folders("/a")) == 10
        finally:
            released.set()
        while any(name.endswith("-delete") for name in bench.folders("/a")):
            await asyncio.sleep(0.01)
        await pool.close()

    asyncio.run(scenario())


def test_a_stop_waits_for_a_deletion_that_runs_and_leaves_the_others_to_the_next_start():
    async def scenario():
        bench = Bench("/a")
        pool = ThreadPool("disk", 4)
        bench.logs._disk = bench.logs.checkpoints._disk = bench.logs._directories._disk = pool
        config = TopicConfig(file_delete_delay_ms=0)
        for name in "tuv":
            bench.create(name, config=config)
        entered, released = threading.Event(), threading.Event()

        def hang(_operation, path):
            if threading.current_thread() is not threading.main_thread() and "-delete" in path:
                entered.set()
                released.wait()

        bench.disk.refuse = hang
        for name in "tuv":
            bench.logs.delete(TopicPartition(name, 0))
        while not entered.is_set():
            await asyncio.sleep(0.01)
        await bench.logs.stop()
        released.set()
        await pool.close()
        bench.disk.refuse = None
        assert sum(name.endswith("-delete") for name in bench.folders("/a")) == 2
        again = Bench("/a", disk=bench.disk)
        await again.logs.load({}, lambda _: config)
        await asyncio.sleep(0.1)
        assert not any(name.endswith("-delete") for name in again.folders("/a"))
        await again.logs.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("flush_messages", [1, 1000])
def test_what_a_crash_has_left_is_fsynced_before_it_is_served_where_what_is_acknowledged_is(flush_messages):
    """Otherwise the broker could acknowledge the data when a producer sends it again, and a power cut could
    remove it.
    """

    async def scenario():
        bench = Bench("/a")
        config = TopicConfig(flush_messages=flush_messages)
        bench.create("t", records=3, config=config)
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("t"), lambda _: config)
        log = again.logs.get(TopicPartition("t", 0))
        assert (log.log_end_offset, log.recovery_point) == (3, 3 if flush_messages == 1 else 0)
        again.logs.close()

    run_virtual(scenario())


def offsets_in(disk, path):
    return checkpoints.decode_offsets(read_file(disk, path)).offsets


# --- a broker of a cluster: what is lost here is copied from others ---


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "its name"])
def test_a_replica_of_which_nothing_is_left_begins_anew_and_is_registered_until_it_is_in_sync(play, left):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.create("u", records=3).flush()
        bench.logs.close()
        for entry in bench.disk.entries("/a/t-0"):
            if left != "its name" or entry.name != "partition.metadata":
                bench.disk.remove(f"/a/t-0/{entry.name}")
        if left == "nothing":
            bench.disk.remove_tree("/a/t-0")
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        again.logs.set_broker_epoch(5)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        log = again.logs.get(TopicPartition("t", 0))
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
        assert incomplete(again) == ["t-0"]
        assert again.logs.must_be_emptied(log)
        await again.logs.stop()

        again = Bench("/a", disk=bench.disk, is_clustered=True)
        assert again.logs.previous_epoch == 5
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        assert incomplete(again) == ["t-0"], "a restart before it has copied anything changes nothing"
        log = again.logs.get(TopicPartition("t", 0))
        await again.logs.note_emptied(log)
        assert not again.logs.must_be_emptied(log)
        log.append_as_follower(encode_batch([Record(None, b"1", 0)]))
        await again.logs.stop()

        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        log = again.logs.get(TopicPartition("t", 0))
        assert (incomplete(again), log.log_end_offset) == (["t-0"], 1)
        assert not again.logs.must_be_emptied(log), "it goes on with what it has copied"
        told = []
        again.logs.incomplete.on_change = lambda: told.append(incomplete(again))
        again.logs.incomplete.complete(TopicPartition("t", 0))
        await again.logs.stop()
        assert told == [[]]

        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        assert incomplete(again) == []
        again.logs.close()

    play(scenario, "/a")


def test_a_replica_does_not_begin_anew_where_one_of_its_two_folders_is_empty(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.close()
        other = Bench("/b", disk=bench.disk)
        other.create("t", records=3).flush()
        other.logs.close()
        for entry in bench.disk.entries("/a/t-0"):
            if entry.name.endswith(".log"):
                bench.disk.remove(f"/a/t-0/{entry.name}")
        again = Bench("/a", "/b", disk=bench.disk, is_clustered=True)
        full = OSError(errno.ENOSPC, "the disk is full")
        bench.disk.refuse = lambda _, path: full if path.startswith("/a/t-0/0") else None
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        assert again.logs.get(TopicPartition("t", 0)) is None
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == set()
        assert again.logs.get(TopicPartition("t", 0)) is None
        assert incomplete(again) == ["t-0"]
        again.logs.close()
        kept = Bench("/b", disk=bench.disk)
        await kept.logs.load(hosted("t"), lambda _: CONFIG)
        assert kept.logs.get(TopicPartition("t", 0)).log_end_offset == 3
        kept.logs.close()

    play(scenario, "/a")


def test_a_replica_that_cannot_begin_anew_on_a_full_disk_is_registered_and_begins_when_there_is_space(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.close()
        bench.disk.remove_tree("/a/t-0")
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        bench.disk.refuse = full_for("write")
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        assert await again.logs.open_postponed() == set()
        assert incomplete(again) == ["t-0"]
        with pytest.raises(KafkaError):
            again.create("t")
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == {TopicPartition("t", 0)}
        assert (incomplete(again), again.logs.get(TopicPartition("t", 0)).log_end_offset) == (["t-0"], 0)
        again.logs.close()

    play(scenario, "/a")


@pytest.mark.parametrize("is_gone", [False, True], ids=["not-opened", "not-created-again"])
def test_a_full_disk_has_a_few_lines_for_many_logs_and_counts_the_others(play, caplog, is_gone):
    names = string.ascii_letters[:30]

    async def scenario(bench):
        for name in names:
            log = bench.create(name, records=6)
            if is_gone:
                log.flush()
        await bench.checkpoint(LogDirectory.recovery_point_checkpoint)
        bench.disk.process_ended()
        for name in names if is_gone else ():
            bench.disk.remove_tree(f"/a/{name}-0")
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        bench.disk.refuse = full_for("write", "" if is_gone else "index")
        await again.logs.load(hosted(names), lambda _: CONFIG)
        assert len(incomplete(again)) == 30
        errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert len(errors) == 11
        assert all(" cannot be " in each and "-0" in each for each in errors[:10])
        assert errors[10].startswith("20 more logs ")
        caplog.clear()
        bench.disk.refuse = None
        assert len(await again.logs.open_postponed()) == 30
        assert len([each for each in caplog.records if each.levelno >= logging.INFO]) == 11
        again.logs.close()

    caplog.set_level(logging.DEBUG)
    play(scenario, "/a")


def full_for(operation, suffix=""):
    full = OSError(errno.ENOSPC, "the disk is full")
    return lambda asked, path: full if asked == operation and path.endswith(suffix) else None


@pytest.mark.parametrize("is_clustered", [False, True], ids=["alone", "in-a-cluster"])
def test_a_log_that_a_full_disk_kept_from_opening_is_opened_when_there_is_space(play, is_clustered):
    async def scenario(bench):
        for name in "tu":
            bench.create(name, records=6)
        await bench.checkpoint(LogDirectory.high_watermark_checkpoint)
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk, is_clustered=is_clustered)
        bench.disk.refuse = full_for("write", "index")
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        told = []
        again.logs.incomplete.on_change = lambda: told.append(incomplete(again))
        assert await again.logs.open_postponed() == set()
        assert incomplete(again) == (["t-0", "u-0"] if is_clustered else [])
        with pytest.raises(KafkaError):
            again.create("t")
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == hosted("tu").keys()
        assert told == [[]]
        log = again.logs.get(TopicPartition("t", 0))
        assert (log.log_end_offset, log.high_watermark) == (6, 6)
        assert await again.logs.open_postponed() == set()
        again.logs.close()
        assert all(directory.closed_cleanly for directory in again.logs.directories)

    play(scenario, "/a")


def scarce(*suffixes):
    """Let the process have no descriptor left to open such files."""
    scarce = OSError(errno.EMFILE, "too many open files")
    return lambda asked, path: scarce if asked == "open" and path.endswith(suffixes) else None


@pytest.mark.parametrize("is_clustered", [False, True], ids=["alone", "in-a-cluster"])
def test_a_start_with_too_few_open_files_to_tell_whose_a_folder_is_opens_it_later(play, caplog, is_clustered):
    async def scenario(bench):
        for name in "tu":
            bench.create(name, records=6)
        await bench.checkpoint(LogDirectory.high_watermark_checkpoint)
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk, is_clustered=is_clustered)
        bench.disk.refuse = scarce("t-0/partition.metadata")
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        assert again.logs.directories[0].failure is None
        assert again.logs.get(TopicPartition("u", 0)).log_end_offset == 6
        assert "allow the broker more open files" in caplog.text
        assert await again.logs.open_postponed() == set()
        with pytest.raises(KafkaError):
            again.create("t")
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == hosted("t").keys()
        log = again.logs.get(TopicPartition("t", 0))
        assert (log.log_end_offset, log.high_watermark) == (6, 6)
        again.logs.close()
        assert all(directory.closed_cleanly for directory in again.logs.directories)

    play(scenario, "/a")


def test_a_folder_read_late_is_not_opened_as_another_topics(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.close()
        again = Bench("/a", disk=bench.disk)
        bench.disk.refuse = scarce("t-0/partition.metadata")
        await again.logs.load({TopicPartition("t", 0): b"n" * 16}, lambda _: CONFIG)
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == set()
        assert again.logs.get(TopicPartition("t", 0)) is None
        assert list(await again.logs.topics_without_folder([b"t" * 16])) == []
        again.logs.close()
        kept = Bench("/a", disk=bench.disk)
        await kept.logs.load(hosted("t"), lambda _: CONFIG)
        assert kept.logs.get(TopicPartition("t", 0)).log_end_offset == 3
        kept.logs.close()

    play(scenario, "/a")


def test_a_folder_read_late_that_does_not_say_whose_it_is_is_not_opened(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.close()
        bench.disk.remove("/a/t-0/partition.metadata")
        again = Bench("/a", disk=bench.disk)
        bench.disk.refuse = scarce("t-0/partition.metadata")
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == set()
        assert again.logs.get(TopicPartition("t", 0)) is None
        again.logs.close()

    play(scenario, "/a")


def test_a_mark_read_late_counts(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.close()
        write_mark(bench.disk, "/a/t-0", Mark("it was repaired"))
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        bench.disk.refuse = scarce("t-0/partition.metadata", "t-0/barnabas-incomplete")
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == hosted("t").keys()
        opened = again.logs.get(TopicPartition("t", 0))
        assert incomplete(again) == ["t-0"] and again.logs.must_be_emptied(opened)
        again.logs.close()

    play(scenario, "/a")


def test_a_mark_that_is_written_while_its_topic_is_deleted_does_not_count_for_the_next_topic(play):
    """Simulation seed 1202095: after a kill of all brokers, the next topic had no leader."""

    async def scenario(bench):
        bench.create("t", records=3)
        bench.logs.close()
        write_mark(bench.disk, "/a/t-0", Mark("it was repaired"))
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        deleted = again.logs.get(TopicPartition("t", 0))
        again.disk.refuse = lambda _, path: recreate(again) if "incomplete" in path else None
        await again.logs.note_emptied(deleted)
        assert read_mark(again.disk, "/a/t-0") is not None
        again.logs.close()
        after = Bench("/a", disk=bench.disk, is_clustered=True)
        await after.logs.load({TopicPartition("t", 0): b"u" * 16}, lambda _: CONFIG)
        assert after.logs.get(TopicPartition("t", 0)) is not None
        assert incomplete(after) == []
        assert read_mark(after.disk, "/a/t-0") is None
        after.logs.close()

    def recreate(bench):
        bench.disk.refuse = None
        bench.logs.delete(TopicPartition("t", 0))
        append(bench, bench.logs.create(TopicPartition("t", 0), b"u" * 16, CONFIG))

    play(scenario, "/a")


def test_a_log_in_two_directories_waits_for_a_folder_that_is_read_late(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.close()
        other = Bench("/b", disk=bench.disk)
        other.create("t", records=5).flush()
        other.logs.close()
        again = Bench("/a", "/b", disk=bench.disk)
        bench.disk.refuse = scarce("/b/t-0/partition.metadata")
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        assert again.logs.get(TopicPartition("t", 0)) is None
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == hosted("t").keys()
        assert again.logs.get(TopicPartition("t", 0)).log_end_offset == 5
        again.logs.close()

    play(scenario, "/a")


def test_a_folder_of_no_topic_here_that_cannot_be_read_for_now_is_left_alone(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.create("u", records=3).flush()
        bench.logs.close()
        again = Bench("/a", disk=bench.disk)
        bench.disk.refuse = scarce("t-0/partition.metadata")
        await again.logs.load(
            hosted("u"), lambda _: CONFIG, is_deleted=lambda _, topic_id: topic_id == b"t" * 16
        )
        bench.disk.refuse = None
        assert again.logs.directories[0].failure is None
        assert list(await again.logs.topics_without_folder([b"t" * 16])) == []
        assert "t-0" in again.folders("/a")
        again.logs.close()

    play(scenario, "/a")


def test_a_log_that_is_damaged_is_not_tried_again(play):
    async def scenario(bench):
        bench.create("t", records=6).flush()
        bench.logs.close()
        again = Bench("/a", disk=bench.disk)
        bench.disk.refuse = lambda operation, path: (
            OSError(errno.EINVAL, "no") if path.endswith(".log") else None
        )
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        bench.disk.refuse = None
        assert await again.logs.open_postponed() == set()
        assert again.logs.get(TopicPartition("t", 0)) is None
        again.logs.close()

    play(scenario, "/a")


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_postponed_log_that_is_deleted_makes_way_for_the_next_topic_of_its_name(play, when):
    async def scenario(bench):
        bench.create("t", records=6)
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk)
        bench.disk.refuse = full_for("write", "index")
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        bench.disk.refuse = None
        partition = TopicPartition("t", 0)
        if when == "before":
            again.logs.delete(partition)
            assert await again.logs.open_postponed() == set()
        else:
            opening = asyncio.ensure_future(again.logs.open_postponed())
            for _ in range(2):  # a thread has it
                await asyncio.sleep(0)
            again.logs.delete(partition)
            assert again.logs.get(partition) is None
            with pytest.raises(KafkaError):
                again.create("t")
            assert await again.logs.topics_without_folder([b"t" * 16]) == set(), (
                "a crash would leave its folder"
            )
            assert await opening == {partition}
            assert await again.logs.topics_without_folder([b"t" * 16]) == {b"t" * 16}
        assert again.create("t").log_end_offset == 0
        again.logs.close()

    play(scenario, "/a")


def test_a_stop_waits_for_the_log_that_is_being_opened(play):
    async def scenario(bench):
        bench.create("t", records=6)
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk)
        bench.disk.refuse = full_for("write", "index")
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        bench.disk.refuse = None
        opening = asyncio.ensure_future(again.logs.open_postponed())
        for _ in range(2):  # a thread has it
            await asyncio.sleep(0)
        opening.cancel()
        await again.logs.stop()
        assert all(directory.closed_cleanly for directory in again.logs.directories)

    play(scenario, "/a")


def test_a_damaged_replica_is_registered_and_stays_for_an_operator_to_decide_on(play):
    async def scenario(bench):
        for name in "tu":
            bench.create(name, records=6).flush()
        bench.logs.close()
        segment = sorted(entry.name for entry in bench.disk.entries("/a/t-0") if entry.name.endswith(".log"))[
            0
        ]
        bench.disk.remove(f"/a/t-0/{segment}")
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("tu"), lambda _: CONFIG)
        assert (incomplete(again), again.logs.get(TopicPartition("t", 0))) == (["t-0"], None)
        again.logs.close()

    play(scenario, "/a")


def test_a_clean_stop_vouches_for_nothing_when_nobody_knows_which_logs_there_were(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.set_broker_epoch(5)
        bench.logs.close()
        bench.disk.remove("/a/recovery-point-offset-checkpoint")
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        assert again.logs.previous_epoch == -1
        again.logs.close()

    play(scenario, "/a")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_folder_that_does_not_say_whose_it_is_makes_way_for_the_topic_that_has_its_name(play, is_clean):
    """Simulation seed 100721: a power cut removed the partition.metadata, and the checkpoints name a deleted
    topic.
    """

    async def scenario(bench):
        await bench.logs.load({}, lambda _: CONFIG)
        bench.create("t", records=3).flush()
        await bench.checkpoint(LogDirectory.recovery_point_checkpoint)
        if is_clean:
            bench.logs.close()
        bench.disk.process_ended()
        bench.disk.remove("/a/t-0/partition.metadata")
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        partition, topic_id = TopicPartition("t", 0), b"u" * 16
        await again.logs.load({partition: topic_id}, lambda _: CONFIG)
        assert incomplete(again) == (["u-0"] if is_clean else [])
        log = again.logs.get(partition) or again.logs.create(partition, topic_id, CONFIG)
        assert (log.topic_id, log.log_end_offset) == (topic_id, 0)
        (stray,) = [name for name in again.folders("/a") if name.endswith("-stray")]
        assert [name for name in again.folders(f"/a/{stray}") if name.endswith(".log")]
        again.logs.close()

    play(scenario, "/a")


def start_at(offset):
    return lambda log: truncate_fully_and_start_at(log, offset)


def expire(log):
    log.advance_high_watermark(log.log_end_offset)
    delete_old_segments(log, 2**60).run()


async def leave_log(disk, path, records, epoch, empty=None):
    """Leave a log of t-0 in one directory: a crash at the end of a move leaves one in each of two.

    `empty` is a function that empties the log, or None.
    """
    bench = Bench(path, disk=disk)
    log = bench.create("t")
    for _ in range(records):
        log.append_as_leader(encode_batch([Record(None, bytes(100), bench.clock.now_ms())]), epoch)
    if empty is not None:
        empty(log)
        assert log.log_start_offset == log.log_end_offset
    log.flush()
    await bench.checkpoint(LogDirectory.recovery_point_checkpoint)
    bench.logs.close()


@pytest.mark.parametrize(
    ("records", "empty", "kept", "is_aside"),
    [
        pytest.param(0, start_at(10), "/a", True, id="no epoch and a higher end: the longest log"),
        pytest.param(0, start_at(5), "/b", False, id="no epoch and a lower end: contained in the other log"),
        pytest.param(10, expire, "/b", True, id="an earlier epoch and a higher end: kept aside"),
        pytest.param(5, expire, "/b", False, id="an earlier epoch and a lower end: contained"),
    ],
)
def test_an_emptied_log_is_compared_with_another_one_by_its_end(play, records, empty, kept, is_aside):
    """Barnabas 0.2.0 forgot the last leader epoch of a log without records."""

    async def scenario(bench):
        bench.logs.close()
        await leave_log(bench.disk, "/a", records, 4, empty)
        await leave_log(bench.disk, "/b", 8, 5)
        again = Bench("/a", "/b", disk=bench.disk)
        partition = TopicPartition("t", 0)
        await again.logs.load({partition: b"t" * 16}, lambda _: CONFIG)
        assert again.logs.directory_of(partition).path == kept
        folders = [*again.folders("/a"), *again.folders("/b")]
        assert [name.endswith("-stray") for name in folders if name.startswith("t-0.")] == [True] * is_aside
        again.logs.close()

    play(scenario, "/a", "/b")


def test_a_second_log_whose_folder_cannot_be_renamed_stays_where_it_is(play):
    async def scenario(bench):
        bench.logs.close()
        await leave_log(bench.disk, "/a", 5, 5)
        await leave_log(bench.disk, "/b", 8, 5)
        again = Bench("/a", "/b", disk=bench.disk)
        partition = TopicPartition("t", 0)
        bench.disk.refuse = lambda operation, path: (
            OSError(5, "I/O error") if (operation, path) == ("rename", "/a/t-0") else None
        )
        await again.logs.load({partition: b"t" * 16}, lambda _: CONFIG)
        bench.disk.refuse = None
        assert again.logs.directory_of(partition).path == "/b"
        assert [directory.failure is None for directory in again.logs.directories] == [False, True]
        assert "t-0" in again.folders("/a") and "t-0" in again.folders("/b")
        again.logs.close()

    play(scenario, "/a", "/b")


def test_the_start_of_what_a_replica_was_does_not_hide_what_it_copies_after_a_crash(play):
    async def scenario(bench):
        log = bench.create("t", records=6)
        log.advance_log_start(4)
        log.flush()
        bench.logs.close()
        write_mark(bench.disk, "/a/t-0", Mark("it was repaired"))
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        log = again.logs.get(TopicPartition("t", 0))
        assert (log.log_start_offset, log.high_watermark) == (4, 4), "nobody is to read what has holes"
        await again.logs.prepare_truncation(log, 0)
        truncate_fully_and_start_at(log, 0)
        await again.logs.note_emptied(log)
        for _ in range(6):
            log.append_as_leader(encode_batch([Record(None, b"1", 0)]), 0)
        log.flush()
        bench.disk.process_ended()
        again = Bench("/a", disk=bench.disk, is_clustered=True)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        log = again.logs.get(TopicPartition("t", 0))
        assert (log.log_start_offset, log.log_end_offset) == (0, 6)
        again.logs.close()

    play(scenario, "/a")


def test_a_lone_broker_neither_heeds_nor_makes_marks(play):
    async def scenario(bench):
        bench.create("t", records=3).flush()
        bench.logs.close()
        bench.disk.remove_tree("/a/t-0")
        again = Bench("/a", disk=bench.disk)
        await again.logs.load(hosted("t"), lambda _: CONFIG)
        assert incomplete(again) == []
        assert "t-0" not in again.folders("/a")
        again.logs.close()

    play(scenario, "/a")
