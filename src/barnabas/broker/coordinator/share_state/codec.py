"""The records of `__share_group_state`, in Apache Kafka's format.

A key has a kind (int16: 0 for a snapshot, 1 for an update), the group, the topic id and the partition. A
value has a version (int16, always 0) and its fields. A snapshot's key with a null value deletes the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from struct import Struct as Layout
from typing import NamedTuple, cast

from barnabas.base.types import LeaderEpoch, Offset
from barnabas.broker.coordinator.record_prefix import PREFIX, decode_key, decode_value, prefix_of
from barnabas.broker.coordinator.share_state.persister import (
    UNKNOWN_POSITION,
    CoordinatorPosition,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from barnabas.kafka.protocol.codec import encode
from barnabas.kafka.protocol.encoder import EncodedItems
from barnabas.kafka.protocol.records import share_group_state as stored

SNAPSHOT_KIND, UPDATE_KIND = 0, 1
_VERSION = 0
_SNAPSHOT_PREFIX, _UPDATE_PREFIX = PREFIX.pack(SNAPSHOT_KIND), PREFIX.pack(UPDATE_KIND)
#: a `StateBatch` in the encoding of its record, which ends with the number of its tagged fields, 0
_BATCH = Layout(">qqbhx")


class Snapshot(NamedTuple):
    """The whole state of a share partition at one time."""

    #: grows by 1 with each snapshot of the share partition
    epoch: int
    state: ShareState
    created_ms: int
    #: later than `created_ms` if this snapshot repeats an old one
    written_ms: int
    #: the position of the group coordinator that has initialized the state
    position: CoordinatorPosition = UNKNOWN_POSITION


class SnapshotRecord(NamedTuple):
    """The record of a share partition's whole state. A snapshot of None deletes the state."""

    key: SharePartitionKey
    snapshot: Snapshot | None

    def encode(self) -> tuple[bytes, bytes | None]:
        key = _encode_key(stored.ShareSnapshotKey, self.key, _SNAPSHOT_PREFIX)
        if self.snapshot is None:
            return key, None
        epoch, state, created_ms, written_ms, position = self.snapshot
        value = stored.ShareSnapshotValue(
            snapshot_epoch=epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=created_ms,
            write_timestamp=written_ms,
            coordinator_epoch=position.epoch,
            initialized_at=state.initialized_at,
            coordinator_log_end=position.log_end,
            state_batches=_encode_batches(state.batches),
        )
        return key, encode(value, _VERSION, PREFIX.pack(_VERSION))


class UpdateRecord(NamedTuple):
    """The record of a change to a share partition's state, relative to the records before it."""

    key: SharePartitionKey
    #: the epoch of the last snapshot
    snapshot_epoch: int
    leader_epoch: LeaderEpoch
    #: -1 if the start offset does not change
    start_offset: Offset
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]

    def encode(self) -> tuple[bytes, bytes]:
        value = stored.ShareUpdateValue(
            snapshot_epoch=self.snapshot_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            state_batches=_encode_batches(self.batches),
        )
        key = _encode_key(stored.ShareUpdateKey, self.key, _UPDATE_PREFIX)
        return key, encode(value, _VERSION, PREFIX.pack(_VERSION))


def decode_record(key: bytes, value: bytes | None) -> SnapshotRecord | UpdateRecord | None:
    """Decode a record.

    A snapshot with a null value gives a `SnapshotRecord` whose `snapshot` is None: it deletes the state.
    Return None if the record's kind is unknown, or if the record is an update with a null value.

    Raises:
        ProtocolError: the record cannot be decoded, or its value has an unknown later version.
    """
    kind = prefix_of(key)
    if kind == SNAPSHOT_KIND:
        return SnapshotRecord(
            _decode_key(stored.ShareSnapshotKey, key), None if value is None else _snapshot(value)
        )
    if kind == UPDATE_KIND and value is not None:
        update = decode_value(stored.ShareUpdateValue, value)
        return UpdateRecord(
            _decode_key(stored.ShareUpdateKey, key),
            update.snapshot_epoch,
            update.leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            _decode_batches(update.state_batches),
        )
    return None


def snapshot_key(key: bytes) -> bytes | None:
    """Return the key of the snapshot that an update adds to, given the update's key.

    Return None for any other key.
    """
    return _SNAPSHOT_PREFIX + key[PREFIX.size :] if key.startswith(_UPDATE_PREFIX) else None


def _snapshot(value: bytes) -> Snapshot:
    snapshot = decode_value(stored.ShareSnapshotValue, value)
    return Snapshot(
        snapshot.snapshot_epoch,
        ShareState(
            snapshot.state_epoch,
            snapshot.leader_epoch,
            snapshot.start_offset,
            snapshot.delivery_complete_count,
            _decode_batches(snapshot.state_batches),
            snapshot.initialized_at,
        ),
        snapshot.create_timestamp,
        snapshot.write_timestamp,
        CoordinatorPosition(snapshot.coordinator_epoch, snapshot.coordinator_log_end),
    )


_KeyClass = type[stored.ShareSnapshotKey] | type[stored.ShareUpdateKey]


def _encode_key(cls: _KeyClass, key: SharePartitionKey, prefix: bytes) -> bytes:
    return encode(cls(group_id=key.group, topic_id=key.topic_id, partition=key.partition), 0, prefix)


def _decode_key(cls: _KeyClass, data: bytes) -> SharePartitionKey:
    key = decode_key(cls, data)
    return SharePartitionKey(key.group_id, bytes(key.topic_id), key.partition)


def _encode_batches(batches: Sequence[StateBatch]) -> list[stored.StateBatch]:
    """Encode all batches in one step, because an update can have one batch for each record."""
    return cast(list[stored.StateBatch], EncodedItems(len(batches), b"".join(starmap(_BATCH.pack, batches))))


def _decode_batches(batches: Sequence[stored.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches
    )
