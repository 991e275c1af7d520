"""Records of `__share_group_state`: the states of a partition's records in a share group (KIP-932).

A snapshot is the whole state, and a null value deletes the state. An update changes the last snapshot. Key
and value each begin with an int16, which the classes of this module do not declare. The key's int16 is the
kind of record (snapshot or update). The value's int16 is its version.
"""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    tagged,
)


class ShareSnapshotKey(Message, versions=(0, 0)):
    group_id: String = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0


class ShareUpdateKey(Message, versions=(0, 0)):
    group_id: String = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    # 0 available, 2 acknowledged, 4 archived.
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareSnapshotValue(Message, versions=(0, 0), flexible=0):
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    # The number of finished records from the start offset on (KIP-1226).
    delivery_complete_count: Int32 = tagged(0, since=0, default=-1)
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    # The epoch of the group coordinator that has initialized the state. Kafka has no such field.
    coordinator_epoch: Int32 = tagged(10_000, since=0, default=-1)
    # The offset of the snapshot that initialized the state. Kafka has no such field.
    initialized_at: Int64 = tagged(10_001, since=0, default=-1)
    # The end of this coordinator's log when it sent the initialization. Kafka has no such field.
    coordinator_log_end: Int64 = tagged(10_002, since=0, default=-1)
    state_batches: list[StateBatch] = []


class ShareUpdateValue(Message, versions=(0, 0), flexible=0):
    # The epoch of the snapshot that this update changes.
    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    # -1: the stored start offset stays.
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = tagged(0, since=0, default=-1)
    state_batches: list[StateBatch] = []
