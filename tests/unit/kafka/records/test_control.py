"""Transaction markers, compared with kafka-python's decoder."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.kafka.records import Record, all_records, encode_batch, parse_header
from barnabas.kafka.records.control import EndTransaction, decode_end_transaction, encode_end_transaction


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_says_commit_or_abort_and_by_which_coordinator(commit):
    batch = encode_end_transaction(EndTransaction(commit, 7), producer_id=5, producer_epoch=1, timestamp=99)
    header = parse_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, -1)
    assert decode_end_transaction(header, batch) == EndTransaction(commit, 7)


def test_a_marker_has_the_bytes_of_the_specification():
    batch = encode_end_transaction(EndTransaction(True, 7), producer_id=5, producer_epoch=1, timestamp=99)
    (record,) = all_records(batch, control=True)
    assert record.key == b"\x00\x00\x00\x01"
    assert record.value == b"\x00\x00\x00\x00\x00\x07"


def test_control_records_are_left_out_unless_asked_for():
    marker = encode_end_transaction(EndTransaction(True, 0), producer_id=5, producer_epoch=1, timestamp=99)
    assert list(all_records(marker)) == []
    assert len(list(all_records(marker, control=True))) == 1


def test_another_kind_of_control_record_is_no_marker():
    batch = encode_batch([Record(b"\x00\x00\x00\x02", b"leader change")], control=True)
    assert decode_end_transaction(parse_header(batch), batch) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00"])
def test_a_control_record_without_a_type_is_corrupt(key):
    batch = encode_batch([Record(key, b"")], control=True)
    with pytest.raises(KafkaError) as refused:
        decode_end_transaction(parse_header(batch), batch)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
