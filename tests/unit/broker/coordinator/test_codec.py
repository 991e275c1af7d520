"""The records of `__consumer_offsets`: byte for byte those that Apache Kafka 4.2.1 wrote in our own runs."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ProtocolError
from barnabas.broker.coordinator.groups import codec
from barnabas.broker.coordinator.groups.codec import NO_EXPIRY, CommittedOffset, OffsetKey
from barnabas.broker.coordinator.groups.consumer.records import decode_record, encode_record
from barnabas.kafka.protocol.records import consumer_group as stored
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataValue, MemberMetadata

KAFKA_OFFSET = bytes.fromhex(
    "000400000000000000070000000009626f6f6b6d61726b000001a1fb9741dd010010f58ccb54da2b416ba361a851ab72b750"
)
KAFKA_EMPTY_GROUP = bytes.fromhex("0003000000000000ffffffff000001a1fb97119d00000000")


def test_offset_is_read_and_written_as_kafka_does():
    key = bytes.fromhex("00010002673100017400000009")
    assert codec.kind_of(key) == codec.OFFSET_KIND
    assert codec.decode_offset_key(key) == OffsetKey("g1", "t", 9)
    committed = codec.decode_offset(KAFKA_OFFSET)
    assert committed == CommittedOffset(
        offset=7,
        leader_epoch=0,
        metadata="bookmark",
        committed_ms=0x01A1FB9741DD,
        expires_ms=NO_EXPIRY,
        topic_id=bytes.fromhex("f58ccb54da2b416ba361a851ab72b750"),
    )
    record = codec.offset_record(OffsetKey("g1", "t", 9), committed)
    assert (record.key, record.value) == (key, KAFKA_OFFSET)


def test_group_is_read_and_written_as_kafka_does():
    key = bytes.fromhex("000200026731")
    assert codec.kind_of(key) == codec.GROUP_KIND
    assert codec.decode_group_key(key) == "g1"
    value = codec.decode_group(KAFKA_EMPTY_GROUP)
    assert value == GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=0x01A1FB97119D
    )
    record = codec.group_record("g1", value)
    assert (record.key, record.value) == (key, KAFKA_EMPTY_GROUP)


def test_members_and_their_assignments_are_kept():
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=5,
        members=[
            MemberMetadata(
                member_id="m",
                group_instance_id="i",
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout=7,
                session_timeout=6,
                subscription=b"s",
                assignment=b"a",
            )
        ],
    )
    record = codec.group_record("g", value)
    assert record.value.hex() == (
        "0003" "0008636f6e73756d6572" "00000003" "000572616e6765" "00016d" "0000000000000005" "00000001"
        "00016d" "000169" "000163" "000a2f3132372e302e302e31" "00000007" "00000006" "0000000173" "0000000161"
    )  # fmt: skip
    assert codec.decode_group(record.value) == value


def test_offset_with_an_expiry_of_its_own_is_written_in_version_1():
    committed = CommittedOffset(offset=7, metadata="m", committed_ms=5, expires_ms=9)
    record = codec.offset_record(OffsetKey("g", "t", 0), committed)
    assert record.value.hex() == "0001000000000000000700016d00000000000000050000000000000009"
    assert codec.decode_offset(record.value) == committed


@pytest.mark.parametrize(
    ("value", "epoch"),
    [
        pytest.param("0000000000000000000700016d0000000000000005", -1, id="v0"),
        pytest.param("0002000000000000000700016d0000000000000005", -1, id="v2"),
        pytest.param("000300000000000000070000000400016d0000000000000005", 4, id="v3"),
    ],
)
def test_offsets_of_older_kafkas_are_read(value, epoch):
    committed = codec.decode_offset(bytes.fromhex(value))
    assert committed == CommittedOffset(7, epoch, "m", 5)


def test_nothing_stands_for_deletion():
    assert codec.offset_record(OffsetKey("g", "t", 0), None).value is None
    assert codec.group_record("g", None).value is None


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (codec.kind_of, b"\x00"),
        (codec.decode_offset, b""),
        (codec.decode_offset, b"\x00\x63" + bytes(30)),
        (codec.decode_offset, b"\x00\x03" + bytes(3)),
        (codec.decode_group, b"\x00\x03" + bytes(3)),
        (codec.decode_group_key, b"\x00\x02\x00\x09abc"),
        (codec.decode_offset_key, b"\x00\x01\x00\x01g"),
    ],
)
def test_what_cannot_be_read_is_a_protocol_error(read, data):
    with pytest.raises(ProtocolError):
        read(data)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x01\x00\x00\x00\x05\x00"])
def test_a_consumer_groups_record_that_is_cut_or_of_another_version_is_not_read(value):
    group = stored.ConsumerGroupMetadataKey(group_id="g")
    record = encode_record(group, stored.ConsumerGroupMetadataValue(epoch=5))
    kind = codec.kind_of(record.key)
    assert decode_record(kind, record.key, record.value) == (
        group,
        stored.ConsumerGroupMetadataValue(epoch=5),
    )
    with pytest.raises(ProtocolError):
        decode_record(kind, record.key, value)
