"""CRC-32C (Castagnoli), the checksum of a record batch and of a producer snapshot."""

from __future__ import annotations

from collections.abc import Callable

from fastcrc.crc32 import iscsi

from barnabas.base.types import Buffer

#: The CRC-32C of its argument, unsigned; memoryviews are not copied.
crc32c: Callable[[Buffer], int] = iscsi

#: Continues a CRC-32C: the first argument is the rest of the data, the second the CRC of its beginning.
crc32c_continued: Callable[[Buffer, int], int] = iscsi
