"""Record batches become the same Arrow columns as with a decoder for single records."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.kafka.protocol.messages.fetch import AbortedTransaction
from barnabas.kafka.records import Compression, Record, batches, encode_batch, parse_header
from barnabas.kafka.records.batch import BatchHeader, with_timestamp_type
from barnabas.kafka.records.builder import all_records, assemble_batch, batch_payload
from barnabas.kafka.records.compacted import with_records
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction
from barnabas.kafka.records.record import encode_records, record_spans
from barnabas.spark.arrow import arrow_schema, to_record_batches
from barnabas.spark.columns import column_names
from barnabas.spark.visible_batches import visible_payloads, whole_batches

TP = TopicPartition("t", 3)
EVERYTHING = (0, 2**62)
COLUMNS = column_names(include_headers=True)

#: lengths that take one, two and three bytes
DATA = st.one_of(st.none(), st.binary(max_size=8), st.integers(60, 9000).map(lambda size: b"x" * size))
RECORDS = st.lists(
    st.builds(
        Record,
        key=DATA,
        value=DATA,
        timestamp=st.one_of(st.integers(-1, 2**45), st.integers(1_700_000_000_000, 1_700_000_000_200)),
        headers=st.lists(st.tuples(st.text(max_size=3), DATA), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=80,
)


def decoded(
    data: bytes,
    start: int = 0,
    end: int = 2**62,
    aborted: Sequence[AbortedTransaction] = (),
    columns: Sequence[str] = COLUMNS,
) -> list[dict[str, Any]]:
    schema = arrow_schema(columns)
    view = memoryview(data)
    payloads = visible_payloads(view, whole_batches(view), aborted, start=start, end=end, check_crcs=True)
    found = list(to_record_batches(TP, payloads, start, end, schema))
    for batch in found:
        batch.validate(full=True)
    return pa.Table.from_batches(found, schema).to_pylist()


def milliseconds(row: dict[str, Any]) -> int:
    return round(row["timestamp"].timestamp() * 1000)


def row_of(record: Record) -> tuple[object, ...]:
    headers = [{"key": key, "value": value} for key, value in record.headers] or None
    return (record.key, record.value, record.offset, record.timestamp, headers)


def plain(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [(row["key"], row["value"], row["offset"], milliseconds(row), row["headers"]) for row in rows]


def log(*contents: Sequence[Record], compression: Compression = Compression.NONE, at: int = 0) -> bytes:
    """Return batches one after another, from offset `at` on."""
    data = b""
    for records in contents:
        data += encode_batch(records, base_offset=at, compression=compression)
        at += len(records)
    return data


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in rows]


def numbered(*numbers: int) -> list[Record]:
    return [Record(None, b"%d" % number, 1000 + number) for number in numbers]


@given(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from(Compression), st.data())
def test_columns_are_what_the_records_are(
    contents: list[list[Record]], compression: Compression, data: st.DataObject
) -> None:
    encoded = log(*contents, compression=compression, at=7)
    start = data.draw(st.integers(0, 400))
    end = data.draw(st.integers(start, 400))
    rows = decoded(encoded, start, end)
    assert plain(rows) == [row_of(each) for each in all_records(encoded) if start <= each.offset < end]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} <= {("t", 3, 0)}


@given(RECORDS, st.data())
def test_damage_is_noticed_or_changes_nothing_else(records: list[Record], data: st.DataObject) -> None:
    """With any byte changed and a matching CRC, the decoder fails or agrees with the other decoder."""
    payload = bytearray(encode_records(records, range(len(records)), 0))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    header = parse_header(encode_batch(records))._replace(base_timestamp=0)
    batch = assemble_batch(header, bytes(payload))
    try:
        expected = [row_of(record) for record in all_records(batch)]
    except KafkaError:
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            decoded(batch)
        return
    offsets = [row[2] for row in expected]
    if offsets != sorted(set(offsets) & set(range(len(records)))):
        with pytest.raises(KafkaError, match="the offsets of a batch's records do not rise"):
            decoded(batch)
        return
    try:
        assert [row[:3] for row in plain(decoded(batch))] == [row[:3] for row in expected]
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_TIMESTAMP
    except OverflowError:
        assert max(abs(row[3]) for row in expected) > 2**46, "a time that no date of Python's can be"


def test_a_column_that_is_not_wanted_is_not_there() -> None:
    assert decoded(log(numbered(1, 2)), columns=["offset"]) == [{"offset": 0}, {"offset": 1}]


def test_a_batch_that_begins_before_the_wanted_offset_gives_its_rest() -> None:
    data = log(numbered(0, 1, 2), numbered(3, 4))
    assert values(decoded(data, 2, 4)) == [b"2", b"3"]


def test_a_batch_cut_off_at_the_end_is_left_out() -> None:
    data = log(numbered(0, 1), numbered(2, 3))
    for size in range(len(log(numbered(0, 1))), len(data)):
        assert values(decoded(data[:size])) == [b"0", b"1"]


def test_gaps_that_compaction_left_stay() -> None:
    batch = encode_batch(numbered(0, 1, 2, 3), compression=Compression.LZ4)
    header = parse_header(batch)
    payload = batch_payload(header, batch)
    spans = record_spans(payload, 4)
    for horizon in (None, 500):
        kept = with_records(header, payload, [spans[1], spans[3]], horizon)
        assert [(row["offset"], milliseconds(row)) for row in decoded(kept)] == [(1, 1001), (3, 1003)]


def test_a_batch_that_compaction_has_emptied_gives_nothing() -> None:
    header = parse_header(encode_batch(numbered(0, 1)))
    empty = assemble_batch(header._replace(record_count=0), b"")
    assert values(decoded(empty + log(numbered(2), at=2))) == [b"2"]


def test_the_brokers_time_stands_for_all_records_of_its_batch() -> None:
    batch = encode_batch(numbered(0, 1))
    stamped = with_timestamp_type(parse_header(batch), batch, 77)
    rows = decoded(stamped + log(numbered(2), at=2))
    assert [milliseconds(row) for row in rows] == [77, 77, 1002]
    assert [row["timestampType"] for row in rows] == [1, 1, 0]


@pytest.mark.parametrize("time", [1_700_000_000_000_000_000, -(2**62)])
def test_a_time_that_spark_cannot_hold_is_named_and_the_other_columns_can_be_read(time: int) -> None:
    data = log([*numbered(0), Record(None, b"1", time)], at=7)
    with pytest.raises(KafkaError, match=f"the record at offset 8 has the time {time}, in milliseconds"):
        decoded(data)
    assert decoded(data, columns=["value"]) == [{"value": b"0"}, {"value": b"1"}]


def test_markers_are_no_records() -> None:
    assert values(decoded(log(numbered(0)) + marker(5, at=1, commit=True) + log(numbered(2), at=2))) == [
        b"0",
        b"2",
    ]


def marker(producer: int, at: int, commit: bool) -> bytes:
    batch = encode_end_transaction(
        EndTransaction(commit, 0), producer_id=producer, producer_epoch=0, timestamp=0
    )
    return struct.pack(">q", at) + batch[8:]


def transactional(producer: int, at: int, *numbers: int) -> bytes:
    return encode_batch(
        numbered(*numbers),
        base_offset=at,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_what_an_aborted_transaction_wrote_is_left_out_and_only_that() -> None:
    data = (
        transactional(5, 0, 0)  # of a transaction that committed
        + marker(5, 1, commit=True)
        + transactional(5, 2, 2, 3)
        + transactional(6, 4, 4)
        + log(numbered(5), at=5)
        + marker(5, 6, commit=False)
        + transactional(5, 7, 7)
        + marker(6, 8, commit=True)
        + marker(5, 9, commit=True)
    )
    aborted = [AbortedTransaction(producer_id=5, first_offset=2)]
    assert values(decoded(data, aborted=aborted)) == [b"0", b"4", b"5", b"7"]
    assert values(decoded(data)) == [b"0", b"2", b"3", b"4", b"5", b"7"], "read_uncommitted"


def test_an_aborted_transaction_that_began_before_the_response_is_left_out_too() -> None:
    data = transactional(5, 10, 10) + marker(5, 11, commit=False) + transactional(5, 12, 12)
    aborted = [AbortedTransaction(producer_id=5, first_offset=3)]
    assert values(decoded(data, aborted=aborted)) == [b"12"]


def test_a_wrong_checksum_is_noticed() -> None:
    data = bytearray(log(numbered(0, 1)))
    data[-1] ^= 1
    with pytest.raises(KafkaError, match="the batch's CRC is"):
        decoded(bytes(data))


def test_messages_of_the_old_formats_are_refused_by_name() -> None:
    crc_magic_attributes, null = b"\x00\x00\x00\x00\x01\x00", b"\xff\xff\xff\xff"
    message = crc_magic_attributes + bytes(8) + null + null
    with pytest.raises(KafkaError, match="there are messages of format 1: only format 2"):
        decoded(struct.pack(">qi", 0, len(message)) + message)


def test_a_header_whose_name_is_no_text_is_shown_with_replacements() -> None:
    record = encode_records([Record(None, None, headers=(("ab", b"1"),))], range(1), -1)
    header = parse_header(encode_batch(numbered(0)))
    batch = assemble_batch(header, record.replace(b"ab", b"\xff\xfe"))
    assert decoded(batch)[0]["headers"] == [{"key": "\ufffd\ufffd", "value": b"1"}]


def test_many_batches_are_decoded_a_piece_at_a_time() -> None:
    contents = [[Record(None, bytes(500_000))] * 3 for _ in range(10)]
    data = log(*contents)
    assert [row["offset"] for row in decoded(data)] == list(range(30))
    assert len(list(batches(data))) == 10


def test_a_batch_that_speaks_of_more_records_than_it_has_is_corrupt() -> None:
    batch = encode_batch(numbered(0, 1))
    header: BatchHeader = parse_header(batch)
    for count in (1, 3):
        wrong = assemble_batch(header._replace(record_count=count), batch_payload(header, batch))
        with pytest.raises(KafkaError, match=f"does not hold the {count} records"):
            decoded(wrong)
