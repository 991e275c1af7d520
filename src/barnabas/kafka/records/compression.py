"""The compression codecs of batches, each with a limit on the decompressed size.

The formats are those that Kafka's Java client reads: gzip; snappy in Xerial's framing; lz4 frames of
independent blocks (KIP-57); zstd (KIP-110).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer
from barnabas.kafka.records import lz4_frame, xerial

#: default limit of a batch's decompressed size: far above any sane batch
DEFAULT_LIMIT = 256 * 1024 * 1024

#: levels of gzip, lz4 and zstd, which are Kafka's defaults (KIP-390). For lz4, 9 stands for the fast method
_GZIP_LEVEL, _LZ4_LEVEL, _ZSTD_LEVEL = -1, 9, 3

_GZIP_WINDOW = 31
#: cramjam's message for a buffer that is too small, whether or not the data is valid
_NO_ROOM = "failed to write whole buffer"


class ExpandsTooFarError(KafkaError):
    """Data would decompress to more than the limit. Clients get CORRUPT_MESSAGE, as for damaged data."""


class Compression(IntEnum):
    """The codecs, with their numbers in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> Compression:
        """Return the codec with a name from `compression.type`; "uncompressed" is NONE.

        Raises:
            ValueError: no codec has this name. "producer" is not a codec.
        """
        try:
            return cls[{"uncompressed": "none"}.get(name, name).upper()]
        except KeyError:
            raise ValueError(f"{name!r} is not a compression") from None


def compress(codec: Compression, data: bytes, level: int | None = None) -> bytes:
    """Return `data` compressed with `codec`, in the format that Kafka's Java client reads.

    `level` is the codec's level (KIP-390), None for its default. NONE and SNAPPY have no levels.
    """
    if codec is Compression.NONE:
        return data
    if codec is Compression.GZIP:
        compressor = zlib.compressobj(_GZIP_LEVEL if level is None else level, wbits=_GZIP_WINDOW)
        return compressor.compress(data) + compressor.flush()
    if codec is Compression.SNAPPY:
        return xerial.compress(data)
    if codec is Compression.LZ4:
        return lz4_frame.compress(data, None if level == _LZ4_LEVEL else level)
    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return `data` decompressed. A codec allocates at most about twice `limit` bytes, whatever the input.

    Data that is not compressed (codec 0) is copied, without a limit.

    Raises:
        ExpandsTooFarError: the data decompresses to more than `limit` bytes.
        KafkaError: CORRUPT_MESSAGE, the data is damaged; UNSUPPORTED_COMPRESSION_TYPE, no codec has this
            number.
    """
    try:
        if codec == Compression.NONE:
            return bytes(data)
        if codec == Compression.GZIP:
            return _gunzip(data, limit)
        if codec == Compression.SNAPPY:
            return xerial.decompress(data, limit)
        if codec == Compression.LZ4:
            return _into_growing_buffer(cramjam.lz4.decompress_into, data, limit)
        if codec == Compression.ZSTD:
            return _into_growing_buffer(cramjam.zstd.decompress_into, data, limit)
    except OverflowError as error:
        raise ExpandsTooFarError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{Compression(codec).name.lower()} data decompresses to more than {limit} bytes",
        ) from error
    except (zlib.error, cramjam.DecompressionError, ValueError) as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{Compression(codec).name.lower()} data is damaged: {error}"
        ) from error
    raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no compression has the number {codec}")


def _gunzip(data: Buffer, limit: int) -> bytes:
    parts = []
    room = limit
    rest = bytes(data)
    while rest:  # gzip data may have several members
        member = zlib.decompressobj(wbits=_GZIP_WINDOW)
        parts.append(member.decompress(rest, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise OverflowError("too large")
        if not member.eof:
            raise ValueError("cut off")
        rest = member.unused_data
    if not parts:
        raise ValueError("empty")
    return b"".join(parts)


def _into_growing_buffer(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int
) -> bytes:
    """Decompress LZ4 or zstd data, which need not state its decompressed size. Return the result.

    `decompress_into` writes to the bytearray, and returns the number of bytes. If the bytearray is too small,
    `decompress_into` raises cramjam.DecompressionError with the text `_NO_ROOM`. Then this function calls it
    again with a larger bytearray.

    Raises OverflowError if the result has more than `limit` bytes, and DecompressionError for damaged data.
    """
    room = min(limit, max(4 * len(data), 65_536))
    while True:
        output = bytearray(room)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _NO_ROOM:
                raise
            if room >= limit:
                raise OverflowError("too large") from error
            room = min(limit, room * 8)
            continue
        return bytes(memoryview(output)[:size])
