"""CRC-32C (Castagnoli), the checksum of a record batch and of a producer snapshot."""

from __future__ import annotations

from collections.abc import Callable

from fastcrc.crc32 import iscsi

from barnabas.types import Buffer

#: The CRC-32C of its argument, unsigned; memoryviews are read where they lie.
crc32c: Callable[[Buffer], int] = iscsi

#: The CRC-32C of data whose beginning has the CRC that is the second argument, and whose rest is the first.
crc32c_continued: Callable[[Buffer, int], int] = iscsi
