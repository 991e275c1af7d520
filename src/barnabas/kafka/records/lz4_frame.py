"""LZ4 frames as Kafka's Java client reads them: independent blocks of at most 64 KiB, no checksums.

General libraries write frames with linked blocks, which the Java client refuses (KIP-57). So Barnabas writes
its own. A frame (https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md, little-endian) consists of:

- magic, flags, block-size code, header checksum;
- blocks: size (the highest bit marks uncompressed data) and data;
- a size of 0.
"""

from __future__ import annotations

import struct

import cramjam

BLOCK_SIZE = 64 * 1024
#: version 1, independent blocks; blocks up to 64 KiB; the second byte of the header's xxHash32
_HEADER = struct.pack("<I", 0x184D2204) + b"\x60\x40\x82"
_STORED = 0x8000_0000
_SIZE = struct.Struct("<I")
#: highest level: a call of the library keeps the GIL, and with the levels above it takes up to 200 ms a block
_MAX_LEVEL = 9


def compress(data: bytes, level: int | None = None) -> bytes:
    """Return `data` compressed as one LZ4 frame.

    Without a `level`, use the fast method. Levels from 3 to 9 are increasingly slow, and compress better.
    Higher levels give the same result as 9. With a level, the blocks have checksums.
    """
    if level is not None:
        compressor = cramjam.lz4.Compressor(
            level=min(level, _MAX_LEVEL), content_checksum=False, block_linked=False
        )
        for start in range(0, len(data), BLOCK_SIZE):  # other threads can run between the calls
            compressor.compress(data[start : start + BLOCK_SIZE])
        return bytes(compressor.finish())
    parts = [_HEADER]
    for start in range(0, len(data), BLOCK_SIZE):
        plain = data[start : start + BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_SIZE.pack(len(block)), block)
        else:
            parts += (_SIZE.pack(len(plain) | _STORED), plain)
    parts.append(_SIZE.pack(0))
    return b"".join(parts)
