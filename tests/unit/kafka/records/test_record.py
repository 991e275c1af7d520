"""Records one by one, with kafka-python as a second reader and writer of the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.kafka.records import Record, all_records, batch_records, encode_batch, parse_header
from barnabas.kafka.records.batch import HEADER_SIZE
from barnabas.kafka.records.builder import assemble_batch
from barnabas.kafka.records.record import encode_records, encode_varint, record_spans, records_without_key

timestamps = st.integers(0, 2**45)
fields = st.none() | st.binary(max_size=100)
headers = st.lists(st.tuples(st.text(max_size=10), fields), max_size=3).map(tuple)
records = st.builds(Record, key=fields, value=fields, timestamp=timestamps, headers=headers)
batches_of_records = st.lists(records, min_size=1, max_size=20)


@given(batches_of_records, st.integers(0, 2**60))
def test_records_come_back_as_they_went_in(given_records, base_offset):
    batch = encode_batch(given_records, base_offset=base_offset)
    expected = [record._replace(offset=base_offset + place) for place, record in enumerate(given_records)]
    assert list(all_records(batch)) == expected


@given(batches_of_records)
def test_kafka_python_reads_the_records_we_write(given_records):
    theirs = list(DefaultRecordBatch(encode_batch(given_records)))
    assert [Record(r.key, r.value, r.timestamp, tuple(r.headers), r.offset) for r in theirs] == [
        record._replace(offset=place) for place, record in enumerate(given_records)
    ]


@given(batches_of_records)
def test_we_read_the_records_kafka_python_writes(given_records):
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for place, record in enumerate(given_records):
        builder.append(place, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    assert list(all_records(batch)) == [
        record._replace(offset=place) for place, record in enumerate(given_records)
    ]


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_take_the_whole_range_of_a_long(number):
    batch = encode_batch([Record(None, None, 0), Record(None, None, number)])
    assert [record.timestamp for record in all_records(batch)] == [0, number]


def test_small_numbers_take_one_byte():
    assert [encode_varint(number) for number in (0, -1, 1, -64, 63)] == [
        b"\0",
        b"\1",
        b"\2",
        b"\x7f",
        b"\x7e",
    ]
    assert encode_varint(64) == b"\x80\x01"


@given(st.binary(max_size=100), st.integers(0, 5))
def test_any_payload_decodes_to_records_or_is_corrupt(payload, count):
    header = parse_header(encode_batch([Record(None, None)]))._replace(record_count=count)
    batch = assemble_batch(header, payload)
    try:
        assert len(list(batch_records(parse_header(batch), batch))) == count
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE


@given(batches_of_records, st.data())
def test_a_changed_payload_never_raises_anything_else(given_records, data):
    batch = bytearray(encode_batch(given_records))
    at = data.draw(st.integers(61, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    try:
        list(all_records(batch))
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_record_count_is_corrupt(count):
    batch = encode_batch([Record(None, b"x")])
    header = parse_header(batch)._replace(record_count=count)
    with pytest.raises(KafkaError):
        list(batch_records(header, batch))


@pytest.mark.parametrize("size", [*range(1, 140), 8190, 8191, 8192, 16384])
def test_records_without_key_are_found_whatever_their_size(size):
    batch = encode_batch([Record(None, bytes(size), 5), Record(b"k", bytes(size), 7), Record(None, b"", 9)])
    assert records_without_key(batch[HEADER_SIZE:], 3, 10) == [0, 2]
    assert records_without_key(batch[HEADER_SIZE:], 3, 1) == [0]
    spans = record_spans(batch[HEADER_SIZE:], 3)
    assert [span.timestamp_delta for span in spans] == [0, 2, 4]
    assert spans[-1].end == len(batch) - HEADER_SIZE


@pytest.mark.parametrize("length", [-2, 40])
def test_a_span_beyond_its_batch_is_corrupt(length):
    payload = encode_batch([Record(None, b"v", 5)])[HEADER_SIZE:]
    with pytest.raises(KafkaError, match="longer than its batch"):
        record_spans(encode_varint(length) + payload[1:], 1)


def test_as_many_offsets_as_records_are_needed():
    with pytest.raises(ValueError, match="shorter"):
        encode_records([Record(None, b"v", 5)] * 2, [0], 0)
