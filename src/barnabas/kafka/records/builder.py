"""Encodes records as whole batches, and decodes the records of whole batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer
from barnabas.kafka.records.batch import (
    CONTROL_FLAG,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    batches,
    parse_header,
)
from barnabas.kafka.records.compression import DEFAULT_LIMIT, Compression, compress, decompress
from barnabas.kafka.records.crc import crc32c
from barnabas.kafka.records.record import (
    Record,
    decode_records,
    encode_record,
    encode_records,
    keys_and_values,
)

_CRC = struct.Struct(">I")


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return one batch with `records`, at least one. Their offsets begin at `base_offset`.

    The base timestamp is the timestamp of the first record; the max timestamp is the highest one.
    `transactional` and `control` set these flags of the batch. The defaults of the producer's fields are for
    a producer that is not idempotent.
    """
    attributes = compression | (TRANSACTIONAL_FLAG if transactional else 0) | (CONTROL_FLAG if control else 0)
    base_timestamp = max_timestamp = records[0].timestamp
    count = len(records)
    if count == 1:
        payload = encode_record(records[0], 0, 0)
    else:
        payload = encode_records(records, range(count), base_timestamp)
        max_timestamp = max([record.timestamp for record in records])
    if compression:
        payload = compress(compression, payload)
    return _assembled(
        (
            *(base_offset, HEADER_SIZE - LOG_OVERHEAD + len(payload), leader_epoch, MAGIC, 0),
            *(attributes, count - 1, base_timestamp, max_timestamp),
            *(producer_id, producer_epoch, base_sequence, count),
        ),
        payload,
    )


def assemble_batch(header: BatchHeader, payload: bytes) -> bytes:
    """Join a header and its (compressed) records into one batch, with the correct length and CRC."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    return _assembled(header._replace(length=length, magic=MAGIC, crc=0), payload)


def _assembled(fields: tuple[int, ...], payload: bytes) -> bytes:
    batch = bytearray(HEADER.pack(*fields) + payload)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_COVERS_FROM:]))
    return bytes(batch)


def batch_payload(header: BatchHeader, batch: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return the records of one batch, decompressed but not decoded. `batch` begins with its header.

    Args:
        limit: maximum size of decompressed records, in bytes. It does not apply to an uncompressed batch.

    Raises:
        ExpandsTooFarError: the records decompress to more than `limit` bytes.
        KafkaError: CORRUPT_MESSAGE, the data is damaged; UNSUPPORTED_COMPRESSION_TYPE.
    """
    return decompress(header.compression, memoryview(batch)[HEADER_SIZE : header.size], limit)


def batch_records(header: BatchHeader, batch: Buffer, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """Yield the records of one batch, and decode each one when it is needed. `batch` begins with its header.

    Args:
        limit: maximum size of decompressed records, in bytes. It does not apply to an uncompressed batch.

    Raises:
        ExpandsTooFarError: the records decompress to more than `limit` bytes. The call itself raises this.
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE, or CORRUPT_MESSAGE if the data cannot be decompressed. The
            call itself raises this. A damaged record raises CORRUPT_MESSAGE after the records before it.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    payload = batch_payload(header, batch, limit)
    return decode_records(
        payload, header.record_count, header.base_offset, header.base_timestamp, append_time
    )


def batch_keys_and_values(
    header: BatchHeader, data: bytes, position: int
) -> list[tuple[bytes | None, bytes | None]]:
    """Return the key and the value of each record of the batch that begins at `position` in `data`.

    A null key or a null value is None.

    Raises:
        KafkaError: CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    if not header.compression:
        return keys_and_values(data, position + HEADER_SIZE, header.record_count)
    payload = batch_payload(header, memoryview(data)[position : position + header.size])
    return keys_and_values(payload, 0, header.record_count)


def all_records(data: Buffer, *, control: bool = False) -> Iterator[Record]:
    """Yield the records of all complete batches in `data`, also control records if `control` is true.

    Raises:
        KafkaError: CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(data)
    for position, header in batches(data):
        if control or not header.is_control:
            yield from batch_records(header, view[position : position + header.size])


def recompress(batch: Buffer, codec: Compression) -> bytes:
    """Return a batch with the same records, compressed with `codec`. The records are not decoded.

    Raises:
        KafkaError: CORRUPT_MESSAGE, `batch` is not exactly one batch, or its data is damaged;
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = parse_header(batch)
    if header.size != len(batch):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes are not one batch of {header.size}")
    return recompressed(header, batch_payload(header, batch), codec)


def recompressed(header: BatchHeader, payload: bytes, codec: Compression, level: int | None = None) -> bytes:
    """Return a batch with `header` and the uncompressed records in `payload`, compressed with `codec`.

    `level` is the codec's level; None for its default.
    """
    attributes = header.attributes & ~0x07 | codec
    return assemble_batch(header._replace(attributes=attributes), compress(codec, payload, level))
