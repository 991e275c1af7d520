"""The two sparse indexes of a segment, in Apache Kafka's format (big-endian entries in ascending order).

`.index`      relative offset (uint32), position (uint32): a batch's last offset and its position in the file
`.timeindex`  timestamp (int64), relative offset (int32): no record up to that offset has a later timestamp

Offsets are relative to the segment's base offset. An entry is made about every `index.interval.bytes`.
New entries wait in memory, and are written to the file a block at a time. A crash loses the entries in
memory. Recovery then rebuilds the index when it reads the batches of the segment.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import Self

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.storage.open_files import LogFile

#: entries in a block: the unit of reads and writes
BLOCK = 512
_NO_ENTRIES = b""


class Index:
    """Entries of two numbers, sorted by the first: the base class of both indexes."""

    ENTRY: struct.Struct

    __slots__ = ("_stored", "_tail", "changed", "file", "size")

    def __init__(self, file: LogFile, stored: int = 0) -> None:
        """Create an index. `stored` is the number of entries in the file."""
        self.file = file
        #: whether the file was changed; the code that schedules its fsync resets it
        self.changed = False
        #: bytes of all entries, stored or not
        self.size = stored * self.ENTRY.size
        self._stored = stored
        #: entries not stored yet; all indexes without such entries share one object
        self._tail: bytes | bytearray = _NO_ENTRIES

    def __len__(self) -> int:
        return self.size // self.ENTRY.size

    def entry(self, number: int) -> tuple[int, int]:
        """Return both numbers of the entry with index `number`.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the file is shorter than before.
        """
        size = self.ENTRY.size
        if number >= self._stored:
            return self._unpack(self._tail, (number - self._stored) * size)
        return self._unpack(self.file.read_at(size, number * size), 0)

    def last(self) -> tuple[int, int] | None:
        return self.entry(len(self) - 1) if len(self) else None

    def floor(self, target: int) -> tuple[int, int] | None:
        """Return the last entry whose first number is at most `target`; None if there is none.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the file is shorter than before.
        """
        size = self.ENTRY.size
        tail = self._tail
        if tail and self._unpack(tail, 0)[0] <= target:
            block: bytes | bytearray = tail
        elif not self._stored:
            return None
        else:
            self.file.check_cached(self._stored * size, 0)  # the search reads many entries
            blocks = range((self._stored + BLOCK - 1) // BLOCK)
            number = bisect_right(blocks, target, key=self._first_of_block) - 1
            if number < 0:
                return None
            count = min(BLOCK, self._stored - number * BLOCK)
            block = self.file.read_now(count * size, number * BLOCK * size)
        numbers = range(len(block) // size)
        number = bisect_right(numbers, target, key=lambda number: self._unpack(block, number * size)[0]) - 1
        return self._unpack(block, number * size) if number >= 0 else None

    def _first_of_block(self, block: int) -> int:
        size = self.ENTRY.size
        return self._unpack(self.file.read_now(size, block * BLOCK * size), 0)[0]

    def store(self) -> None:
        """Write the entries that wait in memory to the file, and create the file if it is missing.

        Raises:
            OSError: the disk failed; the entries still wait.
        """
        self.file.write_at([self._tail], self._stored * self.ENTRY.size)
        self._stored = len(self)
        self._tail = _NO_ENTRIES
        self.changed = True

    def copy(self, file: LogFile) -> Self:
        """Return a copy of the index, which reads its entries through `file`."""
        copy = type(self)(file)
        copy.size, copy._stored, copy._tail = self.size, self._stored, bytes(self._tail)
        return copy

    def restrict(self, count: int) -> None:
        """Keep only the first `count` entries in memory. The file does not change."""
        self._tail = self._tail[: max(count - self._stored, 0) * self.ENTRY.size]
        self._stored = min(self._stored, count)
        self.size = count * self.ENTRY.size

    def keep(self, count: int) -> None:
        """Remove all entries after the first `count`, also from the file."""
        self._keep(count)

    def reset(self) -> None:
        """Remove every entry, also from the file."""
        self._keep(0)

    def replace(self, count: int, content: bytes) -> None:
        """Replace the first `count` entries with the entries in `content`, which has the format of the file.

        Keep a later entry only if both of its numbers are higher than the numbers of the entry before it:
        the entries must ascend. Remove the rest.

        If the file cannot be written now, the entries wait in memory, as new entries do.
        """
        later = [self.entry(number) for number in range(count, len(self))]
        entries = bytearray(content)
        last = self._unpack(entries, len(entries) - self.ENTRY.size) if entries else (-1, -1)
        for entry in later:
            if entry[0] > last[0] and entry[1] > last[1]:
                entries += self.ENTRY.pack(*entry)
                last = entry
        self._tail = entries or _NO_ENTRIES
        self._stored = 0
        self.size = len(entries)
        with suppress(OSError):
            self.file.truncate(0)
            self.store()

    def _append(self, first: int, second: int) -> None:
        if self._tail is _NO_ENTRIES:
            self._tail = bytearray()
        self._tail += self.ENTRY.pack(first, second)
        self.size += self.ENTRY.size
        if len(self._tail) >= BLOCK * self.ENTRY.size:
            # The batch is in the log already. If its index entry cannot be stored now, the next entry or the
            # sealing of the segment stores it. If the sealing cannot store it either, the sealing fails.
            with suppress(OSError):
                self.store()

    def _keep(self, count: int) -> None:
        size = self.ENTRY.size
        if count < self._stored:
            self.file.truncate(count * size)
            self.changed = True
            self._stored = count
            self._tail = _NO_ENTRIES
        else:
            self._tail = self._tail[: (count - self._stored) * size]
        self.size = count * size

    def _unpack(self, data: bytes | bytearray, position: int) -> tuple[int, int]:
        try:
            first, second = self.ENTRY.unpack_from(data, position)
        except struct.error:  # a truncation overtook a read in a thread, or the file is damaged
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.file.path} is shorter than it was") from None
        return first, second


class OffsetIndex(Index):
    """The `.index` file: positions of batches in the segment, by offset."""

    ENTRY = struct.Struct(">II")

    __slots__ = ()

    def append(self, relative_offset: int, position: int) -> None:
        self._append(relative_offset, position)

    def first_from_position(self, position: int) -> tuple[int, int] | None:
        """Return the first entry of a batch that begins at `position` or later; None if there is none."""
        number = bisect_left(range(len(self)), position, key=lambda number: self.entry(number)[1])
        return self.entry(number) if number < len(self) else None

    def count_before(self, relative_offset: int) -> int:
        """Return the number of entries for offsets before `relative_offset`."""
        return bisect_right(range(len(self)), relative_offset - 1, key=lambda number: self.entry(number)[0])


class TimeIndex(Index):
    """The `.timeindex` file: offsets of batches in the segment, by timestamp."""

    ENTRY = struct.Struct(">qi")

    __slots__ = ("_last_timestamp",)

    def __init__(self, file: LogFile, stored: int = 0) -> None:
        super().__init__(file, stored)
        self._last_timestamp: int | None = None

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the last entry; -1 if there is none."""
        if self._last_timestamp is None:
            last = self.last()
            self._last_timestamp = last[0] if last else -1
        return self._last_timestamp

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Append an entry if its timestamp is larger than the timestamp of the last entry."""
        if timestamp > self.last_timestamp:
            self._append(timestamp, relative_offset)
            self._last_timestamp = timestamp

    def count_before(self, relative_offset: int) -> int:
        """Return the number of entries for offsets before `relative_offset`."""
        return bisect_right(range(len(self)), relative_offset - 1, key=lambda number: self.entry(number)[1])

    def restrict(self, count: int) -> None:
        super().restrict(count)
        self._last_timestamp = None

    def keep(self, count: int) -> None:
        super().keep(count)
        self._last_timestamp = None

    def reset(self) -> None:
        super().reset()
        self._last_timestamp = -1

    def replace(self, count: int, content: bytes) -> None:
        super().replace(count, content)
        self._last_timestamp = None
