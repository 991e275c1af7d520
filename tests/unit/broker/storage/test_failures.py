"""A failing disk: the directory goes offline with the right code, and undamaged parts continue."""

from __future__ import annotations

import errno
import os
import random

import pytest
from simulation.environment import simulated_environment

from barnabas.base.environment.filesystem import read_file
from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.storage import OpenFiles
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.kafka.records import Record, all_records, encode_batch

NOW = 1_700_000_000_000


def break_writes(bench) -> None:
    bench.disk.fail_writes = True


def make_read_only(bench) -> None:
    bench.disk.refuse = refuse(errno.EROFS, "write", "truncate", "rename", "remove", "make_directory")


def refuse(number, *operations, path=""):
    """Return a function that makes all `operations` on names with `path` fail."""

    def ask(operation, name):
        if operation in operations and path in name:
            return OSError(number, os.strerror(number), name)
        return None

    return ask


faults = pytest.mark.parametrize("fault", [break_writes, make_read_only])


@faults
def test_a_failed_write_is_a_storage_error_and_takes_the_directory_offline(bench, refused, fault):
    failures: list[OSError] = []
    bench.directory.env.on_failure = failures.append
    bench.append()
    fault(bench)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append()
    assert bench.log.log_end_offset == 1
    assert bench.directory.failure is failures[0] and len(failures) == 1
    bench.disk.mend()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):  # it stays offline until the broker starts again
        bench.append()
    assert len(failures) == 1


@faults
def test_every_log_of_the_directory_is_offline_and_another_directory_is_not(bench, refused, fault):
    neighbour = bench.directory.create(TopicPartition("logs", 1), bytes(16), TopicConfig())
    other = LogDirectory.open(
        OpenFiles(bench.disk), "/other", simulated_environment(clock=bench.clock), cluster_id="c1", node_id=1
    )
    healthy = other.create(TopicPartition("logs", 2), bytes(16), TopicConfig())
    batch = encode_batch([Record(None, b"x", NOW)])
    fault(bench)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append()
    bench.disk.mend()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        neighbour.append_as_leader(batch, 0)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.directory.create(TopicPartition("logs", 3), bytes(16), TopicConfig())
    assert healthy.append_as_leader(batch, 0).base_offset == 0


@faults
def test_what_was_written_is_still_read_from_an_offline_directory(bench, refused, fault):
    bench.append(Record(None, b"kept", NOW))
    fault(bench)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append(Record(None, b"not taken", NOW))
    found = bench.log.read(0, 1000, bench.log.log_end_offset)
    assert [record.value for record in all_records(b"".join(found.chunks))] == [b"kept"]


@faults
def test_a_stop_with_a_failed_disk_is_not_a_clean_one(bench, refused, fault):
    bench.append()
    fault(bench)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append()
    bench.stop()
    bench.disk.mend()
    bench.start()
    assert not bench.directory.was_clean
    assert bench.log.log_end_offset == 1


def test_a_failed_fsync_is_a_storage_error_and_is_not_tried_again(bench, refused):
    bench.append()
    bench.disk.fail_syncs = True
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.log.flush()
    assert bench.log.recovery_point == 0
    bench.disk.mend()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.log.flush()


def test_a_failed_read_is_a_storage_error(bench, refused):
    bench.append()
    bench.disk.fail_reads = True
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.log.read(0, 1000, 1)
    assert bench.directory.failure is not None


def test_a_directory_that_cannot_be_read_at_start_is_offline(bench, refused):
    bench.append()
    bench.stop()
    bench.directory = bench.open()
    bench.disk.fail_reads = True
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.directory.load(bench.log.topic_partition, bench.log.topic_id, bench.config)
    assert bench.directory.failure is not None


def test_flushed_records_survive_a_power_cut_whatever_else_it_takes(bench):
    for seed in range(50):
        bench.append(Record(None, b"%d" % seed, NOW))
        bench.log.flush()
        end = bench.log.log_end_offset
        bench.append(Record(None, bytes(300), NOW))
        bench.kill()
        bench.disk.crash(random.Random(seed))
        assert bench.start().log_end_offset in (end, end + 1)


def test_segments_that_a_flushed_log_has_rolled_to_survive_a_power_cut(bench):
    bench.configure(segment_bytes=200)
    bench.append()
    bench.log.flush()
    for seed in range(30):
        bench.append(Record(None, bytes(100), NOW))
        bench.log.flush()
        end = bench.log.log_end_offset
        bench.kill()
        bench.disk.crash(random.Random(seed))
        assert bench.start().log_end_offset == end


def test_a_log_survives_a_power_cut_from_the_first_flush_of_a_record_on(bench):
    bench.append()
    bench.log.flush()
    bench.kill()
    bench.disk.crash(random.Random(1))
    bench.directory = bench.open()
    assert bench.directory.found() == {bench.log.topic_partition: bench.log.topic_id}


def test_two_flushes_at_once_are_a_mistake(bench):
    bench.append()
    flush = bench.log.prepare_flush()
    with pytest.raises(AssertionError, match="being flushed"):
        bench.log.prepare_flush()
    flush.run()
    bench.log.complete_flush(flush)
    assert bench.log.recovery_point == 1
    assert bench.log.prepare_flush() is None


def test_a_truncation_during_a_flush_is_not_undone_by_it(bench):
    for _ in range(4):
        bench.append()
    flush = bench.log.prepare_flush()
    truncate_to(bench.log, 2)
    flush.run()
    bench.log.complete_flush(flush)
    assert bench.log.recovery_point == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.EINVAL])
@pytest.mark.parametrize("operation", ["open", "write"])
def test_an_append_that_is_refused_changes_nothing_and_the_next_succeeds(bench, refused, number, operation):
    bench.configure(segment_bytes=300)
    neighbour = bench.directory.create(TopicPartition("neighbour", 0), bytes(16), TopicConfig())
    bench.fill(3)
    for file in bench.log.files.segments.active.all_files():
        file.close()
    bench.disk.refuse = refuse(number, operation, path="logs-0")
    for size in (1, 200):  # one that fits, and one that rolls
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            bench.append(Record(None, bytes(size), NOW))
    assert neighbour.append_as_leader(encode_batch([Record(None, b"x", NOW)]), 0).base_offset == 0
    assert bench.directory.failure is None and not bench.log.is_offline
    bench.disk.mend()
    assert bench.append(Record(None, b"after", NOW)).base_offset == 3
    assert bench.restart().log_end_offset == 4
    assert bench.directory.was_clean
    assert bench.crash().log_end_offset == 4


def test_a_write_that_fails_and_cannot_be_cut_off_takes_its_log_offline(bench, refused):
    neighbour = bench.directory.create(TopicPartition("neighbour", 0), bytes(16), TopicConfig())
    bench.append()
    bench.disk.refuse = refuse(errno.EINVAL, "write", "truncate", path="logs-0")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append()
    bench.disk.mend()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append()
    assert bench.log.is_offline and bench.log.read(0, 1000, 1).size
    assert neighbour.append_as_leader(encode_batch([Record(None, b"x", NOW)]), 0).base_offset == 0
    bench.stop()
    assert neighbour.recovery_point == 1, "the neighbour is closed well"
    assert bench.start().log_end_offset == 1
    assert not bench.directory.was_clean


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_an_fsync_that_fails_on_a_sound_disk_takes_its_log_offline_alone(bench, refused, number):
    neighbour = bench.directory.create(TopicPartition("neighbour", 0), bytes(16), TopicConfig())
    bench.append()
    bench.disk.refuse = refuse(number, "sync", path=".log")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.log.flush()
    bench.disk.mend()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.log.flush()
    neighbour.append_as_leader(encode_batch([Record(None, b"x", NOW)]), 0)
    neighbour.flush()
    assert bench.directory.failure is None and bench.log.recovery_point == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("operation", ["open", "rename", "write", "sync_directory"])
def test_a_flush_that_could_not_be_done_is_due_again(bench, refused, operation, seed):
    bench.configure(segment_bytes=300)
    bench.fill(5)
    bench.append(epoch=1)
    for segment in bench.log.files.segments:
        segment.close()
    bench.disk.refuse = refuse(errno.EMFILE, operation)
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.log.flush()
    assert bench.log.recovery_point == 0 and not bench.log.is_offline
    bench.disk.mend()
    bench.log.flush()
    assert bench.log.recovery_point == 6
    bench.kill()
    bench.disk.crash(random.Random(seed))
    assert bench.start().log_end_offset == 6 and bench.log.latest_epoch == 1


@pytest.mark.parametrize("failing", range(12))
def test_a_retention_that_stops_half_way_leaves_a_whole_log(bench, refused, failing):
    bench.configure(segment_bytes=200, retention_bytes=0)
    bench.fill(5)
    names = []

    def ask(operation, name):
        if operation == "rename":
            names.append(name)
        return OSError(errno.ENOSPC, "full") if operation == "rename" and len(names) == failing + 1 else None

    bench.disk.refuse = ask
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        delete_old_segments(bench.log, bench.clock.now_ms())
    log = bench.log
    assert log.log_start_offset == log.files.segments[0].base_offset
    for offset in range(log.log_start_offset, 5):
        assert log.read(offset, 1000, 5).size
    bench.disk.mend()
    delete_old_segments(log, bench.clock.now_ms()).run()
    assert log.log_start_offset == 5 and not bench.names(".deleted")


def test_on_a_full_disk_retention_drops_all_but_the_active_segment(bench):
    bench.configure(segment_bytes=200, retention_bytes=0)
    bench.fill(5)
    bench.disk.space = 0
    delete_old_segments(bench.log, bench.clock.now_ms()).run()
    assert bench.log.log_start_offset == 4 and not bench.log.is_offline


def test_a_new_log_that_cannot_start_later_on_a_full_disk_starts_there_when_there_is_space(bench, refused):
    """A new follower does so if its leader's log does not start at offset 0."""
    bench.disk.space = 0
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        truncate_fully_and_start_at(bench.log, 100, sync=False)
    assert not bench.log.is_offline
    bench.disk.mend()
    truncate_fully_and_start_at(bench.log, 100, sync=False)
    assert bench.log.log_end_offset == 100
    assert bench.append(Record(b"k", b"v", NOW)).base_offset == 100


def test_no_later_batch_of_a_new_producer_takes_the_place_of_one_that_found_the_disk_full(bench, refused):
    def send(sequence, epoch=0):
        record = Record(b"k", b"%d" % sequence, NOW)
        return bench.append(record, producer_id=5, producer_epoch=epoch, base_sequence=sequence)

    bench.disk.space = 0
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        send(3)
    bench.disk.mend()
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        send(4)  # it was on its way when the first was refused
    assert [send(3).base_offset, send(4).base_offset] == [0, 1]


def test_a_new_epoch_of_a_producer_may_give_up_what_found_the_disk_full(bench, refused):
    bench.disk.space = 0
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append(Record(b"k", b"v", NOW), producer_id=5, producer_epoch=0, base_sequence=3)
    bench.disk.mend()
    again = bench.append(Record(b"k", b"v", NOW), producer_id=5, producer_epoch=1, base_sequence=0)
    assert again.base_offset == 0


def test_a_log_that_is_all_too_old_keeps_its_only_segment_on_a_full_disk(bench, refused):
    """There must be a segment for the next records, and none can be created."""
    bench.configure(retention_bytes=0)
    bench.fill(3)
    bench.disk.refuse = refuse(errno.ENOSPC, "open")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        delete_old_segments(bench.log, NOW)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (0, 3)


def test_refusals_of_one_kind_are_counted_until_they_are_told_again(bench, caplog):
    env, full = bench.directory.env, OSError(errno.ENOSPC, "full")
    for _ in range(4):
        env.operation_error("logs-0", full)
    bench.clock.advance(3_600_000)
    env.operation_error("logs-0", full)
    assert [line.partition(" (and ")[2] for line in caplog.messages] == ["", "3 more like this before)"]


def test_errors_are_still_logged_after_the_clock_is_set_back(bench, caplog):
    env, full = bench.directory.env, OSError(errno.ENOSPC, "full")
    env.operation_error("logs-0", full)
    bench.clock.ahead_ms = -86_400_000
    bench.clock.advance(10_000)
    env.operation_error("logs-0", full)
    assert len(caplog.messages) == 2


def log_with_closed_files(bench):
    """Return a log of three records, and its active segment. The next append must open all files."""
    bench.configure(index_interval_bytes=1)
    bench.fill(4)
    log = bench.restart()
    truncate_to(log, 2)  # the last entry of the time index must be read again
    bench.append(Record(None, b"kept", NOW))
    segment = log.files.segments.active
    for file in segment.all_files():
        file.close()
    return log, segment


def test_append_that_cannot_open_the_time_index_leaves_no_bytes_in_the_log(bench, refused):
    log, segment = log_with_closed_files(bench)
    # The broker then closes the log's file too, because it has no file handle left.
    bench.disk.refuse = refuse(errno.EMFILE, "open", path=".timeindex")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        bench.append(Record(None, b"rejected", NOW))
    bench.disk.mend()
    assert not log.is_offline
    assert sum(len(chunk) for chunk in log.read(0, 10_000, 3).chunks) == segment.size
    assert len(read_file(bench.disk, segment.log.path)) == segment.size
    assert bench.restart().log_end_offset == 3
    assert bench.append(Record(None, b"after", NOW)).base_offset == 3


def test_a_followers_append_that_cannot_open_the_time_index_leaves_no_bytes_in_the_log(bench, refused):
    log, segment = log_with_closed_files(bench)
    copied = encode_batch([Record(None, b"copied", NOW)], base_offset=3)
    bench.disk.refuse = refuse(errno.EMFILE, "open", path=".timeindex")
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.append_as_follower(copied)
    bench.disk.mend()
    assert not log.is_offline
    assert len(read_file(bench.disk, segment.log.path)) == segment.size
    assert bench.restart().log_end_offset == 3
    assert bench.log.append_as_follower(copied).base_offset == 3
