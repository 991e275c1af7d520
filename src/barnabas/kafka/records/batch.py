"""The header of a record batch, version 2 (https://kafka.apache.org/documentation/#recordbatch).

A batch begins with 61 bytes, big-endian. Its records follow, either compressed together or not compressed:

    at  bytes  field
     0      8  base offset              outside the CRC, so that a broker may set it
     8      4  batch length             of all that follows this field
    12      4  partition leader epoch   outside the CRC, for the same reason
    16      1  magic                    2
    17      4  CRC-32C                  of everything from the attributes to the end
    21      2  attributes               see the constants below
    23      4  last offset delta
    27      8  base timestamp           milliseconds
    35      8  max timestamp
    43      8  producer id              -1: not idempotent
    51      2  producer epoch
    53      4  base sequence
    57      4  records count
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_ID, Buffer
from barnabas.kafka.records.crc import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
#: base offset and batch length: enough to find the next batch
LOG_OVERHEAD = 12
MAGIC = 2
MAGIC_AT = 16
#: offset of the first byte that the CRC covers
CRC_COVERS_FROM = 21

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_ATTRIBUTES_LOW_BYTE = 22
_PRODUCER_ID_AT = 43
_PRODUCER_ID = struct.Struct(">q")

NO_TIMESTAMP = -1
NO_SEQUENCE = -1
SEQUENCE_LIMIT = 2**31

#: the fields that the CRC does not cover, and the CRC: base offset, batch length, leader epoch, magic, CRC
UNCOVERED = struct.Struct(">qiibI")
_PREFIX = struct.Struct(">qii")
_PREFIX_SIZE = _PREFIX.size
#: makes a header from unpacked fields; `BatchHeader._make` takes twice as long
_header = tuple.__new__


class BatchHeader(NamedTuple):
    """The header of one batch in format 2, with the fields in their order on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Return the size of the batch in bytes, with its header."""
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record; -1 if the batch has no sequences.

        Sequences wrap from 2^31-1 to 0.
        """
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_LIMIT

    @property
    def compression(self) -> int:
        """Return the number of the codec, as in `barnabas.kafka.records.compression.Compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return the time from which compaction may drop the batch's tombstones or marker (KIP-534).

        The time is in milliseconds since 1970; None until compaction has set it. The batch stores it as the
        base timestamp, so the timestamp deltas of the records are relative to it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def latest_record_timestamp(self) -> int:
        """Return the largest timestamp of the batch's records in ms; -1 if the batch has no records left."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`. Checks only that there are enough bytes.

    Raises:
        KafkaError: CORRUPT_MESSAGE, fewer bytes are left than a header has.
    """
    try:
        return _header(BatchHeader, HEADER.unpack_from(data, position))
    except struct.error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch header takes {HEADER_SIZE} bytes, {max(len(data) - position, 0)} are left",
        ) from None


def low_attributes(batch: Buffer) -> int:
    """Return the low byte of the attributes, without parsing the header; 0 if the batch is too short."""
    return batch[_ATTRIBUTES_LOW_BYTE] if len(batch) >= HEADER_SIZE else 0


def producer_id_of(batch: Buffer) -> int:
    """Return the producer id, without parsing the header; -1 if the batch is too short."""
    if len(batch) < HEADER_SIZE:
        return NO_PRODUCER_ID
    producer_id: int = _PRODUCER_ID.unpack_from(batch, _PRODUCER_ID_AT)[0]
    return producer_id


def crc_of(batch: Buffer) -> int:
    """Compute the CRC-32C of one whole batch, from its attributes to its end. The stored CRC is not read."""
    return crc32c(memoryview(batch)[CRC_COVERS_FROM:])


def check_crc(header: BatchHeader, data: Buffer, position: int = 0) -> None:
    """Check the magic, length and CRC of the whole batch at `position`.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the magic, length or CRC is wrong, or `data` ends inside the batch.
    """
    size = header.length + LOG_OVERHEAD
    if header.magic != MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch has magic {header.magic}, not {MAGIC}")
    if size < HEADER_SIZE or position + size > len(data):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch says it has {size} bytes, {len(data) - position} are there",
        )
    found = crc_of(memoryview(data)[position : position + size])
    if found != header.crc:
        raise wrong_crc(header, found)


def wrong_crc(header: BatchHeader, found: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"the batch's CRC is {found:#010x}, its header says {header.crc:#010x}"
    )


def batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield each whole batch of `data` as (position, header), without an incomplete one at the end.

    Neither the magic nor the CRC is checked.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a batch length is smaller than a header.
    """
    position = 0
    end = len(data)
    while position + HEADER_SIZE <= end:
        header = parse_header(data, position)
        size = header.length + LOG_OVERHEAD
        if size < HEADER_SIZE:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch says it has {size} bytes")
        if position + size > end:
            return
        yield position, header
        position += size


def placed(data: Buffer, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """Return the batch `data` with a new base offset and leader epoch, as two chunks to write to the log.

    The first chunk is a new 16-byte prefix with both fields, which the CRC does not cover. The second chunk
    is the rest of `data`, without a copy.
    """
    prefix = _PREFIX.pack(base_offset, len(data) - LOG_OVERHEAD, leader_epoch)
    return prefix, memoryview(data)[_PREFIX_SIZE:]


def with_timestamp_type(header: BatchHeader, data: Buffer, append_time_ms: int | None) -> bytes:
    """Return a copy of the batch in `data` with the timestamp type LogAppendTime or CreateTime.

    If `append_time_ms` is given, the copy has LogAppendTime and this time (ms) as its max timestamp.
    If `append_time_ms` is None, the copy has CreateTime: the records keep their own timestamps.
    """
    changed = bytearray(data)
    if append_time_ms is None:
        struct.pack_into(">h", changed, 21, header.attributes & ~LOG_APPEND_TIME_FLAG)
    else:
        struct.pack_into(">h", changed, 21, header.attributes | LOG_APPEND_TIME_FLAG)
        struct.pack_into(">q", changed, 35, append_time_ms)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[CRC_COVERS_FROM:]))
    return bytes(changed)
