"""The records of a log that compaction keeps."""

from __future__ import annotations

import random

import pytest

from barnabas.base.environment.blocking import Threads
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.storage import (
    AbortedTransaction,
    Cleaning,
    CleaningCancelled,
    Origin,
    Throttle,
    dirtiness,
)
from barnabas.broker.storage.dirtiness import roll_overdue
from barnabas.broker.storage.offset_map import OffsetMap, token
from barnabas.broker.storage.retention import delete_old_segments
from barnabas.broker.storage.truncation import truncate_to
from barnabas.kafka.records import Compression, Record, batches
from barnabas.kafka.records.builder import batch_records
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

NOW = 1_700_000_000_000
DAY = 86_400_000


@pytest.fixture
def log(bench):
    return bench.configure(cleanup_policy=("compact",), index_interval_bytes=0)


def put(bench, **values):
    """Append one batch with a record for each key. None deletes the key."""
    records = [
        Record(key.encode(), value and value.encode(), bench.clock.now_ms()) for key, value in values.items()
    ]
    return bench.append(*records)


def headers(bench):
    """Return every batch in the log."""
    log = bench.log
    return [header for segment in log.files.segments for _, header in segment.headers(0)]


def contents(bench):
    """Return every record in the log: (offset, key, value)."""
    log = bench.log
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        data = b"".join(map(bytes, log.read(offset, 1 << 20, log.log_end_offset).chunks))
        if not data:
            break
        for position, header in batches(data):
            if not header.is_control:
                batch = memoryview(data)[position : position + header.size]
                found += [
                    (r.offset, r.key.decode(), r.value and r.value.decode())
                    for r in batch_records(header, batch)
                ]
            offset = header.next_offset
    return found


def end(bench, producer_id, *, commit, epoch=0):
    marker = encode_end_transaction(
        EndTransaction(commit, 0),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=bench.clock.now_ms(),
    )
    bench.log.append_as_leader(marker, 0, origin=Origin.COORDINATOR)
    bench.log.advance_high_watermark(bench.log.log_end_offset)


def transact(bench, producer_id, sequence, **values):
    records = [Record(key.encode(), value.encode(), NOW) for key, value in values.items()]
    return bench.append(
        *records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )


@pytest.mark.parametrize("codec", Compression)
def test_the_last_value_of_each_key_stays_where_it_was(bench, log, codec):
    for number in range(5):
        records = [Record(b"k%d" % key, b"%d" % number, NOW + number) for key in range(number, number + 4)]
        bench.append(*records, compression=codec)
    before = contents(bench)
    log.roll()
    bench.clean()
    latest = {key: (offset, key, value) for offset, key, value in before}
    assert contents(bench) == sorted(latest.values())
    assert {header.compression for header in headers(bench)} == {codec}
    assert bench.crash().log_end_offset == 20
    assert contents(bench) == sorted(latest.values())


def test_a_batch_keeps_its_offsets_and_loses_what_is_obsolete(bench, log):
    put(bench, a="1", b="1", c="1")
    put(bench, a="2", c="2")
    log.roll()
    bench.clean()
    first, second = headers(bench)
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
    assert (second.base_offset, second.last_offset, second.record_count) == (3, 4, 2)


def test_more_batches_than_one_system_call_takes_are_cleaned_at_once(bench, log):
    for number in range(1500):
        put(bench, **{f"k{number}": "v"})
    put(bench, k0="w")
    log.roll()
    bench.clean(block_bytes=1 << 20)
    assert contents(bench) == [(n, f"k{n}", "v") for n in range(1, 1500)] + [(1500, "k0", "w")]
    assert bench.restart().log_end_offset == 1501
    assert bench.directory.failure is None and len(contents(bench)) == 1500


def test_an_untouched_batch_is_copied_byte_for_byte(bench, log):
    put(bench, a="1", b="1")
    before = log.read(0, 1000, 2).chunks
    log.roll()
    bench.clean()
    assert log.read(0, 1000, 2).chunks == before


def test_the_active_segment_is_not_cleaned(bench, log):
    put(bench, a="1")
    log.roll()
    put(bench, a="2")
    bench.clean()
    assert contents(bench) == [(0, "a", "1"), (1, "a", "2")]


def test_small_segments_become_one(bench, log):
    for number in range(10):
        put(bench, **{f"k{number}": "v"})
        log.roll()
    bench.clean()
    assert bench.base_offsets() == [0, 10]
    assert len(contents(bench)) == 10
    assert bench.names(".snapshot") == ["00000000000000000010.snapshot"]
    assert not bench.names(".deleted") + bench.names(".cleaned") + bench.names(".swap")


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_after_a_cleaning_costs_nothing(bench, log, seed):
    """Before the old segments are removed, their replacements must be on the disk, not only in its cache."""
    for number in range(10):
        put(bench, **{f"k{number}": "v"})
        log.roll()
    bench.clean()
    bench.kill()
    bench.disk.crash(random.Random(seed))
    bench.start()
    assert len(contents(bench)) == 10


@pytest.mark.parametrize("seed", range(6))
def test_a_start_completes_a_swap_that_a_power_cut_interrupted(bench, log, seed):
    for number in range(10):
        put(bench, **{f"k{number}": "v"})
        log.roll()
    log.flush()
    dirt = dirtiness(log, 0, NOW)
    cleaning = Cleaning(
        log,
        dirt,
        now_ms=NOW,
        map_bytes=1 << 20,
        block_bytes=1 << 16,
        throttle=Throttle(bench.clock, lambda: 1e300),
        cancelled=Threads().signal(),
    )
    cleaning.index()
    bench.directory.recovery_point_checkpoint().run()
    (group,) = cleaning.groups()
    log.files.begin_swap(cleaning.clean(group), group)
    bench.disk.sync_directory(log.files.path)
    bench.kill()
    bench.disk.crash(random.Random(seed))
    bench.start()
    assert bench.base_offsets() == [0, 10]
    assert len(bench.names(".log")) == 2
    assert len(contents(bench)) == 10


def test_a_segment_that_was_sealed_while_its_records_were_fsynced_can_be_cleaned_before_the_next_fsync(
    bench, log, monkeypatch
):
    put(bench, a="1")
    put(bench, a="2")
    flush = log.prepare_flush()
    log.roll()
    put(bench, a="3")
    flush.run()
    log.complete_flush(flush)
    with monkeypatch.context() as no_other:
        no_other.setattr(type(log), "flush", lambda log: None)
        assert bench.clean() is not None
    log.flush()
    assert log.recovery_point == 3


def test_no_segment_outgrows_segment_bytes(bench, log):
    for number in range(10):
        put(bench, **{f"k{number}": "v" * 100})
        log.roll()
    bench.configure(cleanup_policy=("compact",), segment_bytes=450)
    bench.clean()
    sizes = [segment.size for segment in bench.log.files.segments]
    assert sizes[:-1] == [2 * sizes[1]] * 5 or max(sizes) <= 450
    assert len(contents(bench)) == 10 and len(sizes) < 11


def test_what_fits_into_the_map_is_cleaned_first(bench, log):
    for number in range(40):
        put(bench, **{f"k{number % 20}": str(number)})
    log.roll()
    cleaning = bench.clean(map_bytes=170 * 10)
    assert cleaning.end == 10
    assert len(contents(bench)) == 40
    rounds = 1
    while bench.clean(map_bytes=170 * 10):
        rounds += 1
    assert contents(bench) == [(20 + key, f"k{key}", str(20 + key)) for key in range(20)]
    assert rounds == 4


def test_one_batch_is_cleaned_even_when_it_does_not_fit(bench, log):
    for value in "123":
        put(bench, **{f"k{number}": value for number in range(50)})
        put(bench, **{f"other {number}": value for number in range(50)})
    log.roll()
    ends = []
    while cleaning := bench.clean(map_bytes=1):
        ends.append(cleaning.end)
    assert ends == [50, 100, 150, 200, 250, 300]
    assert [value for _, _, value in contents(bench)] == ["3"] * 100


def test_the_last_batch_of_a_cleaning_stays_as_a_header(bench, log):
    put(bench, a="1")
    log.roll()
    put(bench, a=None)
    log.roll()
    bench.clean()
    bench.clock.advance(DAY)
    put(bench, b="1")
    log.roll()
    bench.clean()
    assert contents(bench) == [(2, "b", "1")]
    put(bench, b=None)
    log.roll()
    bench.clean()
    bench.clock.advance(DAY)
    put(bench, c="1")
    log.roll()
    bench.clean()
    assert contents(bench) == [(4, "c", "1")]


def test_a_last_batch_without_records_stays_until_another_is_the_last(bench):
    bench.configure(cleanup_policy=("delete",), index_interval_bytes=0)
    bench.append(Record(None, b"without a key, which no compacted topic takes", NOW))
    bench.append(Record(None, b"another", NOW))
    log = bench.configure(cleanup_policy=("compact",), index_interval_bytes=0)
    log.roll()
    bench.clean()
    assert [(h.base_offset, h.record_count) for h in headers(bench)] == [(1, 0)]
    put(bench, a="1")
    log.roll()
    bench.clean()
    assert [(h.base_offset, h.record_count) for h in headers(bench)] == [(2, 1)]


def test_transactions_that_were_aborted_one_after_another_are_told_apart(bench, log):
    for producer in (7, 8, 9):
        transact(bench, producer, 0, **{f"k{producer}": "aborted"})
        end(bench, producer, commit=False)
        put(bench, **{f"p{producer}": "plain"})
    log.roll()
    bench.clean()
    assert [value for _, _, value in contents(bench)] == ["plain"] * 3


def test_a_tombstone_stays_for_delete_retention_after_its_first_cleaning(bench, log):
    put(bench, a="1", b="1")
    put(bench, a=None)
    log.roll()
    bench.clock.advance(10 * DAY)  # how old it is does not matter
    bench.clean()
    assert contents(bench) == [(1, "b", "1"), (2, "a", None)]
    horizon = bench.clock.now_ms() + DAY
    assert [header.delete_horizon_ms for header in headers(bench)] == [None, horizon]
    (record,) = [r for r in _records(bench) if r.value is None]
    assert record.timestamp == NOW
    for advance, expected in ((DAY - 1, 3), (1, 2)):
        bench.clock.advance(advance)
        put(bench, c=str(advance))
        log.roll()
        bench.clean()
        assert len(contents(bench)) == expected
    assert "a" not in {key for _, key, _ in contents(bench)}


def _records(bench):
    log = bench.log
    data = b"".join(map(bytes, log.read(0, 1 << 20, log.log_end_offset).chunks))
    return [
        record
        for position, header in batches(data)
        for record in batch_records(header, memoryview(data)[position : position + header.size])
    ]


def test_a_tombstone_beyond_the_map_begins_no_horizon(bench, log):
    for number in range(10):
        put(bench, **{f"k{number}": "v"})
    put(bench, k0=None)
    log.roll()
    bench.clean(map_bytes=170 * 5)
    assert all(header.delete_horizon_ms is None for header in headers(bench))
    assert (10, "k0", None) in contents(bench)


def test_aborted_records_go_and_their_marker_stays_for_a_while(bench, log):
    transact(bench, 7, 0, a="aborted", b="aborted")
    put(bench, a="plain")
    transact(bench, 7, 2, c="aborted too")
    end(bench, 7, commit=False)
    put(bench, z="last")
    log.roll()
    bench.clean()
    assert contents(bench) == [(2, "a", "plain"), (5, "z", "last")]
    left = headers(bench)
    # the producer's last batch, without records, and the marker with its entry, as long as that is there
    assert [(h.base_offset, h.record_count, h.is_control) for h in left] == [
        (2, 1, False),
        (3, 0, False),
        (4, 1, True),
        (5, 1, False),
    ]
    assert log.aborted_transactions(0, 1 << 20) == [AbortedTransaction(7, 0, 4, 5)]
    assert bench.restart().aborted_transactions(0, 1 << 20) == [AbortedTransaction(7, 0, 4, 5)]
    # built anew after a crash, the entry begins with what is left
    bench.kill()
    bench.disk.remove("/data/logs-0/barnabas-sealed-segments")
    assert bench.start().aborted_transactions(0, 1 << 20) == [AbortedTransaction(7, 3, 4, 5)]


def test_a_marker_goes_when_nothing_is_left_of_its_transaction(bench, log):
    transact(bench, 7, 0, a="aborted")
    end(bench, 7, commit=False)
    transact(bench, 7, 1, b="committed")
    end(bench, 7, commit=True)
    put(bench, x="1")
    log.roll()
    bench.clean()
    assert [(h.base_offset, h.delete_horizon_ms) for h in headers(bench)] == [
        (1, None),
        (2, None),
        (3, None),
        (4, None),
    ]
    for advance in (0, DAY - 1, 1):
        bench.clock.advance(advance)
        put(bench, x=str(advance))
        log.roll()
        bench.clean()
        markers = [h for h in headers(bench) if h.is_control]
        if advance == 1:
            assert [h.base_offset for h in markers] == [3]  # the committed record is still there
        else:
            assert [h.base_offset for h in markers] == [1, 3]
            assert markers[0].delete_horizon_ms == NOW + DAY
    assert log.aborted_transactions(0, 1 << 20) == []
    assert contents(bench)[0] == (2, "b", "committed")


def test_an_open_transaction_is_not_touched(bench, log):
    put(bench, a="1")
    log.roll()
    transact(bench, 7, 0, a="2")
    log.roll()
    put(bench, a="3")
    log.roll()
    bench.clean()
    assert [offset for offset, *_ in contents(bench)] == [0, 1, 2]
    end(bench, 7, commit=True)
    log.roll()
    bench.clean()
    assert contents(bench) == [(2, "a", "3")]


def test_an_aborted_record_makes_no_other_obsolete(bench, log):
    put(bench, a="1")
    transact(bench, 7, 0, a="aborted")
    log.roll()
    end(bench, 7, commit=False)  # the marker lies beyond what is cleaned
    bench.clean()
    assert contents(bench) == [(0, "a", "1")]
    assert log.aborted_transactions(0, 1 << 20) == [AbortedTransaction(7, 1, 2, 3)]


def test_a_transaction_aborted_before_makes_no_later_one_useless(bench, log):
    put(bench, a="1", b="1")
    transact(bench, 7, 0, a="aborted")
    end(bench, 7, commit=False)
    log.roll()
    bench.clean()
    assert log.aborted_transactions(0, 1 << 20)
    transact(bench, 7, 1, a="committed")
    end(bench, 7, commit=True)
    log.roll()
    bench.clean()
    assert contents(bench) == [(1, "b", "1"), (4, "a", "committed")]


def test_a_producer_is_known_after_its_records_are_gone(bench, log):
    bench.append(Record(b"a", b"1", NOW), producer_id=3, producer_epoch=1, base_sequence=0)
    bench.append(Record(b"a", b"2", NOW), producer_id=3, producer_epoch=1, base_sequence=1)
    put(bench, a="3")
    log.roll()
    bench.clean()
    assert contents(bench) == [(2, "a", "3")]
    assert [(h.base_offset, h.record_count, h.last_sequence) for h in headers(bench)] == [
        (1, 0, 1),
        (2, 1, -1),
    ]
    for name in bench.names(".snapshot"):
        bench.rewrite(name, lambda content: b"damaged")
    bench.crash()
    again = bench.append(Record(b"a", b"2", NOW), producer_id=3, producer_epoch=1, base_sequence=1)
    assert again.duplicate and again.base_offset == 1
    with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
        bench.append(Record(b"a", b"9", NOW), producer_id=3, producer_epoch=1, base_sequence=9)


def test_a_marker_that_alone_tells_an_epoch_stays_as_a_header(bench, log):
    end(bench, 9, commit=True, epoch=4)
    for advance in (0, DAY):
        bench.clock.advance(advance)
        put(bench, x=str(advance))
        log.roll()
        bench.clean()
    put(bench, x="last")
    log.roll()
    bench.clean()
    marker = headers(bench)[0]
    assert (marker.is_control, marker.producer_epoch, marker.record_count) == (True, 4, 0)
    assert bench.crash().log_end_offset == 4


def test_a_minimum_lag_keeps_young_segments_out(bench, log):
    bench.configure(cleanup_policy=("compact",), min_compaction_lag_ms=1000)
    put(bench, a="1")
    log.roll()
    bench.clock.advance(600)
    put(bench, a="2")
    log.roll()
    assert bench.clean() is None
    bench.clock.advance(399)
    assert bench.clean() is None
    bench.clock.advance(1)  # as old as the lag
    assert bench.clean().end == 1
    bench.clock.advance(100)
    bench.clock.advance(600)
    assert bench.clean().end == 2
    assert contents(bench) == [(1, "a", "2")]


def test_what_has_waited_too_long_is_worth_a_cleaning(bench, log):
    bench.configure(cleanup_policy=("compact",), max_compaction_lag_ms=1000)
    for number in range(10):
        put(bench, **{f"k{number}": "v"})
    log.roll()
    bench.clean()
    put(bench, k0="2")
    log.roll()
    log.flush()

    def is_worth_it():
        cleaned_to = bench.directory.cleaned_to[log.topic_partition]
        return dirtiness(bench.log, cleaned_to, bench.clock.now_ms()).is_worth_it(0.5)

    assert not is_worth_it()
    bench.clock.advance(1001)
    assert is_worth_it()
    bench.restart()  # the age is read from the segment
    bench.log.flush()
    assert is_worth_it()


def test_an_active_segment_that_has_waited_too_long_is_sealed(bench, log):
    bench.configure(cleanup_policy=("compact",), max_compaction_lag_ms=1000)
    put(bench, a="1")
    assert not roll_overdue(log, NOW + 1000)
    assert roll_overdue(log, NOW + 1001)
    assert not roll_overdue(log, NOW + 1001)
    put(bench, a="2")
    bench.clock.advance(1001)
    put(bench, a="3")  # an append does so by itself
    assert bench.base_offsets() == [0, 1, 2]


def test_dirty_is_what_came_after_the_last_cleaning(bench, log):
    put(bench, a="1")
    log.roll()
    log.flush()
    assert dirtiness(log, None, NOW).ratio == 1.0
    bench.clean()
    assert dirtiness(log, 1, NOW).dirty_bytes == 0
    put(bench, b="1")
    log.roll()
    log.flush()
    assert dirtiness(log, 1, NOW).ratio == 0.5
    assert dirtiness(log, 99, NOW).first_dirty == 0  # it was cut off since, without a word


def test_only_what_is_flushed_is_cleaned(bench, log):
    put(bench, a="1")
    log.roll()
    assert dirtiness(log, None, NOW).dirty_bytes == 0
    log.flush()
    assert dirtiness(log, None, NOW).dirty_bytes > 0


def test_how_far_a_log_is_clean_is_written_down_as_kafka_does(bench, log):
    put(bench, a="1")
    log.roll()
    bench.clean()
    file = bench.disk.open("/data/cleaner-offset-checkpoint")
    assert file.read_at(100, 0).split() == [b"0", b"1", b"logs", b"0", b"1"]
    file.close()
    bench.restart()
    assert bench.directory.cleaned_to == {bench.log.topic_partition: 1}


def test_a_truncation_below_what_is_clean_makes_it_dirty(bench, log):
    put(bench, a="1")
    put(bench, b="1")
    log.roll()
    bench.clean()
    truncate_to(log, 1)
    bench.crash()
    assert bench.directory.cleaned_to == {bench.log.topic_partition: 1}


def test_a_damaged_batch_stops_a_cleaning_and_changes_nothing(bench, log):
    put(bench, a="1")
    put(bench, a="2")
    log.roll()
    before = contents(bench)
    bench.rewrite("00000000000000000000.log", lambda content: content[:-1] + b"\xff")
    with pytest.raises(KafkaError, match=ErrorCode.CORRUPT_MESSAGE.name):
        bench.clean()
    assert bench.base_offsets() == [0, 2]
    assert not bench.names(".cleaned")
    assert len(before) == 2


def test_a_cancelled_cleaning_leaves_nothing_behind(bench, log, monkeypatch):
    put(bench, a="1")
    log.roll()
    index = Cleaning.index

    def index_and_cancel(self):
        index(self)
        self.cancel()

    monkeypatch.setattr(Cleaning, "index", index_and_cancel)
    with pytest.raises(CleaningCancelled):
        bench.clean()
    assert contents(bench) == [(0, "a", "1")]
    assert not bench.names(".cleaned")


def test_times_are_found_in_what_is_left(bench, log):
    for number in range(4):
        put(bench, a=str(number), **{f"k{number}": "v"})
        bench.clock.advance(10)
    bench.append(Record(b"a", b"late", NOW + 500), producer_id=3, producer_epoch=0, base_sequence=0)
    put(bench, a="last")
    log.roll()
    put(bench, z="active")
    bench.clean()
    assert contents(bench)[:2] == [(1, "k0", "v"), (3, "k1", "v")]
    assert log.offset_for_timestamp(NOW)[:2] == (NOW, 1)
    assert log.offset_for_timestamp(NOW + 11)[:2] == (NOW + 20, 5)
    # the record with the largest timestamp is gone, though its producer's batch is there as a header
    assert log.offset_for_timestamp(-3)[:2] == (NOW + 40, 9)
    assert log.offset_for_timestamp(NOW + 41) is None
    assert bench.restart().offset_for_timestamp(-3)[:2] == (NOW + 40, 9)
    assert bench.log.offset_for_timestamp(-2).offset == 0


def test_times_of_the_broker_are_found_where_records_are_left(bench):
    log = bench.configure(cleanup_policy=("compact",), message_timestamp_type="LogAppendTime")
    put(bench, a="1", b="1")
    put(bench, a="2")
    log.roll()
    bench.clean()
    assert log.offset_for_timestamp(NOW)[:2] == (NOW, 1)


def test_a_log_with_holes_is_whole_after_a_crash_whatever_its_policy_is_then(bench, log):
    put(bench, a="1")
    log.roll()
    put(bench, a="2", b="2")
    log.roll()
    bench.clean()
    bench.configure(cleanup_policy=("delete",))
    bench.crash()
    assert contents(bench) == [(1, "a", "2"), (2, "b", "2")]


def test_retention_drops_old_segments_of_a_compacted_log_too(bench):
    log = bench.configure(cleanup_policy=("compact", "delete"), retention_ms=1000, segment_bytes=200)
    put(bench, a="1")
    log.roll()
    bench.clean()
    bench.clock.advance(1001)
    put(bench, b="1")
    delete_old_segments(log, bench.clock.now_ms()).run()
    assert contents(bench) == [(1, "b", "1")]
    assert log.log_start_offset == 1


def test_records_before_the_log_start_do_not_hold_up_a_cleaning(bench, log):
    put(bench, a="1", b="1", c="1")
    put(bench, a="2")
    log.roll()
    log.advance_log_start(2)
    bench.clean()
    assert contents(bench)[-2:] == [(2, "c", "1"), (3, "a", "2")]
    assert log.log_start_offset == 2


def test_a_follower_takes_batches_without_records(bench, log, make_bench):
    bench.append(Record(b"a", b"1", NOW), producer_id=3, producer_epoch=1, base_sequence=0)
    put(bench, a="2")
    log.roll()
    bench.clean()
    data = b"".join(map(bytes, log.read(0, 1000, 2).chunks))
    follower = make_bench()
    follower.log.append_as_follower(data)
    assert follower.log.log_end_offset == 2
    assert follower.log.producers.get(3).last_sequence == 0


def test_short_keys_stand_for_themselves_in_the_map_and_long_ones_are_digested():
    short, long = b"k", bytes(100)
    assert token(short) == short and len(token(long)) == 32
    offsets = OffsetMap(1000)
    assert offsets.put(short, 1) and offsets.put(long, 2) and offsets.put(short, 3)
    assert not offsets.is_latest(short, 1) and offsets.is_latest(short, 3)
    assert offsets.is_latest(b"unknown", 0)
