"""The records of `__consumer_offsets`, in Apache Kafka's format.

A key is its kind (int16) and the key's fields; a value is its version (int16) and the value's fields; a null
value deletes the key. Kinds 0 and 1 hold a committed offset (0 is older, the layout is the same), 2 a classic
group; 3 to 8 and 16 a consumer group (see `barnabas.broker.coordinator.groups.consumer.records`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.base.errors import ProtocolError
from barnabas.base.types import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.kafka.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.kafka.records import Record

LEGACY_OFFSET_KIND = 0
OFFSET_KIND = 1
GROUP_KIND = 2

#: as Kafka 4.2 writes them: 3 is the last for groups that older ones read, 4 holds the topic id of an offset
_GROUP_VERSION = 3
_OFFSET_VERSION = 4
#: the one version of an offset with an expiry of its own, which clients below OffsetCommit v5 may ask for
_EXPIRING_OFFSET_VERSION = 1
_LATEST_VERSION = 4
_KEY_LAYOUT = 0
_PREFIX = struct.Struct(">h")
NO_EXPIRY = -1


class OffsetKey(NamedTuple):
    """Whose offset, of which partition."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """What a group committed for a partition."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    #: milliseconds since the epoch
    committed_ms: int = 0
    #: when it expires whatever the broker's retention; NO_EXPIRY for most
    expires_ms: int = NO_EXPIRY
    topic_id: TopicId = ZERO_TOPIC_ID


def committed_ms(committed: CommittedOffset) -> int:
    """When it was committed, in milliseconds."""
    return committed.committed_ms


def kind_of(key: bytes) -> int:
    """What a key is about.

    Raises:
        ProtocolError: the key is too short to say.
    """
    try:
        (kind,) = _PREFIX.unpack_from(key)
    except struct.error:
        raise ProtocolError(f"a key of {len(key)} bytes has no kind") from None
    return int(kind)


def group_record(group_id: str, value: GroupMetadataValue | None) -> Record:
    """The record that stores a group, or deletes it."""
    key = _PREFIX.pack(GROUP_KIND) + encode(GroupMetadataKey(group=group_id), _KEY_LAYOUT)
    if value is None:
        return Record(key, None)
    return Record(key, _PREFIX.pack(_GROUP_VERSION) + encode(value, _GROUP_VERSION))


def offset_record(key: OffsetKey, committed: CommittedOffset | None) -> Record:
    """The record that stores a committed offset, or deletes it."""
    message = OffsetCommitKey(group=key.group_id, topic=key.topic, partition=key.partition)
    encoded_key = _PREFIX.pack(OFFSET_KIND) + encode(message, _KEY_LAYOUT)
    if committed is None:
        return Record(encoded_key, None)
    version = _OFFSET_VERSION if committed.expires_ms == NO_EXPIRY else _EXPIRING_OFFSET_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=committed.expires_ms,
        topic_id=committed.topic_id,
    )
    return Record(encoded_key, _PREFIX.pack(version) + encode(value, version))


def decode_group_key(key: bytes) -> str:
    """The group id in a key of GROUP_KIND.

    Raises:
        ProtocolError: the bytes are no such key.
    """
    return decode(GroupMetadataKey, _KEY_LAYOUT, key, _PREFIX.size).group


def decode_offset_key(key: bytes) -> OffsetKey:
    """The key of an offset.

    Raises:
        ProtocolError: the bytes are no such key.
    """
    message = decode(OffsetCommitKey, _KEY_LAYOUT, key, _PREFIX.size)
    return OffsetKey(message.group, message.topic, message.partition)


def decode_group(value: bytes) -> GroupMetadataValue:
    """A stored group.

    Raises:
        ProtocolError: the bytes are no such value, or of a version from the future.
    """
    return decode(GroupMetadataValue, _version(value), value, _PREFIX.size)


def decode_offset(value: bytes) -> CommittedOffset:
    """A stored offset.

    Raises:
        ProtocolError: the bytes are no such value, or of a version from the future.
    """
    message = decode(OffsetCommitValue, _version(value), value, _PREFIX.size)
    return CommittedOffset(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        message.expire_timestamp,
        message.topic_id,
    )


def _version(value: bytes) -> int:
    try:
        (version,) = _PREFIX.unpack_from(value)
    except struct.error:
        raise ProtocolError(f"a value of {len(value)} bytes has no version") from None
    if not 0 <= version <= _LATEST_VERSION:
        raise ProtocolError(f"a value has version {version}, known are 0 to {_LATEST_VERSION}")
    return int(version)
