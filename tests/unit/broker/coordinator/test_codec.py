"""The records of `__consumer_offsets` are equal, byte for byte, to those that Apache Kafka 4.2.1 wrote in our
runs.
"""

from __future__ import annotations

import pytest

from barnabas.base.errors import ProtocolError
from barnabas.broker.coordinator.groups import codec
from barnabas.broker.coordinator.groups.codec import NO_EXPIRY, CommittedOffset, OffsetKey
from barnabas.broker.coordinator.groups.modern.records import ModernGroupRecord, decode_record
from barnabas.broker.coordinator.record_prefix import prefix_of
from barnabas.kafka.protocol.records import consumer_group as stored
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataValue, MemberMetadata

KAFKA_OFFSET = bytes.fromhex(
    "000400000000000000070000000009626f6f6b6d61726b000001a1fb9741dd010010f58ccb54da2b416ba361a851ab72b750"
)
OFFSET_KEY = bytes.fromhex("00010002673100017400000009")
GROUP_KEY = bytes.fromhex("000200026731")
KAFKA_EMPTY_GROUP = bytes.fromhex("0003000000000000ffffffff000001a1fb97119d00000000")


def test_offset_is_read_and_written_as_kafka_does():
    key = OFFSET_KEY
    assert prefix_of(key) == codec.OFFSET_KIND
    record = codec.decode_offset_record(key, KAFKA_OFFSET)
    assert record.key == OffsetKey("g1", "t", 9)
    assert record.committed == CommittedOffset(
        offset=7,
        leader_epoch=0,
        metadata="bookmark",
        committed_ms=0x01A1FB9741DD,
        expires_ms=NO_EXPIRY,
        topic_id=bytes.fromhex("f58ccb54da2b416ba361a851ab72b750"),
    )
    assert record.encode() == (key, KAFKA_OFFSET)


def test_group_is_read_and_written_as_kafka_does():
    key = GROUP_KEY
    assert prefix_of(key) == codec.GROUP_KIND
    record = codec.decode_group_record(key, KAFKA_EMPTY_GROUP)
    assert record.group_id == "g1"
    assert record.value == GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=0x01A1FB97119D
    )
    assert record.encode() == (key, KAFKA_EMPTY_GROUP)


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
    key, encoded = codec.GroupRecord("g", value).encode()
    assert encoded.hex() == (
        "0003" "0008636f6e73756d6572" "00000003" "000572616e6765" "00016d" "0000000000000005" "00000001"
        "00016d" "000169" "000163" "000a2f3132372e302e302e31" "00000007" "00000006" "0000000173" "0000000161"
    )  # fmt: skip
    assert codec.decode_group_record(key, encoded).value == value


def test_offset_with_an_expiry_of_its_own_is_written_in_version_1():
    committed = CommittedOffset(offset=7, metadata="m", committed_ms=5, expires_ms=9)
    key, value = codec.offset_record(OffsetKey("g", "t", 0), committed).encode()
    assert value.hex() == "0001000000000000000700016d00000000000000050000000000000009"
    assert codec.decode_offset_record(key, value).committed == committed


@pytest.mark.parametrize(
    ("value", "epoch"),
    [
        pytest.param("0000000000000000000700016d0000000000000005", -1, id="v0"),
        pytest.param("0002000000000000000700016d0000000000000005", -1, id="v2"),
        pytest.param("000300000000000000070000000400016d0000000000000005", 4, id="v3"),
    ],
)
def test_offsets_of_older_kafkas_are_read(value, epoch):
    record = codec.decode_offset_record(OFFSET_KEY, bytes.fromhex(value))
    assert record.committed == CommittedOffset(7, epoch, "m", 5)


def test_nothing_stands_for_deletion():
    for record in (codec.offset_record(OffsetKey("g", "t", 0), None), codec.GroupRecord("g", None)):
        assert record.encode()[1] is None


@pytest.mark.parametrize(
    ("read", "key", "value"),
    [
        (codec.decode_offset_record, OFFSET_KEY, b""),
        (codec.decode_offset_record, OFFSET_KEY, b"\x00\x63" + bytes(30)),
        (codec.decode_offset_record, OFFSET_KEY, b"\x00\x03" + bytes(3)),
        (codec.decode_offset_record, b"\x00\x01\x00\x01g", None),
        (codec.decode_group_record, GROUP_KEY, b"\x00\x03" + bytes(3)),
        (codec.decode_group_record, b"\x00\x02\x00\x09abc", None),
    ],
)
def test_what_cannot_be_read_is_a_protocol_error(read, key, value):
    with pytest.raises(ProtocolError):
        read(key, value)


def test_a_key_without_a_kind_is_a_protocol_error():
    with pytest.raises(ProtocolError):
        prefix_of(b"\x00")


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x01\x00\x00\x00\x05\x00"])
def test_a_consumer_groups_record_that_is_cut_or_of_another_version_is_not_read(value):
    group = stored.ConsumerGroupMetadataKey(group_id="g")
    record = ModernGroupRecord(group, stored.ConsumerGroupMetadataValue(epoch=5))
    key, encoded = record.encode()
    kind = prefix_of(key)
    assert decode_record(kind, key, encoded) == record
    with pytest.raises(ProtocolError):
        decode_record(kind, key, value)
