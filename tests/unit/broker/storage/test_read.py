"""Reads by offset and by time."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.storage import AbortedTransaction, ColdRead, LongSearch
from barnabas.broker.storage.timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from barnabas.kafka.records import Compression, Record, all_records, batches, encode_batch, parse_header
from barnabas.kafka.records.builder import assemble_batch

NOW = 1_700_000_000_000


def three(bench) -> None:
    """Return a log with the offsets 0-2, 3-5 and 6-8 in three batches."""
    for start in (0, 3, 6):
        bench.append(*[Record(None, b"%d" % (start + number), NOW + start + number) for number in range(3)])


def read(bench, offset: int, max_bytes: int = 1 << 20, **more) -> bytes:
    found = bench.log.read(offset, max_bytes, more.pop("max_offset", bench.log.log_end_offset), **more)
    data = b"".join(map(bytes, found.chunks))
    assert found.size == len(data)
    return data


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in all_records(data)]


@pytest.mark.parametrize("offset", range(9))
def test_a_fetch_inside_a_batch_returns_the_whole_batch(bench, offset):
    three(bench)
    assert offsets(read(bench, offset)) == list(range(offset // 3 * 3, 9))


def test_reads_go_on_from_segment_to_segment(bench):
    bench.configure(segment_bytes=300)
    bench.fill(10)
    found = []
    while len(found) < 10:
        found += offsets(read(bench, len(found)))
    assert found == list(range(10))


def test_the_end_of_the_log_reads_as_nothing(bench):
    three(bench)
    assert read(bench, 9) == b""


@pytest.mark.parametrize("offset", [-1, 10])
def test_an_offset_the_log_does_not_have_is_out_of_range(bench, refused, offset):
    three(bench)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        read(bench, offset)


def test_an_offset_before_the_log_start_is_out_of_range(bench, refused):
    three(bench)
    bench.log.advance_log_start(4)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        read(bench, 3)
    assert offsets(read(bench, 4)) == [3, 4, 5, 6, 7, 8]  # the consumer drops what it did not ask for


def test_much_stays_in_its_file_until_it_is_sent_and_reads_the_same(bench):
    bench.fill(40, 10_000)
    whole = read(bench, 0)
    assert offsets(whole) == list(range(40))
    for max_bytes in range(0, len(whole), 9_999):
        data = read(bench, 0, max_bytes)
        assert data == whole[: len(data)]
        assert len(data) <= max(max_bytes, len(whole) // 40)


def test_a_large_batch_that_would_be_cut_off_is_left_out(bench):
    bench.fill(4, 100_000)
    size = len(read(bench, 0)) // 4
    for max_bytes, whole in [(1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (4 * size + 1, 4)]:
        assert len(read(bench, 0, max_bytes)) == whole * size
    assert read(bench, 0, size - 1, min_one=False) == b""


def test_the_first_batch_comes_whole_however_few_bytes_are_allowed(bench):
    three(bench)
    for max_bytes in (0, 1, 20, 70):
        data = read(bench, 3, max_bytes)
        assert offsets(data) == [3, 4, 5]
        assert len(list(batches(data))) == 1


def test_without_min_one_a_batch_that_does_not_fit_is_left_out(bench):
    three(bench)
    size = len(read(bench, 6))
    assert read(bench, 6, size - 1, min_one=False) == b""
    assert offsets(read(bench, 6, size, min_one=False)) == [6, 7, 8]
    assert read(bench, 6, 0, min_one=False) == b""


def test_no_more_than_max_bytes_come_back(bench):
    three(bench)
    size = len(read(bench, 6))
    assert len(read(bench, 0, size + 10)) <= size + 10
    assert offsets(read(bench, 0, size + 10)) == [0, 1, 2]


def test_a_batch_cut_off_is_left_out_when_batches_are_large(bench):
    three(bench)
    whole = len(read(bench, 0))
    first = whole - len(read(bench, 3))
    for max_bytes in range(first, whole):
        data = read(bench, 0, max_bytes)
        assert len(data) == (max_bytes // first) * first
    bench.fill(100, size=1)
    assert len(read(bench, 9, 2000)) == 2000


def test_nothing_at_or_beyond_the_bound_is_read(bench):
    three(bench)
    assert offsets(read(bench, 0, max_offset=6)) == [0, 1, 2, 3, 4, 5]
    assert read(bench, 3, max_offset=3) == b""
    assert read(bench, 7, max_offset=3) == b""


def test_a_hole_left_by_compaction_is_passed_over(bench):
    bench.append(Record(b"k", b"v", NOW))
    bench.log.roll()
    bench.log.append_as_follower(batch_at(100))
    bench.log.advance_high_watermark(101)
    assert offsets(read(bench, 50)) == [100]
    assert read(bench, 50, max_offset=60) == b""


def batch_at(offset: int) -> bytes:
    return encode_batch([Record(b"k", b"v", NOW)], base_offset=offset)


@pytest.mark.parametrize("interval", [0, 300, 4096])
@pytest.mark.parametrize("restarted", [False, True])
def test_every_offset_is_found_through_the_index(bench, interval, restarted):
    bench.configure(index_interval_bytes=interval)
    bench.fill(300, size=30)
    if restarted:
        bench.restart()
    for offset in range(0, 300, 7):
        assert offsets(read(bench, offset, 200))[0] == offset


def test_offset_by_time_is_the_first_record_at_or_after_it(bench):
    three(bench)
    for number in range(9):
        found = bench.log.offset_for_timestamp(NOW + number)
        assert (found.timestamp, found.offset, found.leader_epoch) == (NOW + number, number, 0)
    assert bench.log.offset_for_timestamp(0).offset == 0
    assert bench.log.offset_for_timestamp(NOW + 9) is None


def test_offset_by_time_is_exact_when_times_are_out_of_order(bench):
    for shift in (50, 0, 100, 20):
        bench.append(Record(None, b"", NOW + shift), Record(None, b"", NOW + shift + 1))
    assert bench.log.offset_for_timestamp(NOW + 10).offset == 0
    assert bench.log.offset_for_timestamp(NOW + 52).offset == 4
    assert bench.log.offset_for_timestamp(NOW + 101).offset == 5


def test_offset_by_time_starts_at_the_log_start(bench):
    three(bench)
    bench.log.advance_log_start(4)
    assert bench.log.offset_for_timestamp(0).offset == 4


def test_offset_by_time_works_on_compressed_batches_and_with_the_brokers_time(bench):
    bench.append(Record(None, b"x", NOW), Record(None, b"y", NOW + 5), compression=Compression.ZSTD)
    assert bench.log.offset_for_timestamp(NOW + 3).offset == 1
    bench.configure(message_timestamp_type="LogAppendTime")
    bench.clock.advance(1000)
    bench.append(Record(None, b"x", NOW), Record(None, b"y", NOW + 5))
    found = bench.log.offset_for_timestamp(NOW + 6)
    assert (found.timestamp, found.offset) == (NOW + 1000, 2)


def test_special_timestamps(bench):
    three(bench)
    bench.append(Record(None, b"late", NOW + 100), Record(None, b"early", NOW), epoch=2)
    log = bench.log
    log.advance_log_start(2)
    assert log.offset_for_timestamp(EARLIEST) == (-1, 2, 0)
    assert log.offset_for_timestamp(EARLIEST_LOCAL) == (-1, 2, 0)
    assert log.offset_for_timestamp(LATEST) == (-1, 11, 2)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == (NOW + 100, 9, 2)
    assert log.offset_for_timestamp(LATEST_TIERED) is None


@pytest.mark.parametrize("again", ["restart", "crash"])
def test_latest_time_in_a_later_segment_is_found_again(bench, again):
    bench.configure(segment_bytes=400, index_interval_bytes=0)
    bench.fill(4, size=100)
    for late in (0, 500, 100):
        bench.append(Record(None, bytes(10), NOW + late))
    expected = bench.log.offset_for_timestamp(MAX_TIMESTAMP)
    assert expected == (NOW + 500, 5, 0)
    assert bench.log.files.segments.active.base_offset > 0
    getattr(bench, again)()
    assert bench.log.offset_for_timestamp(MAX_TIMESTAMP) == expected


def test_an_empty_log_has_no_record_of_any_time(bench):
    assert bench.log.offset_for_timestamp(0) is None
    assert bench.log.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert bench.log.offset_for_timestamp(EARLIEST) == (-1, 0, -1)


def test_epochs_end_where_the_next_one_begins(bench):
    for epoch in (1, 1, 4, 6):
        bench.append(epoch=epoch)
    ends = {epoch: bench.log.end_offset_for_epoch(epoch) for epoch in range(-1, 8)}
    assert ends == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 2),
        2: (1, 2),
        3: (1, 2),
        4: (4, 3),
        5: (4, 3),
        6: (6, 4),
        7: (-1, -1),
    }


def test_the_high_watermark_only_goes_forward_and_not_past_the_end(bench):
    three(bench)
    assert not bench.log.advance_high_watermark(5)
    assert not bench.log.advance_high_watermark(99)
    assert bench.log.high_watermark == bench.log.last_stable_offset == 9


@pytest.mark.parametrize("compression", Compression)
def test_a_time_in_a_batch_of_many_records_is_found_in_a_thread(bench, compression):
    bench.append(Record(None, b"v", NOW))
    records = [Record(None, b"v", NOW + number) for number in range(2000)]
    bench.append(*records, compression=compression)
    bench.append(Record(None, b"v", NOW + 5000))
    with pytest.raises(LongSearch) as raised:
        bench.log.offset_for_timestamp(NOW + 700)
    batch = raised.value
    assert batch.find(NOW + 700, 0)[:2] == (NOW + 700, 701)
    assert batch.find(NOW + 700, 1000)[:2] == (NOW + 999, 1000)
    assert batch.find(NOW + 2000, 0) is None
    assert bench.log.offset_for_timestamp(NOW + 2000, batch.next_offset)[:2] == (NOW + 5000, 2001)


def test_a_batch_that_claims_very_many_records_is_found_by_its_first(bench):
    payload = encode_batch([Record(None, b"v", NOW)])
    header = parse_header(payload)._replace(record_count=10**9, last_offset_delta=10**9 - 1)
    bench.log.append_as_leader(assemble_batch(header, payload[61:]), 0)
    with pytest.raises(LongSearch) as raised:
        bench.log.offset_for_timestamp(NOW)
    assert raised.value.find(NOW, 0)[:2] == (NOW, 0)


def test_batches_whose_headers_name_a_later_time_than_their_records_are_searched_in_a_thread(bench):
    payload = encode_batch([Record(None, b"", NOW)])
    lying = assemble_batch(parse_header(payload)._replace(max_timestamp=NOW + 1000), payload[61:])
    for _ in range(100):
        bench.log.append_as_leader(lying, 0)
    bench.append(Record(None, b"v", NOW + 2000))
    start = rounds = 0
    while True:
        try:
            found = bench.log.offset_for_timestamp(NOW + 500, start)
            break
        except LongSearch as batch:
            rounds += 1
            assert batch.find(NOW + 500, start) is None
            start = batch.next_offset
    assert found[:2] == (NOW + 2000, 100)
    assert rounds > 10


def test_a_time_behind_many_batches_is_searched_in_many_turns(bench):
    bench.append(Record(None, b"v", NOW))
    for _ in range(3000):
        bench.append(Record(None, b"", NOW - 1000))
    bench.append(Record(None, b"v", NOW + 1000))
    start = rounds = 0
    while True:
        try:
            found = bench.log.offset_for_timestamp(NOW + 500, start)
            break
        except LongSearch as search:
            rounds += 1
            assert search.find(NOW + 500, start) is None
            assert start < search.next_offset <= start + 600
            start = search.next_offset
    assert found[:2] == (NOW + 1000, 3001)
    assert rounds >= 3


def warmed(bench, read):
    """Return the result of `read` when all data is in the page cache, and the number of reads."""
    for asked in range(20):
        try:
            return read(), asked
        except ColdRead as cold:
            cold.file.pin()
            cold.warm()
            cold.file.unpin()
    raise AssertionError("cold again and again")


def test_a_read_that_would_wait_for_the_disk_says_so_and_works_once_it_is_in_memory(bench):
    bench.configure(segment_bytes=20_000, index_interval_bytes=1000)
    bench.fill(500)
    bench.disk.drop_cache()
    data, asked = warmed(bench, lambda: read(bench, 3, may_wait=False))
    assert offsets(data)[0] == 3
    assert asked == 2, "the index and the log"
    assert read(bench, 499, may_wait=False), "what was just written is in memory"
    assert read(bench, 100), "others wait"


def test_a_large_read_is_cold_before_it_is_sent(bench):
    bench.append(Record(None, bytes(100_000), NOW))
    bench.restart()
    bench.disk.drop_cache()
    with pytest.raises(ColdRead):
        read(bench, 0, may_wait=False)
    assert len(warmed(bench, lambda: read(bench, 0, may_wait=False))[0]) > 100_000


@pytest.mark.parametrize("timestamp", [NOW + 50, MAX_TIMESTAMP])
def test_a_search_by_time_that_would_wait_for_the_disk_says_so(bench, timestamp):
    bench.configure(segment_bytes=3000, index_interval_bytes=100)
    bench.fill(100, step_ms=1)
    expected = bench.log.offset_for_timestamp(timestamp)
    bench.restart()
    bench.disk.drop_cache()
    found, asked = warmed(bench, lambda: bench.log.offset_for_timestamp(timestamp, may_wait=False))
    assert found == expected
    assert asked > 1


def test_the_index_of_aborted_transactions_may_have_to_be_read_from_the_disk(bench):
    bench.fill(3)
    segment = bench.log.files.segments.active
    segment.aborted.append(AbortedTransaction(5, 0, 2, 3))
    bench.disk.drop_cache()
    found, asked = warmed(bench, lambda: bench.log.aborted_transactions(0, 100, may_wait=False))
    assert [each.producer_id for each in found] == [5]
    assert asked


def test_after_a_search_that_found_the_disk_cold_others_may_wait_again(bench):
    bench.fill(100)
    bench.restart()
    bench.disk.drop_cache()
    with pytest.raises(ColdRead):
        read(bench, 50, may_wait=False)
    assert read(bench, 50)
