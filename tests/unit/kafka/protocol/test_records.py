"""The records of coordinators, byte by byte, written by hand, because no client library has them.

In `make compat`, Apache Kafka's own codecs also decode them.
"""

import pytest

from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.records import consumer_group
from barnabas.kafka.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.kafka.protocol.records.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from barnabas.kafka.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.kafka.protocol.records.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.kafka.protocol.schema import Message

GROUP = GroupMetadataValue(
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
            client_host="/h",
            rebalance_timeout=7,
            session_timeout=8,
            subscription=b"s",
            assignment=b"a",
        )
    ],
)
GROUP_HEAD = "0008 636f6e73756d6572 00000003 0005 72616e6765 0001 6d"
MEMBER_TAIL = "00000008 00000001 73 00000001 61"
COMMIT = OffsetCommitValue(
    offset=1,
    leader_epoch=2,
    metadata="x",
    commit_timestamp=3,
    expire_timestamp=4,
    topic_id=bytes(range(16)),
)
TRANSACTION = TransactionLogValue(
    producer_id=7,
    previous_producer_id=8,
    next_producer_id=9,
    producer_epoch=1,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=4,
    client_transaction_version=2,
)
TRANSACTION_HEAD = "0000000000000007 0001 0000ea60 01"
TRANSACTION_TIMES = "0000000000000005 0000000000000004"
MEMBER_VALUES = {
    "client_id": "c",
    "client_host": "/h",
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": "",
    "rebalance_timeout_ms": 60_000,
    "server_assignor": "range",
}
MEMBER = consumer_group.ConsumerGroupMemberMetadataValue(**MEMBER_VALUES, classic_member_metadata=None)
MEMBER_FIELDS = "00 00 02 63 03 2f68 02 02 74 01 0000ea60 06 72616e6765"
PARTITIONS = [TopicPartition(topic="t", partitions=[0, 2])]


@pytest.mark.parametrize(
    ("record", "version", "expected"),
    [
        (OffsetCommitKey(group="g", topic="t", partition=4), 0, "0001 67 0001 74 00000004"),
        (COMMIT, 0, "0000000000000001 0001 78 0000000000000003"),
        (COMMIT, 1, "0000000000000001 0001 78 0000000000000003 0000000000000004"),
        (COMMIT, 2, "0000000000000001 0001 78 0000000000000003"),
        (COMMIT, 3, "0000000000000001 00000002 0001 78 0000000000000003"),
        (
            COMMIT,
            4,
            "0000000000000001 00000002 02 78 0000000000000003 01 00 10 000102030405060708090a0b0c0d0e0f",
        ),
        (GroupMetadataKey(group="g"), 0, "0001 67"),
        (GROUP, 0, f"{GROUP_HEAD} 00000001 0001 6d 0001 63 0002 2f68 {MEMBER_TAIL}"),
        (GROUP, 1, f"{GROUP_HEAD} 00000001 0001 6d 0001 63 0002 2f68 00000007 {MEMBER_TAIL}"),
        (
            GROUP,
            2,
            f"{GROUP_HEAD} 0000000000000005 00000001 0001 6d 0001 63 0002 2f68 00000007 {MEMBER_TAIL}",
        ),
        (
            GROUP,
            3,
            f"{GROUP_HEAD} 000000000000000500000001 0001 6d 0001 69 0001 63 0002 2f68 00000007 {MEMBER_TAIL}",
        ),
        (
            GROUP,
            4,
            "09 636f6e73756d6572 00000003 06 72616e6765 02 6d 0000000000000005 02"
            "02 6d 02 69 02 63 03 2f68 00000007 00000008 02 73 02 61 00 00",
        ),
        (
            GroupMetadataValue(protocol_type="", protocol=None, leader=None),
            3,
            "0000 00000000 ffff ffff ffffffffffffffff 00000000",
        ),
        (
            # A member of the consumer protocol: null is written, since left out stands for a classic member.
            MEMBER,
            0,
            f"{MEMBER_FIELDS} 01 00 01 00",
        ),
        (
            consumer_group.ConsumerGroupMemberMetadataValue(
                **MEMBER_VALUES,
                classic_member_metadata=consumer_group.ClassicMemberMetadata(
                    session_timeout_ms=7,
                    supported_protocols=[consumer_group.ClassicProtocol(name="p", metadata=b"d")],
                ),
            ),
            0,
            f"{MEMBER_FIELDS} 01 00 0c 01 00000007 02 02 70 02 64 00 00",
        ),
        (
            consumer_group.ConsumerGroupMemberMetadataValue(**MEMBER_VALUES),
            0,
            f"{MEMBER_FIELDS} 00",
        ),
        (consumer_group.ConsumerGroupMetadataValue(epoch=3), 0, "00000003 00"),
        (
            consumer_group.ConsumerGroupMetadataValue(epoch=3, metadata_hash=-2),
            0,
            "00000003 01 00 08 fffffffffffffffe",
        ),
        (
            consumer_group.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=2,
                previous_member_epoch=1,
                state=1,
                assigned_partitions=[
                    consumer_group.TopicPartitions(topic_id=bytes(range(16)), partitions=[0, 2])
                ],
            ),
            0,
            "00000002 00000001 01 02 000102030405060708090a0b0c0d0e0f 03 00000000 00000002 00 01 00",
        ),
        (
            consumer_group.ConsumerGroupRegularExpressionValue(topics=["t"], timestamp=5),
            0,
            "02 02 74 0000000000000000 0000000000000005 00",
        ),
        (TransactionLogKey(transactional_id="x"), 0, "0001 78"),
        (
            TRANSACTION,
            0,
            f"{TRANSACTION_HEAD} 00000001 0001 74 00000002 00000000 00000002 {TRANSACTION_TIMES}",
        ),
        (
            TRANSACTION,
            1,
            f"{TRANSACTION_HEAD} 02 02 74 03 00000000 00000002 00 {TRANSACTION_TIMES} 03"
            "00 08 0000000000000008 01 08 0000000000000009 02 02 0002",
        ),
        (
            TransactionLogValue(producer_id=1, transaction_partitions=None),
            1,
            "0000000000000001 0000 00000000 00 00 0000000000000000 0000000000000000 00",
        ),
        (ConsumerProtocolSubscription(topics=["t"]), 0, "00000001 0001 74 ffffffff"),
        (
            ConsumerProtocolSubscription(
                topics=["t"], user_data=b"u", owned_partitions=PARTITIONS, generation_id=3, rack_id="r"
            ),
            3,
            "00000001 0001 74 00000001 75 00000001 0001 74 00000002 00000000 00000002 00000003 0001 72",
        ),
        (
            ConsumerProtocolAssignment(assigned_partitions=PARTITIONS),
            3,
            "00000001 0001 74 00000002 00000000 00000002 ffffffff",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else None,
)
def test_a_record_is_stored_as_apache_kafka_stores_it(record: Message, version: int, expected: str) -> None:
    stored = bytes.fromhex(expected)
    assert encode(record, version).hex(" ") == stored.hex(" ")
    assert encode(decode(type(record), version, stored), version) == stored


def test_a_later_version_of_the_consumer_protocol_is_read_as_the_highest_known() -> None:
    known = ConsumerProtocolSubscription(topics=["t"], rack_id="r")
    assert decode(ConsumerProtocolSubscription, 3, encode(known, 3) + b"of version 4") == known
