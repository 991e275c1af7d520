"""The records of `__consumer_offsets`, in Apache Kafka's format.

A key has its kind (int16) and the key's fields. A value has its version (int16) and the value's fields. A
null value deletes the key. Kinds 0 and 1 are committed offsets (0 is older and has the same layout), and kind
2 is a classic group. Kinds 3 to 8 and 16 are a consumer group, and kinds 10 to 15 a share group
(`groups/modern/records.py`).

Operations return these records as typed values. The runtime encodes them for the log, and loading decodes
them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from barnabas.base.types import NO_LEADER_EPOCH, ZERO_TOPIC_ID, LeaderEpoch, Offset, TopicId
from barnabas.broker.coordinator.record_prefix import PREFIX, decode_key, decode_value
from barnabas.kafka.protocol.codec import encode
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.kafka.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue

LEGACY_OFFSET_KIND = 0
OFFSET_KIND = 1
GROUP_KIND = 2

#: the versions that Kafka 4.2 writes. 3 is the last group version that older Kafkas read; 4 has a topic id
_GROUP_VERSION = 3
_OFFSET_VERSION = 4
#: the only version of an offset with its own expiry time, which clients below OffsetCommit v5 can request
_EXPIRING_OFFSET_VERSION = 1
_KEY_LAYOUT = 0
_OFFSET = PREFIX.pack(OFFSET_KIND)
NO_EXPIRY = -1
#: the keys of groups with longer ids are not kept, so that the cache stays small
_MAX_KEPT_LENGTH = 256


class OffsetKey(NamedTuple):
    """The key of a committed offset: a group and a partition."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """An offset that a group committed for a partition."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    #: milliseconds since the epoch
    committed_ms: int = 0
    #: expiry time in milliseconds since the epoch, instead of the broker's retention; usually NO_EXPIRY
    expires_ms: int = NO_EXPIRY
    topic_id: TopicId = ZERO_TOPIC_ID


def _encoded_key(key: OffsetKey) -> bytes:
    group_id, topic, partition = key
    return encode(OffsetCommitKey(group=group_id, topic=topic, partition=partition), _KEY_LAYOUT, _OFFSET)


#: a consumer commits the offsets of the same few partitions again and again
_kept_key = lru_cache(maxsize=10_000)(_encoded_key)


def committed_ms(committed: CommittedOffset) -> int:
    """Return the time of the commit, in milliseconds since the epoch."""
    return committed.committed_ms


class OffsetRecord(NamedTuple):
    """The record of a committed offset. `committed` is None if the record deletes the offset.

    Use `offset_record` or `decode_offset_record` to make one.
    """

    key: OffsetKey
    committed: CommittedOffset | None

    def encode(self) -> tuple[bytes, bytes | None]:
        offset_key, committed = self
        is_short = len(offset_key.group_id) <= _MAX_KEPT_LENGTH
        key = _kept_key(offset_key) if is_short else _encoded_key(offset_key)
        if committed is None:
            return key, None
        version = _OFFSET_VERSION if committed.expires_ms == NO_EXPIRY else _EXPIRING_OFFSET_VERSION
        value = OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.committed_ms,
            expire_timestamp=committed.expires_ms,
            topic_id=committed.topic_id,
        )
        return key, encode(value, version, PREFIX.pack(version))


class GroupRecord(NamedTuple):
    """The record of a classic group's generation; a value of None deletes the group."""

    group_id: str
    value: GroupMetadataValue | None

    def encode(self) -> tuple[bytes, bytes | None]:
        key = encode(GroupMetadataKey(group=self.group_id), _KEY_LAYOUT, PREFIX.pack(GROUP_KIND))
        if self.value is None:
            return key, None
        return key, encode(self.value, _GROUP_VERSION, PREFIX.pack(_GROUP_VERSION))


def offset_record(key: OffsetKey, committed: CommittedOffset | None) -> OffsetRecord:
    """Return the record that stores a committed offset, or deletes it if `committed` is None.

    The record of an offset with an expiry has no leader epoch and no topic id.
    """
    if committed is not None and committed.expires_ms != NO_EXPIRY:
        # The version that has an expiry has neither of these.
        committed = committed._replace(leader_epoch=NO_LEADER_EPOCH, topic_id=ZERO_TOPIC_ID)
    return OffsetRecord(key, committed)


# --- loading ---


def decode_offset_record(key: bytes, value: bytes | None) -> OffsetRecord:
    """Decode a record whose key has the kind OFFSET_KIND or LEGACY_OFFSET_KIND.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown version.
    """
    of = decode_key(OffsetCommitKey, key)
    offset_key = OffsetKey(of.group, of.topic, of.partition)
    if value is None:
        return OffsetRecord(offset_key, None)
    stored = decode_value(OffsetCommitValue, value)
    committed = CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )
    return OffsetRecord(offset_key, committed)


def decode_group_record(key: bytes, value: bytes | None) -> GroupRecord:
    """Decode a record whose key has the kind GROUP_KIND.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown version.
    """
    group_id = decode_key(GroupMetadataKey, key).group
    if value is None:
        return GroupRecord(group_id, None)
    return GroupRecord(group_id, decode_value(GroupMetadataValue, value))
