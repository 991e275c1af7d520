"""The `.txnindex` file of a segment: the aborted transactions whose marker is in it, in Kafka's format.

Entries of 34 bytes, big-endian, in the order of the markers, have these fields:

- version (int16, 0), producer id (int64);
- first offset of the transaction (int64), offset of its marker (int64);
- the last stable offset after the marker (int64).

The file exists if there is an entry. A crash may cut it short; recovery rebuilds it with the segment's other
indexes.

The format has no checksum, and a reader of committed records relies on every entry. So
`barnabas-txnindex-checksums` in the same folder (`barnabas.broker.storage.checked_lines`) has a line
"base-offset size CRC-32C" for each `.txnindex` that a flush has covered. Kafka ignores the file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.base.types import Offset, ProducerId
from barnabas.broker.storage import checked_lines
from barnabas.broker.storage.open_files import LogFile
from barnabas.kafka.records.crc import crc32c, crc32c_continued

ENTRY = struct.Struct(">hqqqq")
CHECKSUMS = "barnabas-txnindex-checksums"
_VERSION = 0
#: entries read at once
_BLOCK = 256


class AbortedTransaction(NamedTuple):
    """One aborted transaction in a partition's log.

    Attributes:
        producer_id: id of its producer.
        first_offset: offset of its first record.
        last_offset: offset of its abort marker.
        last_stable_offset: the last stable offset after the marker: first offset of the oldest transaction
            that was still open, or the offset after the marker.
    """

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class Checksum(NamedTuple):
    """The stored checksum of a `.txnindex` file: its size in bytes and the CRC-32C of its content."""

    size: int
    crc: int


NO_ENTRIES = Checksum(0, crc32c(b""))


def encode_checksums(checksums: Mapping[Offset, Checksum]) -> bytes:
    """Return the content of `barnabas-txnindex-checksums`. The keys are base offsets of segments."""
    return checked_lines.encode(
        f"{base_offset} {size} {crc:08x}" for base_offset, (size, crc) in checksums.items()
    )


def decode_checksums(content: bytes) -> dict[Offset, Checksum]:
    """Return the checksums in the content of `barnabas-txnindex-checksums`, by base offset.

    Raises:
        ValueError: the content is damaged.
    """
    lines, damage = checked_lines.decode(content)
    if damage is not None:
        raise ValueError(damage)
    checksums = {}
    for line in lines:
        base_offset, size, crc = line.split()
        checksums[int(base_offset)] = Checksum(int(size), int(crc, 16))
    return checksums


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the content of a `.txnindex` file."""
    return b"".join(ENTRY.pack(_VERSION, *aborted) for aborted in entries)


class TransactionIndex:
    """The aborted transactions whose abort markers are in one segment, by the offsets of the markers.

    Only the segment uses the index. It keeps the entries in the segment's `.txnindex` file.
    """

    __slots__ = ("_crc", "_stored", "changed", "file", "waiting")

    def __init__(self, file: LogFile, size: int = 0) -> None:
        """Open the index of a segment. Its file need not exist: the first entry creates it.

        Args:
            file: the segment's `.txnindex` file.
            size: present size of the file in bytes; 0 if it does not exist.
        """
        self.file = file
        #: whether the file was changed; the code that schedules its fsync resets it
        self.changed = False
        #: entries that are not stored yet; they follow the stored ones
        self.waiting: Sequence[AbortedTransaction] = ()
        self._stored = size // ENTRY.size
        #: CRC-32C of the stored entries; None until they are read
        self._crc: int | None = None if size else NO_ENTRIES.crc

    def __len__(self) -> int:
        return self._stored + len(self.waiting)

    @property
    def stored_bytes(self) -> int:
        """The size of the stored entries in bytes."""
        return self._stored * ENTRY.size

    def checksum(self) -> Checksum:
        """Return the checksum of the stored entries.

        Raises:
            OSError: the disk failed.
        """
        if self._crc is None:
            self._crc = crc32c(self.content())
        return Checksum(self.stored_bytes, self._crc)

    def content(self) -> bytes:
        """Return the bytes of the stored entries.

        Raises:
            OSError: the disk failed.
        """
        return self.file.read_at(self.stored_bytes, 0) if self._stored else b""

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction, whose marker is the segment's latest.

        The marker is already in the log. An entry that cannot be stored now waits in memory until the next
        entry or the sealing.
        """
        self.waiting = [*self.waiting, aborted]
        with suppress(OSError):
            self.store()

    def store(self) -> None:
        """Write the pending entries to the file.

        Raises:
            OSError: the disk failed, and the entries keep waiting.
        """
        if self.waiting:
            entries = encode_entries(self.waiting)
            before = self.checksum().crc
            self.file.write_at([entries], self.stored_bytes)
            self._crc = crc32c_continued(entries, before)
            self._stored += len(self.waiting)
            self.waiting = ()
            self.changed = True

    def from_offset(self, offset: Offset) -> Iterator[AbortedTransaction]:
        """Yield the aborted transactions that end at or after `offset`.

        Raises:
            OSError: the disk failed.
        """
        number = self._place_of(offset)
        while number < self._stored:
            block = self.file.read_at(min(_BLOCK, self._stored - number) * ENTRY.size, number * ENTRY.size)
            for _, *fields in ENTRY.iter_unpack(block):
                yield AbortedTransaction._make(fields)
            number += _BLOCK
        yield from (aborted for aborted in self.waiting if aborted.last_offset >= offset)

    def copy(self, file: LogFile) -> TransactionIndex:
        """Return a copy of the index in its present state, which reads through another open file."""
        copy = TransactionIndex(file)
        copy.waiting = self.waiting
        copy._stored, copy._crc = self._stored, self._crc
        return copy

    def checksum_before(self, offset: Offset) -> Checksum | None:
        """Return the checksum of the stored entries whose transactions end before `offset`.

        Return None if the file is damaged.

        Raises:
            OSError: the disk failed.
        """
        content = self.content()
        if len(content) != self.stored_bytes or self._crc not in (None, crc32c(content)):
            return None
        size = self._place_of(offset) * ENTRY.size
        return Checksum(size, crc32c(content[:size]))

    def truncate(self, offset: Offset, left: Checksum) -> None:
        """Remove the transactions that end at or after `offset`, because their markers are cut off.

        Args:
            offset: first offset that is cut off.
            left: the result of `checksum_before(offset)`.

        Raises:
            OSError: the disk failed.
        """
        self.waiting = [aborted for aborted in self.waiting if aborted.last_offset < offset]
        self._keep(left)

    def replace(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Replace all entries. If that raises OSError, the new entries wait in memory."""
        self.reset()
        self.waiting = aborted
        self.store()

    def reset(self) -> None:
        """Remove all entries, and the file."""
        self.waiting = ()
        self._keep(NO_ENTRIES)

    def _place_of(self, offset: Offset) -> int:
        return bisect_left(
            range(self._stored), offset, key=lambda number: ENTRY.unpack(self._read(number))[3]
        )

    def _read(self, number: int) -> bytes:
        return self.file.read_at(ENTRY.size, number * ENTRY.size)

    def _keep(self, left: Checksum) -> None:
        if not left.size:
            self.file.remove()
            self.changed = False
        elif left.size < self.stored_bytes:
            self.file.truncate(left.size)
            self.changed = True
        self._stored, self._crc = left.size // ENTRY.size, left.crc
