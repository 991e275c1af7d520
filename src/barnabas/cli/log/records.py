"""Prints the records of a segment. It decodes the records that coordinators write."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from barnabas.base.errors import ProtocolError
from barnabas.base.types import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    JsonObject,
    topic_id_to_str,
)
from barnabas.kafka.protocol.codec import decode
from barnabas.kafka.protocol.records.consumer_group import KINDS as CONSUMER_GROUP_KINDS
from barnabas.kafka.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.kafka.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.kafka.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.kafka.protocol.records.share_group import KINDS as SHARE_GROUP_KINDS
from barnabas.kafka.protocol.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from barnabas.kafka.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from barnabas.kafka.protocol.schema import Message, Struct
from barnabas.kafka.records import BatchHeader, Record
from barnabas.kafka.records.batch import NO_SEQUENCE, SEQUENCE_LIMIT

#: Turns a record into the key and the value to print.
Decoder = Callable[[Record], tuple[Any, Any]]

_VERSION = struct.Struct(">h")
_CONTROL_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")
_CONTROL_TYPES = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER"}

#: The type of a record, by the version at the start of its key.
_Kinds: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]
_OFFSETS: _Kinds = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    **CONSUMER_GROUP_KINDS,
    **SHARE_GROUP_KINDS,
}
_TRANSACTIONS: _Kinds = {0: (TransactionLogKey, TransactionLogValue)}
_SHARE_STATES: _Kinds = {0: (ShareSnapshotKey, ShareSnapshotValue), 1: (ShareUpdateKey, ShareUpdateValue)}


def decoder_for(directory: str) -> Decoder:
    """Return the function that decodes key and value of a record, by the name of its partition's directory.

    For partitions of __consumer_offsets, __transaction_state and __share_group_state it decodes what the
    coordinator wrote. For others it returns text.
    """
    if directory.startswith(GROUP_METADATA_TOPIC + "-"):
        return partial(_coordinator_record, _OFFSETS)
    if directory.startswith(TRANSACTION_STATE_TOPIC + "-"):
        return partial(_coordinator_record, _TRANSACTIONS)
    if directory.startswith(SHARE_GROUP_STATE_TOPIC + "-"):
        return partial(_coordinator_record, _SHARE_STATES)
    return _plain_record


def record_fields(record: Record, header: BatchHeader, decoder: Decoder) -> JsonObject:
    """Return a record of the batch with `header` as a JSON object. `decoder` decodes its key and value."""
    key, value = _decode(record, header, decoder)
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "sequence": _sequence(record, header),
        "headers": [[name, None if data is None else _text(data)] for name, data in record.headers],
        "key": key,
        "value": value,
    }


def record_text(record: Record, header: BatchHeader, decoder: Decoder) -> str:
    """Return a record of the batch with `header` as a line of Kafka's DumpLogSegments."""
    key, value = _decode(record, header, decoder)
    kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    names = ",".join(name for name, _ in record.headers)
    words = [
        f"| offset: {record.offset} {kind}: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {_sequence(record, header)} headerKeys: [{names}]"
    ]
    if header.is_control:
        words.append(f"endTxnMarker: {key}")
        if record.value is not None and len(record.value) == _END_TRANSACTION.size:
            words.append(f"coordinatorEpoch: {_END_TRANSACTION.unpack(record.value)[1]}")
    else:
        if key is not None:
            words.append(f"key: {_shown(key)}")
        if value is not None:
            words.append(f"payload: {_shown(value)}")
        elif isinstance(key, dict):  # a coordinator's key, decoded
            words.append("payload: <DELETE>")
    return " ".join(words)


def _decode(record: Record, header: BatchHeader, decoder: Decoder) -> tuple[Any, Any]:
    if not header.is_control:
        return decoder(record)
    try:
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
    except struct.error:
        return _text(record.key), _text(record.value)
    return _CONTROL_TYPES.get(kind, f"UNKNOWN({kind})"), _text(record.value)


def _plain_record(record: Record) -> tuple[Any, Any]:
    return _text(record.key), _text(record.value)


def _coordinator_record(kinds: _Kinds, record: Record) -> tuple[Any, Any]:
    key = record.key or b""
    try:
        (kind,) = _VERSION.unpack_from(key)
        key_class, value_class = kinds[kind]
        shown_key = {"type": str(kind), "data": _fields(decode(key_class, 0, key, _VERSION.size), 0)}
        if record.value is None:
            return shown_key, None
        (version,) = _VERSION.unpack_from(record.value)
        message = decode(value_class, version, record.value, _VERSION.size)
    except (struct.error, KeyError, ProtocolError):
        return _plain_record(record)  # of a kind or version that is not known here
    return shown_key, {"version": str(version), "data": _fields(message, version)}


def _fields(struct_: Struct, version: int) -> JsonObject:
    """Return the fields that the version has, under their names in Kafka's message files (camel case)."""
    found = {}
    for field in struct_.__fields__:
        value = getattr(struct_, field.name)
        # A tagged field at its default is not on disk.
        if field.in_version(version) and not (field.tag is not None and value == field.default):
            found[_camel(field.name)] = _plain(field.name, value, version)
    return found


def _plain(name: str, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_plain(name, item, version) for item in value]
    if isinstance(value, Struct):
        return _fields(value, version)
    if isinstance(value, bytes | memoryview):
        data = bytes(value)
        if name == "topic_id":
            return topic_id_to_str(data)
        if name in ("subscription", "assignment"):
            return _consumer_protocol(name, data)
        return base64.b64encode(data).decode()
    return value


def _consumer_protocol(name: str, data: bytes) -> Any:
    """Decode the subscription or the assignment of a group's member to a JSON object.

    `name` is "subscription" or "assignment". If `data` does not have the format of consumers, as with Kafka
    Connect, return it in base64.
    """
    cls = ConsumerProtocolSubscription if name == "subscription" else ConsumerProtocolAssignment
    try:
        (version,) = _VERSION.unpack_from(data)
        version = min(version, cls.versions[1])
        return _fields(decode(cls, version, data, _VERSION.size), version)
    except (struct.error, ProtocolError):
        return base64.b64encode(data).decode()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + record.offset - header.base_offset) % SEQUENCE_LIMIT


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
