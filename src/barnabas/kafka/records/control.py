"""Control batches: the markers that end a transaction in a partition (KIP-98).

A marker is a transactional control batch of one record:

    key: version (int16, 0), type (int16: 0 abort, 1 commit)
    value: version (int16, 0), epoch of the transaction coordinator (int32)
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer
from barnabas.kafka.records.batch import BatchHeader
from barnabas.kafka.records.builder import batch_keys_and_values, encode_batch
from barnabas.kafka.records.record import Record

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT = 0
_COMMIT = 1


class EndTransaction(NamedTuple):
    """The content of a transaction marker: commit or abort, and the epoch of the coordinator."""

    commit: bool
    coordinator_epoch: int


def encode_end_transaction(
    marker: EndTransaction, *, producer_id: int, producer_epoch: int, timestamp: int
) -> bytes:
    """Return the control batch with `marker`, which ends the transaction of the producer `producer_id`.

    `timestamp` is in milliseconds since 1970.
    """
    key = _KEY.pack(0, _COMMIT if marker.commit else _ABORT)
    record = Record(key, _VALUE.pack(0, marker.coordinator_epoch), timestamp)
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def decode_end_transaction(header: BatchHeader, batch: Buffer) -> EndTransaction | None:
    """Return the transaction marker in a control batch.

    Return None if compaction has removed the marker, or if the control record is neither commit nor abort.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the batch is damaged or its record is too short;
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    if not header.record_count:
        return None
    found = batch_keys_and_values(header, bytes(batch), 0)
    key, value = found[0] if found else (None, None)
    if key is None or value is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a control batch has no control record")
    try:
        _, kind = _KEY.unpack_from(key)
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(value)
    except struct.error as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a control record is too short") from error
    return EndTransaction(kind == _COMMIT, coordinator_epoch)
