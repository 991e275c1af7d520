"""The batches that a leader accepts, those that it rejects with their codes, and its changes to a batch."""

from __future__ import annotations

import struct

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.storage import InvalidRecords, LongValidation, Origin, validate_batch
from barnabas.broker.storage.dirtiness import roll_overdue
from barnabas.broker.storage.validation import AT_ONCE_BYTES
from barnabas.kafka.records import (
    Compression,
    Record,
    all_records,
    batches,
    check_crc,
    encode_batch,
    parse_header,
)
from barnabas.kafka.records.builder import assemble_batch
from barnabas.kafka.records.compression import compress

NOW = 1_700_000_000_000
RECORDS = [Record(b"k%d" % number, b"value", NOW + number) for number in range(3)]


def changed(batch: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields and a matching CRC."""
    return assemble_batch(parse_header(batch)._replace(**fields), batch[61:])


def stored(bench) -> bytes:
    log = bench.log
    return b"".join(log.read(log.log_start_offset, 1 << 20, log.log_end_offset).chunks)


def test_batches_get_the_offsets_and_the_epoch_of_the_log(bench):
    first = bench.append(*RECORDS, epoch=4)
    second = bench.append(*RECORDS, epoch=5)
    assert (first.base_offset, first.last_offset) == (0, 2)
    assert (second.base_offset, second.last_offset, second.max_timestamp) == (3, 5, NOW + 2)
    assert first.log_append_time_ms == -1 and first.log_start_offset == 0 and not first.duplicate
    headers = [header for _, header in batches(stored(bench))]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(0, 4), (3, 5)]
    assert bench.log.latest_epoch == 5


def test_bytes_are_kept_as_the_producer_made_them(bench):
    batch = encode_batch(RECORDS, compression=Compression.GZIP)
    bench.log.append_as_leader(batch, 0)
    assert stored(bench)[16:] == batch[16:]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_may_be_appended(bench, kind):
    batch = encode_batch(RECORDS)
    bench.log.append_as_leader(kind(batch), 0)
    assert [record.value for record in all_records(stored(bench))] == [b"value"] * 3
    assert batch == encode_batch(RECORDS)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda batch: b"", ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:60], ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:-1], ErrorCode.INVALID_RECORD),
        (lambda batch: batch + b"x", ErrorCode.INVALID_RECORD),
        (lambda batch: batch + batch, ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch[:8] + b"\xff" * 4 + batch[12:], ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: batch[:16] + b"\x01" + batch[17:], ErrorCode.INVALID_RECORD),
        (lambda batch: changed(batch, base_offset=1), ErrorCode.INVALID_RECORD),
        (lambda batch: changed(batch, record_count=2), ErrorCode.INVALID_RECORD),
        (lambda batch: changed(batch, record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (lambda batch: changed(batch, attributes=0x20), ErrorCode.INVALID_RECORD),
        (lambda batch: changed(batch, attributes=0x10), ErrorCode.INVALID_RECORD),
        (lambda batch: changed(batch, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda batch: changed(batch, producer_id=1), ErrorCode.INVALID_RECORD),
        (lambda batch: changed(batch, producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "nothing",
        "less than a header",
        "cut off",
        "bytes behind it",
        "two batches",
        "wrong CRC",
        "negative length",
        "old magic",
        "base offset not 0",
        "count and offsets differ",
        "no records",
        "control batch of a client",
        "transactional without producer id",
        "unknown compression",
        "producer id without epoch",
        "producer id without sequence",
    ],
)
def test_a_bad_batch_is_refused_and_changes_nothing(bench, make, code):
    bench.append()
    before = stored(bench)
    with pytest.raises(KafkaError) as refused:
        bench.log.append_as_leader(make(encode_batch(RECORDS)), 1)
    assert refused.value.code is code
    assert stored(bench) == before
    assert (bench.log.log_end_offset, bench.log.latest_epoch, len(bench.log.producers)) == (1, 0, 0)


def test_a_coordinator_may_write_control_batches(bench):
    bench.log.append_as_leader(encode_batch(RECORDS, control=True), 0, origin=Origin.COORDINATOR)
    assert bench.log.log_end_offset == 3


def test_a_batch_above_max_message_bytes_is_too_large(bench, refused):
    batch = encode_batch(RECORDS)
    bench.configure(max_message_bytes=len(batch) - 1)
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        bench.append(*RECORDS)
    bench.configure(max_message_bytes=len(batch))
    bench.append(*RECORDS)


def test_a_batch_above_segment_bytes_is_too_large_a_list(bench, refused):
    bench.configure(segment_bytes=len(encode_batch(RECORDS)) - 1)
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE):
        bench.append(*RECORDS)


def test_log_append_time_stamps_the_batch_with_the_brokers_clock(bench):
    bench.configure(message_timestamp_type="LogAppendTime")
    bench.clock.advance(77)
    info = bench.append(Record(None, b"x", 1), Record(None, b"y", 2))
    assert info.log_append_time_ms == info.max_timestamp == NOW + 77
    (position, header), *_ = batches(stored(bench))
    check_crc(header, stored(bench), position)
    assert [record.timestamp for record in all_records(stored(bench))] == [NOW + 77] * 2


def test_a_client_cannot_claim_the_brokers_time_on_a_topic_of_create_time(bench):
    batch = encode_batch([Record(None, b"x", NOW - 5), Record(None, b"y", NOW)])
    info = bench.log.append_as_leader(changed(batch, attributes=0x08), 0)
    assert info.log_append_time_ms == -1
    assert [record.timestamp for record in all_records(stored(bench))] == [NOW - 5, NOW]


@pytest.mark.parametrize(
    ("settings", "timestamp", "allowed"),
    [
        ({}, NOW + 3_600_000, True),
        ({}, NOW + 3_600_001, False),
        ({}, 0, True),
        ({}, -1, True),
        ({"message_timestamp_before_max_ms": 10}, NOW - 10, True),
        ({"message_timestamp_before_max_ms": 10}, NOW - 11, False),
        ({"message_timestamp_after_max_ms": 5}, NOW + 6, False),
    ],
)
def test_timestamps_are_taken_within_the_bounds_of_the_topic(bench, refused, settings, timestamp, allowed):
    bench.configure(**settings)
    if allowed:
        bench.append(Record(None, b"", timestamp))
    else:
        with refused(ErrorCode.INVALID_TIMESTAMP):
            bench.append(Record(None, b"", timestamp))


def test_the_records_whose_time_is_refused_are_named_and_no_others(bench):
    bench.configure(message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=5)
    times = [NOW, NOW - 11, NOW - 10, NOW + 5, NOW + 6]
    with pytest.raises(InvalidRecords) as refused:
        bench.append(*(Record(None, b"", time) for time in times))
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [tuple(error) for error in refused.value.record_errors] == [
        (1, f"the record's timestamp {NOW - 11} is not within {NOW - 10} and {NOW + 5}"),
        (4, f"the record's timestamp {NOW + 6} is not within {NOW - 10} and {NOW + 5}"),
    ]


def test_a_compacted_topic_refuses_records_without_a_key_and_names_them(bench):
    bench.configure(cleanup_policy=("compact",))
    bench.append(*RECORDS)
    with pytest.raises(InvalidRecords) as refused:
        bench.append(RECORDS[0], Record(None, b"no key", NOW), RECORDS[1], Record(None, b"nor here", NOW))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.value.record_errors] == [1, 3]
    assert bench.log.log_end_offset == 3


@pytest.mark.parametrize("sent", Compression)
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_that_asks_for_a_compression_gets_it(bench, sent, wanted):
    bench.configure(compression_type=wanted)
    bench.append(*RECORDS, compression=sent)
    ((position, header),) = batches(stored(bench))
    check_crc(header, stored(bench), position)
    assert header.compression == Compression.named(wanted)
    assert [record.key for record in all_records(stored(bench))] == [b"k0", b"k1", b"k2"]


@pytest.mark.parametrize(("codec", "fast", "best"), [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -5, 3)])
def test_a_topic_chooses_the_level_of_its_compression(bench, codec, fast, best):
    """Levels of compression: KIP-390."""
    records = [Record(b"k", b"%d times %d" % (n * 7919 % 1000, n), NOW) for n in range(400)]
    sizes = []
    for level in (fast, best):
        bench.configure(compression_type=codec, **{f"compression_{codec}_level": level})
        before = len(stored(bench))
        batch = encode_batch(records)
        valid = validate_batch(batch, bench.log.config, Origin.CLIENT, NOW, at_once=False)
        bench.log.append_as_leader(batch, 0, valid=valid)
        bench.log.advance_high_watermark(bench.log.log_end_offset)
        sizes.append(len(stored(bench)) - before)
    assert sizes[1] < sizes[0]
    assert [record.value for record in all_records(stored(bench))] == [each.value for each in records] * 2


@pytest.fixture
def levels_used(monkeypatch):
    """The levels with which batches are compressed."""
    used = []

    def recorded(codec: Compression, data: bytes, level: int | None = None) -> bytes:
        used.append(level)
        return compress(codec, data, level)

    monkeypatch.setattr("barnabas.kafka.records.builder.compress", recorded)
    return used


LEVELS = {"gzip": [-1, *range(1, 10)], "lz4": [*range(1, 18)], "zstd": [-131_072, -5, 0, *range(1, 23)]}
#: levels that take longer than the default of gzip, the slowest of the defaults
SLOW_LEVELS = {"gzip": {7, 8, 9}, "lz4": {7, 8, *range(10, 18)}, "zstd": {*range(11, 23)}}


@pytest.mark.parametrize("codec", LEVELS)
def test_no_slow_level_compresses_on_the_event_loop(bench, levels_used, codec):
    large = encode_batch([Record(b"k", bytes(AT_ONCE_BYTES), NOW)])
    assert parse_header(large).size > AT_ONCE_BYTES
    slow = set()
    for level in LEVELS[codec]:
        bench.configure(compression_type=codec, **{f"compression_{codec}_level": level})
        with pytest.raises(LongValidation):
            bench.log.append_as_leader(large, 0)
        assert not levels_used
        try:
            bench.append(*RECORDS)
        except LongValidation:
            slow.add(level)
            assert not levels_used
            validate_batch(encode_batch(RECORDS), bench.log.config, Origin.CLIENT, NOW, at_once=False)
        assert levels_used.pop() == level and not levels_used
    assert slow == SLOW_LEVELS[codec]


@pytest.mark.parametrize("codec", LEVELS)
def test_a_coordinator_which_has_no_thread_does_not_compress_with_a_slow_level(bench, levels_used, codec):
    batch = encode_batch(RECORDS)
    for level in LEVELS[codec]:
        bench.configure(compression_type=codec, **{f"compression_{codec}_level": level})
        bench.log.append_as_leader(batch, 0, origin=Origin.COORDINATOR)
        assert levels_used.pop() == (None if level in SLOW_LEVELS[codec] else level)
    assert {header.compression for _, header in batches(stored(bench))} == {Compression.named(codec)}


def test_a_damaged_payload_is_corrupt_when_it_must_be_decompressed(bench, refused):
    bench.configure(compression_type="gzip")
    header = parse_header(encode_batch(RECORDS))._replace(attributes=Compression.ZSTD)
    damaged = assemble_batch(header, b"not zstd")
    with pytest.raises(LongValidation):  # the codec does not tell damage from too little room
        bench.log.append_as_leader(damaged, 0)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        validate_batch(damaged, bench.log.config, Origin.CLIENT, NOW, at_once=False)


@pytest.mark.parametrize("compression", [c for c in Compression if c])
def test_a_bomb_of_records_is_validated_in_a_thread_and_within_bounds(bench, compression):
    bench.configure(cleanup_policy=("compact",))
    bomb = encode_batch([Record(b"k", b"v", NOW)] * 20_000, compression=compression)
    with pytest.raises(LongValidation):
        bench.log.append_as_leader(bomb, 0)
    valid = validate_batch(bomb, bench.log.config, Origin.CLIENT, NOW, at_once=False)
    assert bench.log.append_as_leader(bomb, 0, valid=valid).last_offset == 19_999
    header = parse_header(bomb)._replace(record_count=30_000_000, last_offset_delta=29_999_999)
    larger = assemble_batch(header, bomb[61:])
    with pytest.raises(KafkaError, match="30000000 records"):
        validate_batch(larger, bench.log.config, Origin.CLIENT, NOW, at_once=False)


def test_a_batch_that_decompresses_to_too_much_is_refused(bench):
    bench.configure(cleanup_policy=("compact",))
    bomb = encode_batch([Record(b"k", bytes(30_000_000), NOW)], compression=Compression.ZSTD)
    with pytest.raises(LongValidation):
        bench.log.append_as_leader(bomb, 0)
    with pytest.raises(KafkaError, match="decompresses to more than"):
        validate_batch(bomb, bench.log.config, Origin.CLIENT, NOW, at_once=False)


def test_an_error_names_a_hundred_records_at_most(bench):
    far = [Record(b"k", b"v", NOW + 10**10)] * 20_000
    batch = encode_batch(far, compression=Compression.GZIP)
    with pytest.raises(LongValidation):
        bench.log.append_as_leader(batch, 0)
    with pytest.raises(InvalidRecords) as refusal:
        validate_batch(batch, bench.log.config, Origin.CLIENT, NOW, at_once=False)
    assert [error.batch_index for error in refusal.value.record_errors] == list(range(100))
    keyless = encode_batch([Record(None, b"v", NOW)] * 20_000)
    bench.configure(cleanup_policy=("compact",))
    with pytest.raises(InvalidRecords) as refusal:
        validate_batch(keyless, bench.log.config, Origin.CLIENT, NOW, at_once=False)
    assert len(refusal.value.record_errors) == 100


def test_the_log_rolls_before_a_segment_grows_too_large(bench):
    size = len(encode_batch([Record(None, bytes(100), NOW)]))
    bench.configure(segment_bytes=3 * size)
    bench.fill(7)
    assert bench.base_offsets() == [0, 3, 6]
    assert [segment.size for segment in bench.log.files.segments] == [3 * size, 3 * size, size]
    assert bench.names(".log") == [f"{offset:020d}.log" for offset in (0, 3, 6)]


@pytest.mark.parametrize(("spare", "segments"), [(-1, [0, 1]), (0, [0]), (1, [0])])
def test_a_batch_that_fills_a_segment_exactly_still_belongs_to_it(bench, spare, segments):
    size = len(encode_batch([Record(None, bytes(100), NOW)]))
    bench.configure(segment_bytes=2 * size + spare)
    bench.fill(2)
    assert bench.base_offsets() == segments


def test_a_compacted_log_rolls_when_records_are_max_compaction_lag_ms_younger_than_the_first(bench):
    bench.configure(cleanup_policy=("compact",), segment_ms=5000, max_compaction_lag_ms=1000)
    bench.append(Record(b"k", b"", NOW))
    bench.append(Record(b"k", b"", NOW + 1000))
    assert bench.base_offsets() == [0]
    bench.append(Record(b"k", b"", NOW + 1001))
    assert bench.base_offsets() == [0, 2]


def test_an_active_segment_is_overdue_when_its_first_record_is_older_than_max_compaction_lag_ms(bench):
    log = bench.configure(cleanup_policy=("compact",), max_compaction_lag_ms=1000)
    bench.append(Record(b"k", b"", NOW))
    assert not roll_overdue(log, NOW + 1000)
    assert roll_overdue(log, NOW + 1001)


def test_the_log_rolls_by_the_brokers_clock_for_records_without_a_time(bench):
    log = bench.configure(segment_ms=5000)
    bench.append(Record(None, b"v", NOW))
    bench.clock.advance(5000)
    bench.append(Record(None, b"v", -1))
    assert bench.base_offsets() == [0]
    bench.clock.advance(1)
    bench.append(Record(None, b"v", -1))
    assert bench.base_offsets() == [0, 2]
    log.roll()
    bench.append(Record(None, b"v", -1))
    bench.append(Record(None, b"v", NOW + 60_000))
    assert bench.base_offsets() == [0, 2, 3]


def test_an_empty_active_segment_stays_the_active_one_when_the_log_rolls(bench):
    log = bench.log
    log.roll()
    log.flush()
    bench.append(Record(None, b"v", NOW))
    log.roll()
    active = log.roll()
    log.flush()
    assert active is log.files.segments.active
    bench.append(Record(None, b"v", NOW))
    log.flush()
    assert not log.is_offline
    assert bench.base_offsets() == [0, 1]


def test_the_log_rolls_when_records_are_segment_ms_younger_than_the_first(bench):
    bench.configure(segment_ms=1000)
    bench.append(Record(None, b"", NOW))
    bench.append(Record(None, b"", NOW + 1000))
    assert bench.base_offsets() == [0]
    bench.append(Record(None, b"", NOW + 1001))
    assert bench.base_offsets() == [0, 2]


def test_rolling_by_time_goes_on_after_a_restart(bench):
    bench.configure(segment_ms=1000)
    bench.append(Record(None, b"", NOW))
    bench.restart()
    bench.append(Record(None, b"", NOW + 1001))
    assert bench.base_offsets() == [0, 1]


def test_records_without_timestamps_roll_by_the_segments_own_age(bench):
    bench.configure(segment_ms=1000)
    bench.append(Record(None, b"", -1))
    bench.clock.advance(1000)
    bench.append(Record(None, b"", -1))
    assert bench.base_offsets() == [0]
    bench.clock.advance(1)
    bench.append(Record(None, b"", -1))
    assert bench.base_offsets() == [0, 2]


def test_the_log_rolls_when_an_index_is_full(bench):
    bench.configure(segment_index_bytes=36, index_interval_bytes=0)
    bench.fill(10, step_ms=1)
    assert len(bench.base_offsets()) > 1
    assert all(segment.times.size <= 36 for segment in bench.log.files.segments)


def test_a_full_time_index_has_room_for_the_entry_of_its_sealing(bench):
    bench.configure(segment_index_bytes=36, index_interval_bytes=100)
    bench.fill(20, size=0, step_ms=1)
    sealed = list(bench.log.files.segments)[:-1]
    assert max(segment.times.size for segment in sealed) == 36


def test_the_largest_offset_that_fits_the_index_stays_in_its_segment(bench):
    bench.append(Record(None, b"", NOW))
    bench.log.append_as_follower(encode_batch([Record(None, b"", NOW)], base_offset=2**31 - 1))
    assert bench.base_offsets() == [0]
    assert bench.restart().log_end_offset == 2**31
    assert bench.crash().log_end_offset == 2**31


def test_an_offset_that_would_not_fit_the_index_begins_a_segment(bench):
    bench.append(Record(None, b"", NOW))
    far = bytearray(encode_batch([Record(None, b"", NOW)], base_offset=2**31))
    bench.log.append_as_follower(far)
    assert bench.base_offsets() == [0, 1]


def test_a_follower_takes_batches_as_the_leader_has_them(bench):
    data = encode_batch(RECORDS, base_offset=0, leader_epoch=1) + encode_batch(
        RECORDS, base_offset=10, leader_epoch=3, producer_id=9, producer_epoch=0, base_sequence=0
    )
    info = bench.log.append_as_follower(data + data[:30])
    assert (info.base_offset, info.last_offset) == (0, 12)
    assert stored(bench) == data
    assert [tuple(entry) for entry in bench.log.epochs.entries] == [(1, 0), (3, 10)]
    assert bench.log.producers.get(9).last_offset == 12


def test_a_follower_refuses_what_does_not_follow_or_is_damaged(bench, refused):
    bench.append(*RECORDS)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        bench.log.append_as_follower(encode_batch(RECORDS, base_offset=2))
    damaged = bytearray(encode_batch(RECORDS, base_offset=3))
    damaged[-1] ^= 1
    with refused(ErrorCode.CORRUPT_MESSAGE):
        bench.log.append_as_follower(damaged)
    assert bench.log.append_as_follower(b"") is None
    assert bench.log.log_end_offset == 3


def test_max_timestamp_before_base_timestamp_is_still_bounded(bench, refused):
    batch = encode_batch([Record(None, b"", NOW + 10), Record(None, b"", NOW)])
    bench.configure(message_timestamp_after_max_ms=5)
    with refused(ErrorCode.INVALID_TIMESTAMP):
        bench.log.append_as_leader(batch, 0)


def test_the_largest_length_a_header_can_claim_is_refused(bench, refused):
    batch = bytearray(encode_batch(RECORDS))
    struct.pack_into(">i", batch, 8, 2**31 - 1)
    with refused(ErrorCode.INVALID_RECORD):
        bench.log.append_as_leader(batch, 0)
