"""The most expensive requests of up to a megabyte, from the messages' declarations.

This module encodes them itself, field by field, without the broker's codec. It encodes an element once and
repeats its bytes. It can add unknown tagged fields.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cramjam

from barnabas.broker.server.requests.pieces import MAX_ITEM_ELEMENTS
from barnabas.kafka.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.kafka.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.schema import Field, Primitive, Request, Struct
from barnabas.kafka.protocol.wire import MAX_ELEMENTS
from barnabas.kafka.records import lz4_frame, xerial
from barnabas.kafka.records.batch import BatchHeader
from barnabas.kafka.records.builder import assemble_batch

SIZE = 1_000_000
LONGEST_NAME = 32_000
MAX_TAGS = 9_000
#: tagged fields of each element
TAGS = 3

#: values that take a request past the first checks of its handler
LIKELY: dict[str, Any] = {
    "acks": -1,
    "allow_auto_topic_creation": False,
    "client_software_name": "x",
    "client_software_version": "1",
    "committed_offset": 1,
    "config_operation": 0,
    "coordinator_epoch": -1,
    "current_leader_epoch": -1,
    "duration_filter": -1,
    "endpoint_type": 1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "group_instance_id": None,
    "heartbeat_timeout_ms": 1000,
    "include_documentation": True,
    "include_synonyms": True,
    "last_fetched_epoch": -1,
    "max_bytes": 2**31 - 1,
    "member_epoch": 0,
    "member_id": "",
    "min_bytes": 0,
    "max_wait_ms": 0,
    "num_partitions": 1,
    "partition_max_bytes": 2**20,
    "producer_epoch": 0,
    "producer_id": 0,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 1000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "response_partition_limit": 2**31 - 1,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "subscribed_topic_regex": None,
    "timeout_ms": 1000,
    "timestamp": 1,
    "transaction_timeout_ms": 60_000,
    "transactional_id": None,
    "transactional_id_pattern": "(a+)+b",
    "validate_only": True,
    "key_type": 0,
    "count": 4,
}

NAMES: dict[str, str] = {
    "group_id": "g",
    "group_ids": "g",
    "groups": "g",
    "groups_names": "g",
    "coordinator_keys": "g",
    "key": "g",
    "transactional_ids": "t",
    "v3_and_below_transactional_id": "t",
    "configs": "retention.ms",
    "server_assignor": "uniform",
    "states_filter": "Stable",
    "state_filters": "Ongoing",
    "types_filter": "consumer",
    "feature": "group.version",
    "protocols": "range",
}


@dataclass(frozen=True)
class Shape:
    """The form of one request."""

    name: str
    #: the path of the array that is as wide as can be; None for all of them, () for none
    widest: tuple[str, ...] | None = ()
    #: whether elements differ from each other
    distinct: bool = False
    #: what is used in place of names that exist
    name_length: int = 0
    #: what every string is, the client id included
    text: str = ""
    tags: bool = False
    #: how many elements it may have, tagged fields included
    max_elements: int = MAX_ELEMENTS - 10
    likely: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """The objects in the broker to which the requests refer."""

    topic: str = "here"
    topic_id: bytes = bytes(16)
    records: bytes = b""


def shapes(request: type[Request], version: int) -> Iterator[Shape]:
    """Yield every shape of one version of a request."""
    paths = list(array_paths(request, version))
    yield Shape("names of 32 KB", None if paths else (), name_length=LONGEST_NAME)
    if version >= request.flexible_from:
        yield Shape("unknown tagged fields", paths[-1] if paths else (), tags=True)
    if paths:
        yield Shape("all arrays, one thing", None)
        yield Shape("all arrays, distinct", None, distinct=True)
        yield Shape("more elements than any may have", paths[-1], max_elements=SIZE)
    for path in paths:
        yield Shape(f"{'.'.join(path)}, one thing", path)
        yield Shape(f"{'.'.join(path)}, distinct", path, distinct=True)
        few = MAX_ITEM_ELEMENTS - 10
        yield Shape(f"{'.'.join(path)}, distinct, undivided", path, distinct=True, max_elements=few)


def array_paths(cls: type[Struct], version: int, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for each in cls.__fields__:
        if each.in_version(version):
            here = (*above, each.name)
            if each.is_array:
                yield here
            if isinstance(each.type, type):
                yield from array_paths(each.type, version, here)


def frame(request: type[Request], version: int, shape: Shape, world: World) -> bytes:
    """Return a request of about `SIZE` bytes, with its size before it."""
    flexible = version >= request.flexible_from
    client = shape.text.encode() or b"c" * (shape.name_length and LONGEST_NAME)
    header = struct.pack(">hhih", request.api_key, version, 7, len(client)) + client
    if flexible:
        header += _tags(MAX_TAGS) if shape.tags else b"\0"
    message = b""
    if shape.widest == ():
        message = _Encoder(version, flexible, shape, world, 1).struct(request, ())
    else:
        low, high = 1, SIZE
        while low < high:  # the most elements that fit
            max_elements = (low + high + 1) // 2
            encoder = _Encoder(version, flexible, shape, world, max_elements)
            fits = encoder.size(request) <= SIZE - len(header) and encoder.elements <= shape.max_elements
            low, high = (max_elements, high) if fits else (low, max_elements - 1)
        message = _Encoder(version, flexible, shape, world, low).struct(request, ())
    return struct.pack(">i", len(header) + len(message)) + header + message


class _Encoder:
    def __init__(self, version: int, flexible: bool, shape: Shape, world: World, count: int) -> None:
        self.version, self.flexible, self.shape, self.world = version, flexible, shape, world
        self.count = count
        self.number = 0

    def size(self, cls: type[Struct]) -> int:
        """Estimate the size of `struct` without encoding it."""
        self.elements = 0
        return self._size(cls, (), 1)

    def _size(self, cls: type[Struct], path: tuple[str, ...], times: int) -> int:
        total = 1
        if self.shape.tags and self.flexible:
            tags = TAGS if path else MAX_TAGS
            total += 4 * tags
            self.elements += tags * times
        for each in cls.__fields__:
            if not each.in_version(self.version) or each.tag is not None:
                continue
            here = (*path, each.name)
            if each.is_array:
                self.number = 10**6
                self.elements += self._elements(here) * times
                one = (
                    self._size(each.type, here, self._elements(here) * times)
                    if isinstance(each.type, type)
                    else len(self.value(each.element(), here))
                )
                total += 5 + self._elements(here) * one
            elif isinstance(each.type, type):
                total += self._size(each.type, here, times)
            else:
                total += len(self.value(each, here))
            if total > 2 * SIZE:
                return total
        return total

    def _elements(self, path: tuple[str, ...]) -> int:
        """Return the number of elements of the array at `path`."""
        widest = self.shape.widest
        if widest is None:
            depth = sum(1 for _ in path)
            return max(1, int(self.count ** (1 / 2))) if depth < 3 else min(self.count, 3)
        return self.count if path == widest else int(widest[: len(path)] == path)

    def struct(self, cls: type[Struct], path: tuple[str, ...]) -> bytes:
        out = bytearray()
        for each in cls.__fields__:
            if not each.in_version(self.version) or each.tag is not None:
                continue
            here = (*path, each.name)
            if each.is_array:
                out += self.array(each, here)
            elif isinstance(each.type, type):
                if each.nullable_in(self.version):
                    out += b"\xff"
                else:
                    out += self.struct(each.type, here)
            else:
                out += self.value(each, here)
        if self.flexible:
            out += _tags(TAGS if path else MAX_TAGS) if self.shape.tags else b"\0"
        return bytes(out)

    def array(self, each: Field, path: tuple[str, ...]) -> bytes:
        count = self._elements(path)
        length = _uvarint(count + 1) if self.flexible else struct.pack(">i", count)
        if not self.shape.distinct:
            return length + self.element(each, path) * count
        return length + b"".join(self.element(each, path) for _ in range(count))

    def element(self, each: Field, path: tuple[str, ...]) -> bytes:
        self.number += 1
        if isinstance(each.type, type):
            return self.struct(each.type, path)
        return self.value(each.element(), path)

    def value(self, each: Field, path: tuple[str, ...]) -> bytes:
        kind = each.type
        assert isinstance(kind, Primitive)
        value = self.shape.likely.get(each.name, LIKELY.get(each.name, ...))
        if kind.code == "16s":
            return self.number.to_bytes(16, "big") if self.shape.distinct else self.world.topic_id
        if kind.code:
            if value is ... or isinstance(value, (str, type(None))):
                value = self.number if self.shape.distinct and kind.code in "iq" and len(path) > 1 else 0
            return struct.pack(f">{kind.code}", value)
        if kind.name == "records":
            return self.sized(self.world.records, records=True)
        nullable = each.nullable_in(self.version)
        if value is None and nullable and not self.shape.name_length and not self.shape.text:
            return b"\0" if self.flexible else (b"\xff" * (2 if kind.name == "string" else 4))
        if kind.name == "bytes":
            return self.sized(b"x" * 10)
        return self.sized(self.text(each.name, value).encode(), string=True)

    def text(self, name: str, likely: Any) -> str:
        if self.shape.text:
            return self.shape.text
        if isinstance(likely, str) and not self.shape.name_length:
            return likely
        text = NAMES.get(name, self.world.topic)
        if self.shape.name_length:
            return "n" * (self.shape.name_length - 8) + f"{self.number:08}"
        return f"d{self.number}" if self.shape.distinct and self.number else text

    def sized(self, data: bytes, *, string: bool = False, records: bool = False) -> bytes:
        if self.flexible:
            return _uvarint(len(data) + 1) + data
        return struct.pack(">h" if string else ">i", len(data)) + data


def _tags(count: int) -> bytes:
    return _uvarint(count) + b"".join(_uvarint(100 + number) + b"\x01x" for number in range(count))


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- records ---

RECORD = b"\x10\0\0\0\x02k\x02v\0"
KEYLESS = b"\x0c\0\0\0\x01\x01\0"


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, 19))


def _gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, wbits=31)
    return compressor.compress(data) + compressor.flush()


CODECS: dict[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: _gzip,
    2: xerial.compress,
    3: lz4_frame.compress,
    4: _zstd,
}


def batch(codec: int, record: bytes, count: int, timestamp: int, claimed: int | None = None) -> bytes:
    """Return a batch of `count` equal records whose header says that there are `claimed` records."""
    claimed = count if claimed is None else claimed
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=claimed - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=claimed,
    )
    return assemble_batch(header, CODECS[codec](record * count))


def largest_batch(
    codec: int, record: bytes, timestamp: int, size: int, max_records: int = 4_000_000
) -> bytes:
    """Return the batch with the most records (up to `max_records`) in at most `size` bytes."""
    count = max_records
    while True:
        made = batch(codec, record, count, timestamp)
        if len(made) <= size:
            return made
        count = min(count - 1, int(count * size / len(made) * 0.95))


# --- requests that change much ---


def _of(
    request: type[Request], version: int, path: str, max_elements: int = MAX_ELEMENTS - 10, **likely: Any
) -> Callable[[World], bytes]:
    shape = Shape("", tuple(path.split(".")), distinct=True, max_elements=max_elements, likely=likely)
    return lambda world: frame(request, version, shape, world)


CHANGES: dict[str, list[Callable[[World], bytes]]] = {
    "Metadata of unknown names that makes topics": [
        _of(MetadataRequest, 8, "topics", allow_auto_topic_creation=True)
    ],
    "CreateTopics": [_of(CreateTopicsRequest, 7, "topics", validate_only=False)],
    "DeleteTopics": [_of(DeleteTopicsRequest, 5, "topic_names")],
    "CreatePartitions": [_of(CreatePartitionsRequest, 3, "topics", validate_only=False)],
    "IncrementalAlterConfigs": [_of(IncrementalAlterConfigsRequest, 1, "resources", validate_only=False)],
    "AlterConfigs": [_of(AlterConfigsRequest, 2, "resources", validate_only=False)],
    "ten thousand topics made, asked for and deleted, as an administrator may": [
        _of(CreateTopicsRequest, 7, "topics", 9_900, validate_only=False),
        _of(MetadataRequest, 8, "topics", 9_900),
        _of(DescribeConfigsRequest, 4, "resources", 2_000),
        _of(DeleteTopicsRequest, 5, "topic_names", 9_900),
    ],
}
