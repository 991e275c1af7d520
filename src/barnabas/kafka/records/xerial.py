"""Snappy as Kafka's Java client writes it: raw snappy blocks in the framing of the snappy-java library.

    magic (8 bytes: 0x82 "SNAPPY" 0x00), version (int32, 1), lowest compatible version (int32, 1),
    then blocks: compressed length (int32), raw snappy

Several such streams may follow each other. `decompress` checks what snappy-java 1.1.10 checks: only the
headers after the first need version 1 or higher.

Other clients (librdkafka among them) write one bare snappy block; `decompress` reads both.
"""

from __future__ import annotations

import struct

import cramjam

from barnabas.base.types import Buffer

MAGIC = b"\x82SNAPPY\x00"
_VERSIONS = struct.Struct(">ii")
_HEADER = MAGIC + _VERSIONS.pack(1, 1)
_LENGTH = struct.Struct(">i")
#: bytes of one block: the Java client's size
BLOCK_SIZE = 32 * 1024


def compress(data: bytes) -> bytes:
    """Return `data` compressed with snappy, in the framing of snappy-java (Xerial)."""
    parts = [_HEADER]
    for start in range(0, len(data), BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + BLOCK_SIZE]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(data: Buffer, limit: int) -> bytes:
    """Return `data` decompressed: snappy in Xerial's framing, or one bare snappy block.

    Raises:
        ValueError: the framing is damaged.
        OverflowError: the result would be larger than `limit` bytes.
        cramjam.DecompressionError: a block is damaged.
    """
    view = memoryview(data)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        return _block(view, limit)
    if len(view) < len(_HEADER):
        raise ValueError("the header is cut off")
    parts = []
    room = limit
    position = len(_HEADER)
    while position < len(view):
        if view[position : position + len(MAGIC)] == MAGIC:
            position = _after_header(view, position)
            continue
        if position + 4 > len(view):
            raise ValueError("a block's length is cut off")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if not 0 <= length <= len(view) - position:
            raise ValueError(f"a block says it has {length} bytes, {len(view) - position} are left")
        parts.append(_block(view[position : position + length], room))
        room -= len(parts[-1])
        position += length
    return b"".join(parts)


def _after_header(view: memoryview, position: int) -> int:
    """Return the position after the header at `position`, which is not the first. Raises ValueError."""
    end = position + len(_HEADER)
    if len(view) < end:
        raise ValueError("a header is cut off")
    version, _ = _VERSIONS.unpack_from(view, position + len(MAGIC))
    if version < 1:
        raise ValueError(f"a header has version {version}, at least version 1 is required")
    return end


def _block(block: memoryview, limit: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise OverflowError("too large")
    return bytes(cramjam.snappy.decompress_raw(block))
