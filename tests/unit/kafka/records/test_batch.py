"""Batch headers, checksums, and a log's changes of a batch."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.kafka.records import (
    Compression,
    Record,
    all_records,
    batch_keys_and_values,
    batches,
    check_crc,
    encode_batch,
    parse_header,
)
from barnabas.kafka.records.batch import (
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    low_attributes,
    placed,
    with_timestamp_type,
)
from barnabas.kafka.records.compacted import with_records, without_records
from barnabas.kafka.records.crc import crc32c
from barnabas.kafka.records.record import record_spans

NOW = 1_700_000_000_000
RECORDS = [Record(b"k", b"v%d" % number, 1000 + number) for number in range(3)]


def test_crc32c_has_the_check_value_of_the_castagnoli_polynomial():
    assert crc32c(b"123456789") == 0xE3069283


def test_header_tells_what_the_batch_was_made_with():
    batch = encode_batch(
        RECORDS,
        base_offset=7,
        leader_epoch=3,
        producer_id=11,
        producer_epoch=2,
        base_sequence=5,
        transactional=True,
    )
    header = parse_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 9, 10)
    assert (header.leader_epoch, header.magic, header.record_count) == (3, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 5)
    assert header.last_sequence == 7
    assert header.is_transactional and not header.is_control and not header.is_log_append_time


def test_sequence_wraps_to_zero_after_the_largest_int():
    batch = encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 1)
    assert parse_header(batch).last_sequence == 1


def test_placing_a_batch_changes_offset_and_epoch_and_keeps_the_crc():
    batch = encode_batch(RECORDS)
    moved = b"".join(placed(batch, 2**40, 9))
    header = parse_header(moved)
    check_crc(header, moved)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    assert moved[16:] == batch[16:]
    assert [record.offset for record in all_records(moved)] == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.parametrize("at", [16, 17, 21, 40, HEADER_SIZE, -1])
def test_a_changed_byte_is_found_by_the_check(at):
    batch = bytearray(encode_batch(RECORDS))
    batch[at] ^= 0x10
    with pytest.raises(KafkaError) as refused:
        check_crc(parse_header(batch), batch)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_corrupt(data):
    try:
        for position, header in batches(data):
            check_crc(header, data, position)
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_cut_off_at_the_end_is_left_out():
    first, second = encode_batch(RECORDS), encode_batch(RECORDS, base_offset=3)
    for cut in (1, 20, len(second) - 1):
        found = list(batches(first + second[:cut]))
        assert [position for position, _ in found] == [0]
    assert [header.base_offset for _, header in batches(first + second)] == [0, 3]


def test_a_length_below_a_headers_is_corrupt():
    batch = bytearray(encode_batch(RECORDS))
    struct.pack_into(">i", batch, 8, -1)
    with pytest.raises(KafkaError):
        list(batches(batch))


def test_log_append_time_gives_every_record_the_brokers_time():
    batch = encode_batch(RECORDS)
    stamped = with_timestamp_type(parse_header(batch), batch, 5555)
    header = parse_header(stamped)
    check_crc(header, stamped)
    assert header.is_log_append_time and header.max_timestamp == 5555
    assert {record.timestamp for record in all_records(stamped)} == {5555}
    back = with_timestamp_type(header, stamped, None)
    check_crc(parse_header(back), back)
    assert [record.timestamp for record in all_records(back)] == [1000, 1001, 1002]


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_that_has_lost_its_records_is_not_compressed(codec):
    header = parse_header(encode_batch(RECORDS, producer_id=7, base_sequence=3, compression=codec))
    header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG)
    left = without_records(header)
    emptied = parse_header(left)
    check_crc(emptied, left)
    assert (emptied.compression, emptied.attributes & DELETE_HORIZON_FLAG, emptied.record_count) == (0, 0, 0)
    assert (emptied.producer_id, emptied.base_sequence, emptied.last_offset) == (7, 3, 2)
    assert list(all_records(left)) == []


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=300),
            st.integers(0, 2**40),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(Compression),
)
def test_keys_and_values_are_those_of_the_records(contents, codec):
    records = [Record(key, value, NOW + time, tuple(headers)) for key, value, time, headers in contents]
    before = encode_batch([Record(b"before", b"", NOW)])
    data = before + encode_batch(records, compression=codec)
    _, (position, header) = batches(data)
    found = batch_keys_and_values(header, data, position)
    assert found == [(record.key, record.value) for record in records]


def test_records_left_of_a_batch_with_the_brokers_time_keep_it():
    plain = encode_batch([Record(b"a", b"1", 5), Record(b"b", b"2", 9)])
    batch = with_timestamp_type(parse_header(plain), plain, 77)
    header = parse_header(batch)
    payload = batch[HEADER_SIZE:]
    kept = record_spans(payload, 2)[:1]
    assert parse_header(with_records(header, payload, kept, None)).max_timestamp == 77
    assert parse_header(with_records(parse_header(plain), payload, kept, None)).max_timestamp == 5


def test_what_is_too_short_for_a_header_has_no_attributes():
    batch = encode_batch([Record(None, b"v", 1)], transactional=True)
    assert low_attributes(batch) == parse_header(batch).attributes != 0
    assert low_attributes(batch[: HEADER_SIZE - 1]) == 0
