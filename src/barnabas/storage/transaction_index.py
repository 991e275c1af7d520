"""The `.txnindex` file: the aborted transactions whose marker lies in the segment, in Apache Kafka's format.

Entries of 34 bytes, big-endian, in the order of the markers: version (int16, 0), producer id (int64), first
offset of the transaction (int64), last offset, the marker's (int64), and where the partition was stable once
the marker was there (int64). The file exists when there is an entry. A crash may cut it short: it is built
anew with the segment's other indexes.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from barnabas.storage.open_files import LogFile
from barnabas.types import Offset, ProducerId

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
#: entries read at once
_BLOCK = 256


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_offset` is its marker's."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    #: where the next open transaction began when this one had ended, or the offset after the marker
    last_stable_offset: Offset


class TransactionIndex:
    """One segment's aborted transactions, ascending by their last offsets. Owned by the segment."""

    __slots__ = ("_stored", "changed", "file", "waiting")

    def __init__(self, file: LogFile, size: int = 0) -> None:
        """`size` is how many bytes the file holds."""
        self.file = file
        #: whether the file was changed; set back by whoever sees to its fsync
        self.changed = False
        #: entries that could not be stored yet, after all that are
        self.waiting: list[AbortedTransaction] = []
        self._stored = size // ENTRY.size

    def __len__(self) -> int:
        return self._stored + len(self.waiting)

    @property
    def stored_bytes(self) -> int:
        """How much of the file holds entries."""
        return self._stored * ENTRY.size

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds the transaction that the segment's latest marker has aborted.

        The marker is in the log already: what cannot be stored now waits for the next entry, or the sealing.
        """
        self.waiting.append(aborted)
        with suppress(OSError):
            self.store()

    def store(self) -> None:
        """Writes what waits in memory to the file.

        Raises:
            OSError: it waits on.
        """
        if self.waiting:
            entries = b"".join(ENTRY.pack(_VERSION, *aborted) for aborted in self.waiting)
            self.file.write_at([entries], self.stored_bytes)
            self._stored += len(self.waiting)
            self.waiting = []
            self.changed = True

    def from_offset(self, offset: Offset) -> Iterator[AbortedTransaction]:
        """Those that end at or after `offset`.

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

    def truncate(self, offset: Offset) -> None:
        """Forgets those that end at or after `offset`: their markers are cut off."""
        self.waiting = [aborted for aborted in self.waiting if aborted.last_offset < offset]
        self._keep(self._place_of(offset))

    def reset(self) -> None:
        """Forgets everything."""
        self.waiting = []
        self._keep(0)

    def is_sound(self, base_offset: Offset) -> bool:
        """Whether every entry can be one, of a transaction that ended at `base_offset` or later."""
        last_offset = base_offset - 1
        for number in range(self._stored):
            version, _, first, last, stable = ENTRY.unpack(self._read(number))
            if version != _VERSION or not last_offset < last or not 0 <= first <= last:
                return False
            if not 0 <= stable <= last + 1:
                return False
            last_offset = last
        return True

    def _place_of(self, offset: Offset) -> int:
        return bisect_left(
            range(self._stored), offset, key=lambda number: ENTRY.unpack(self._read(number))[3]
        )

    def _read(self, number: int) -> bytes:
        return self.file.read_at(ENTRY.size, number * ENTRY.size)

    def _keep(self, count: int) -> None:
        if not count:
            self.file.remove()
            self.changed = False
        elif count < self._stored:
            self.file.truncate(count * ENTRY.size)
            self.changed = True
        self._stored = count
