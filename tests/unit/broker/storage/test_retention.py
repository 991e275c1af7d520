"""The records that remain after retention and DeleteRecords, with their delays."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.kafka.records import Record, encode_batch

NOW = 1_700_000_000_000


def segments_of_one(bench, count: int, **settings) -> None:
    """Create `count` sealed segments of one record each, and an active one with another, a second apart."""
    bench.configure(segment_bytes=200, **settings)
    bench.fill(count + 1, size=100, step_ms=1000)
    assert bench.base_offsets() == list(range(count + 1))


def delete(bench) -> None:
    removal = delete_old_segments(bench.log, bench.clock.now_ms())
    if removal:
        removal.run()


def test_segments_older_than_retention_ms_go(bench):
    segments_of_one(bench, 5, retention_ms=3500)
    delete(bench)
    assert bench.base_offsets() == [3, 4, 5]
    assert bench.log.log_start_offset == 3


def test_an_age_of_exactly_retention_ms_is_not_too_old(bench):
    """As in Apache Kafka, only older records are deleted."""
    segments_of_one(bench, 1, retention_ms=5000)  # the records are of 0 and 1 seconds, it is the 2nd now
    bench.clock.advance(3000)
    delete(bench)
    assert bench.base_offsets() == [0, 1]
    bench.clock.advance(1)
    delete(bench)
    assert bench.base_offsets() == [1]
    bench.clock.advance(999)
    delete(bench)
    assert bench.base_offsets() == [1]
    bench.clock.advance(1)
    delete(bench)
    assert bench.base_offsets() == [2] and bench.log.log_start_offset == 2


def test_with_retention_ms_0_records_of_this_very_millisecond_stay(bench):
    bench.configure(retention_ms=0)
    bench.append()
    delete(bench)
    assert bench.log.log_start_offset == 0
    bench.clock.advance(1)
    delete(bench)
    assert bench.log.log_start_offset == 1


def test_records_of_the_future_are_not_old(bench):
    bench.configure(retention_ms=0)
    bench.append(Record(None, b"", NOW + 10))
    delete(bench)
    assert bench.log.log_start_offset == 0


def test_age_is_that_of_the_youngest_record_not_of_the_file(bench):
    bench.configure(retention_ms=10_000)
    bench.append(Record(None, b"old", NOW - 50_000), Record(None, b"young", NOW))
    delete(bench)
    assert bench.log.log_start_offset == 0


def test_an_active_segment_whose_time_has_come_is_replaced_by_an_empty_one(bench):
    segments_of_one(bench, 2, retention_ms=100)
    bench.clock.advance(10_000)
    delete(bench)
    assert bench.base_offsets() == [3]
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (3, 3)
    delete(bench)
    assert bench.base_offsets() == [3]


def test_records_without_timestamps_age_by_their_file(bench):
    bench.configure(segment_bytes=100, retention_ms=100)
    bench.append(Record(None, b"", -1))
    bench.append(Record(None, b"", -1))
    delete(bench)
    assert bench.base_offsets() == [0, 1]
    bench.clock.advance(101)
    delete(bench)
    assert bench.base_offsets() == [2]


def test_a_file_is_as_old_as_its_last_record(bench):
    bench.configure(retention_ms=100)
    bench.append(Record(None, b"", -1))
    bench.clock.advance(90)
    bench.append(Record(None, b"", -1))
    bench.clock.advance(90)
    delete(bench)
    assert bench.log.log_start_offset == 0


def test_the_oldest_segments_go_while_the_log_is_larger_than_retention_bytes(bench):
    segments_of_one(bench, 5, retention_ms=-1)
    size = bench.log.files.segments[0].size
    bench.log.config = bench.config.replace(retention_bytes=3 * size)
    delete(bench)
    assert bench.base_offsets() == [3, 4, 5]
    bench.log.config = bench.config.replace(retention_bytes=3 * size - 1)
    delete(bench)
    assert bench.base_offsets() == [3, 4, 5], "the log must not fall below retention.bytes"


@pytest.mark.parametrize(("excess", "left"), [(-1, 0), (0, 1), (1, 1)])
def test_a_segment_goes_when_what_is_left_is_exactly_retention_bytes(bench, excess, left):
    segments_of_one(bench, 3, retention_ms=-1)
    sizes = [segment.size for segment in bench.log.files.segments]
    bench.log.config = bench.config.replace(retention_bytes=sum(sizes[1:]) - excess)
    delete(bench)
    assert bench.base_offsets()[0] == left


def test_the_active_segment_goes_by_size_only_when_nothing_may_be_left(bench):
    segments_of_one(bench, 2, retention_ms=-1, retention_bytes=1)
    delete(bench)
    assert bench.base_offsets() == [2]
    bench.log.config = bench.config.replace(retention_bytes=0)
    delete(bench)
    assert bench.base_offsets() == [3] and bench.log.size == 0


def test_without_bounds_nothing_goes(bench):
    segments_of_one(bench, 3, retention_ms=-1, retention_bytes=-1)
    bench.clock.advance(10**12)
    assert delete_old_segments(bench.log, bench.clock.now_ms()) is None


def test_nothing_above_the_high_watermark_goes(bench):
    bench.configure(segment_bytes=200, retention_bytes=0)
    for _ in range(4):
        bench.log.append_as_leader(encode_batch([Record(None, bytes(100), NOW)]), 0)
    bench.log.advance_high_watermark(2)
    delete(bench)
    assert bench.log.log_start_offset == 2


def test_a_compacted_topic_is_not_dropped_by_age(bench):
    bench.configure(cleanup_policy=("compact",), retention_ms=0, segment_bytes=100)
    for _ in range(3):
        bench.append(Record(b"k", b"v", NOW))
    bench.clock.advance(1000)
    assert delete_old_segments(bench.log, bench.clock.now_ms()) is None
    bench.log.advance_log_start(2)
    delete(bench)
    assert bench.base_offsets() == [2]


def test_delete_records_moves_the_log_start_and_frees_whole_segments(bench):
    segments_of_one(bench, 5, retention_ms=-1)
    assert bench.log.advance_log_start(3)
    assert bench.log.log_start_offset == 3
    assert bench.base_offsets() == [0, 1, 2, 3, 4, 5]
    delete(bench)
    assert bench.base_offsets() == [3, 4, 5]
    assert not bench.log.advance_log_start(2)


def test_delete_records_stops_at_the_high_watermark(bench, refused):
    bench.append()
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        bench.log.advance_log_start(2)
    assert bench.log.advance_log_start(1)


def test_files_stay_under_another_name_until_the_removal_runs(bench):
    segments_of_one(bench, 3, retention_ms=-1, retention_bytes=0)
    removal = delete_old_segments(bench.log, bench.clock.now_ms())
    assert len(bench.names(".log.deleted")) == 4
    assert bench.names(".log") == ["00000000000000000004.log"]
    removal.run()
    assert not bench.names(".deleted")
    removal.run()  # a second time is fine


def test_snapshots_go_with_the_segments_before_them(bench):
    segments_of_one(bench, 3, retention_ms=-1, retention_bytes=0)
    assert len(bench.names(".snapshot")) == 3
    delete(bench)
    assert bench.names(".snapshot") == ["00000000000000000004.snapshot"]


def test_the_epochs_of_dropped_records_go(bench):
    bench.configure(segment_bytes=100, retention_bytes=0)
    for epoch in range(4):
        bench.append(epoch=epoch)
    bench.log.advance_log_start(2)
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(2, 2), (3, 3)]


def test_a_log_whose_epochs_were_not_stored_before_they_went_knows_none_after_a_crash(bench):
    """Simulation seed 200073: the log claimed that epoch 0 was its latest, and its leader told its end.

    So the follower truncated its empty log to an offset before its start, and copied deleted records again.
    """
    bench.configure(retention_bytes=0)
    bench.append(epoch=0)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    bench.append(epoch=4)
    delete_old_segments(bench.log, bench.clock.now_ms())
    bench.crash()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (2, 2)
    assert bench.log.latest_epoch == -1


def test_a_crash_after_a_flush_leaves_the_epochs_of_the_records_that_stay(bench):
    bench.configure(segment_bytes=100, retention_bytes=100)
    for epoch in range(4):
        bench.append(epoch=epoch)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    delete(bench)
    start = bench.log.log_start_offset
    assert 0 < start < 3
    bench.crash()
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(e, e) for e in range(start, 4)]


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_a_log_of_which_all_records_have_expired_keeps_their_epoch(bench, end):
    bench.configure(retention_bytes=0)
    bench.append(epoch=0)
    bench.append(epoch=5)
    bench.log.flush()
    delete(bench)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.log.latest_epoch) == (2, 2, 5)
    for _ in range(2):
        getattr(bench, end)()
        assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.log.latest_epoch) == (2, 2, 5)
    bench.append(epoch=7)
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(5, 2), (7, 2)][1:]


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_a_log_of_which_all_records_were_deleted_on_request_keeps_their_epoch(bench, end):
    bench.append(epoch=0)
    bench.append(epoch=5)
    bench.log.flush()
    bench.log.advance_log_start(2)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    bench.directory.log_start_checkpoint().run()
    getattr(bench, end)()
    assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.log.latest_epoch) == (2, 2, 5)


@pytest.mark.parametrize("end", ["restart", "crash"])
def test_an_epoch_that_began_after_all_records_and_has_none_is_forgotten(bench, end):
    bench.append(epoch=3)
    bench.log.epochs.assign(5, 1)
    bench.log.flush()
    bench.directory.recovery_point_checkpoint().run()
    getattr(bench, end)()
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(3, 0)]


def test_a_crash_before_the_removal_does_not_bring_segments_back(bench):
    segments_of_one(bench, 3, retention_ms=-1, retention_bytes=0)
    delete_old_segments(bench.log, bench.clock.now_ms())
    bench.log.flush()
    bench.crash()
    assert bench.base_offsets() == [4]
