"""CRC-32C (Castagnoli), the checksum of a record batch and of a producer snapshot."""

from __future__ import annotations

from fastcrc.crc32 import iscsi

from barnabas.types import Buffer


def crc32c(data: Buffer) -> int:
    """The CRC-32C of `data`, unsigned; memoryviews are read where they lie."""
    checksum: int = iscsi(data)
    return checksum
