"""The records of `__share_group_state` as Apache Kafka 4.2 writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ProtocolError
from barnabas.broker.coordinator import CoordinatorPosition, SharePartitionKey, ShareState, StateBatch
from barnabas.broker.coordinator.share_state.codec import (
    Snapshot,
    SnapshotRecord,
    UpdateRecord,
    decode_record,
    snapshot_key,
)

KEY = SharePartitionKey("g", bytes(range(16)), 7)
KEY_BYTES = b"\x00\x01g" + bytes(range(16)) + b"\x00\x00\x00\x07"
BATCH_BYTES = bytes(7) + b"\x05" + bytes(7) + b"\x09" + b"\x02" + b"\x00\x03" + b"\x00"

int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
keys = st.builds(SharePartitionKey, st.text(max_size=20), st.binary(min_size=16, max_size=16), int32)
batches = st.lists(
    st.builds(StateBatch, int64, int64, st.integers(-128, 127), st.integers(-(2**15), 2**15 - 1)), max_size=4
).map(tuple)
states = st.builds(ShareState, int32, int32, int64, int32, batches, int64)
positions = st.builds(CoordinatorPosition, int32, int64)
snapshots = st.builds(Snapshot, int32, states, int64, int64, positions)
records = st.one_of(
    st.builds(SnapshotRecord, keys, st.none() | snapshots),
    st.builds(UpdateRecord, keys, int32, int32, int64, int32, batches),
)


@given(records)
def test_a_record_contains_what_its_bytes_contain(record):
    assert decode_record(*record.encode()) == record


def test_a_snapshot_has_kafkas_bytes():
    state = ShareState(3, 4, 5, 6, (StateBatch(5, 9, 2, 3),))
    key, value = SnapshotRecord(KEY, Snapshot(2, state, 1000, 2000)).encode()
    assert key == b"\x00\x00" + KEY_BYTES
    assert value == (
        b"\x00\x00"
        + b"".join(number.to_bytes(4, "big") for number in (2, 3, 4))
        + b"".join(number.to_bytes(8, "big") for number in (5, 1000, 2000))
        + b"\x02"
        + BATCH_BYTES
        + b"\x01\x00\x04\x00\x00\x00\x06"
    )


def test_an_update_has_kafkas_bytes_and_leaves_out_an_unknown_count():
    key, value = UpdateRecord(KEY, 2, 4, -1, -1, (StateBatch(5, 9, 2, 3),)).encode()
    assert key == b"\x00\x01" + KEY_BYTES
    assert value == b"\x00\x00" + b"\0\0\0\2" + b"\0\0\0\4" + b"\xff" * 8 + b"\x02" + BATCH_BYTES + b"\x00"


def test_the_key_of_an_update_names_its_snapshot():
    update, _ = UpdateRecord(KEY, 0, 0, 0, 0, ()).encode()
    snapshot, _ = SnapshotRecord(KEY, None).encode()
    assert snapshot_key(update) == snapshot
    assert snapshot_key(snapshot) is None


def test_what_is_unknown_is_skipped_and_what_is_damaged_is_not():
    assert decode_record(b"\x00\x07" + KEY_BYTES, b"x") is None
    assert decode_record(b"\x00\x01" + KEY_BYTES, None) is None
    for key, value in [(b"\x00", b""), (b"\x00\x00" + KEY_BYTES, b"\x00\x09"), (b"\x00\x00g", None)]:
        with pytest.raises(ProtocolError):
            decode_record(key, value)
