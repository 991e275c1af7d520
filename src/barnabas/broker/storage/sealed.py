"""A file that lists a log's sealed segments on disk, so that a start after a crash need not read them.

A flush appends an entry for each sealed segment that it has made durable. After a crash, recovery trusts a
segment whose files have the sizes of its entry, even beyond the checkpoint's recovery point. The checkpoint
can be `log.flush.offset.checkpoint.interval.ms` old. Recovery reads and checks a segment without an entry.

Entries ascend by base offset. Each has 52 bytes, big-endian:

- base offset and end offset (int64 each);
- the bytes of `.log` (int64), `.index` and `.timeindex` (uint32 each);
- the largest timestamp, and the last offset of the first batch that has it (int64 each);
- CRC-32C of the fields before (uint32).

The file is not fsynced. So entries can be missing after a power cut, and recovery then checks their segments.
But a truncation removes entries durably, before it changes their segments. Apache Kafka ignores the file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.types import Offset
from barnabas.broker.storage.checkpoints import SegmentSizes
from barnabas.broker.storage.open_files import LogFile, OpenFiles
from barnabas.broker.storage.segments import Segments
from barnabas.kafka.records.crc import crc32c

FILE_NAME = "barnabas-sealed-segments"

_FIELDS = struct.Struct(">qqqIIqq")
_CRC = struct.Struct(">I")
_BOUNDS = struct.Struct(">qq")
_SIZE = _FIELDS.size + _CRC.size
#: most entries of removed segments in the file, besides as many as there are segments
_MAX_STALE = 256


class SealedSegment(NamedTuple):
    """One entry of the file: a segment whose files are on disk."""

    base_offset: Offset
    #: where the next segment begins
    end_offset: Offset
    sizes: SegmentSizes


def encode(entry: SealedSegment) -> bytes:
    """Return the bytes of an entry in the file."""
    base_offset, end_offset, sizes = entry
    fields = _FIELDS.pack(base_offset, end_offset, *sizes)
    return fields + _CRC.pack(crc32c(fields))


def decode(content: bytes) -> dict[Offset, SealedSegment]:
    """Return the undamaged entries of the file's content, by base offset. Never raise an error."""
    entries = {}
    for position in range(0, len(content) - _SIZE + 1, _SIZE):
        fields = content[position : position + _FIELDS.size]
        if _CRC.unpack_from(content, position + _FIELDS.size)[0] == crc32c(fields):
            base_offset, end_offset, *sizes = _FIELDS.unpack(fields)
            entries[base_offset] = SealedSegment(base_offset, end_offset, SegmentSizes(*sizes))
    return entries


def is_listed(segments: Segments, index: int, entries: Mapping[Offset, SealedSegment]) -> bool:
    """Whether the segment at `index` is sealed, and its files have the sizes in `entries`."""
    segment = segments[index]
    entry = entries.get(segment.base_offset)
    return (
        entry is not None
        and index < len(segments) - 1
        and entry.end_offset == segments[index + 1].base_offset
        and entry.sizes[:3] == (segment.size, segment.offsets.size, segment.times.size)
    )


class SealedSegments:
    """The list of sealed segments of one log, in a file. The log owns it; any thread can call `sync`.

    Args:
        files: the open files of the broker.
        folder: folder of the log.
        size: size of the file in bytes.
    """

    __slots__ = ("_count", "_fs", "_is_cut", "file")

    def __init__(self, files: OpenFiles, folder: str, size: int = 0) -> None:
        self.file = LogFile(files, folder, FILE_NAME)
        self._fs: FileSystem = files.fs
        self._count = size // _SIZE
        #: whether the removal of entries is not durable yet
        self._is_cut = False

    def append(self, segments: Segments, indexes: Sequence[int]) -> None:
        """Append an entry for each of the sealed segments at `indexes`.

        The caller must give these segments in the order of their offsets. All of them must come after the
        segments that already have an entry.

        If the file has far more entries than the log has segments, first drop the oldest entries. If the disk
        fails, raise nothing: the file then lacks the new entries.
        """
        with suppress(OSError):
            segment_count = len(segments)
            if self._count > 2 * segment_count + _MAX_STALE:
                self._write(self.file.read_at(segment_count * _SIZE, (self._count - segment_count) * _SIZE))
            self.file.write_at([_encoded(segments, indexes)], self._count * _SIZE)
            self._count += len(indexes)

    def write(self, segments: Segments, indexes: Sequence[int]) -> None:
        """Replace all entries with entries for the segments at `indexes`.

        If the disk fails, raise nothing: the list is then empty.
        """
        with suppress(OSError):
            self._write(_encoded(segments, indexes))

    def replace(self, segments: Segments, index: int) -> None:
        """Replace a segment's entry in this list, because the segment was rewritten.

        The segment is `segments[index]`. If this list has no entry for it, do nothing.

        If the disk fails, raise nothing, and keep the old entry. Recovery ignores an entry whose sizes differ
        from the sizes of the segment's files.
        """
        base_offset = segments[index].base_offset
        with suppress(OSError):
            number = bisect_left(range(self._count), base_offset, key=lambda number: self._bounds(number)[0])
            if number < self._count and self._bounds(number)[0] == base_offset:
                self.file.write_at([_encoded(segments, [index])], number * _SIZE)

    def cut(self, offset: Offset) -> None:
        """Remove the entries of segments that end after `offset`.

        Call this method, and after it `sync`, before the log is truncated to `offset`.

        Raises:
            OSError: the disk failed.
        """
        kept = bisect_right(range(self._count), offset, key=lambda number: self._bounds(number)[1])
        if kept < self._count:
            self.file.truncate(kept * _SIZE)
            self._count = kept
            self._is_cut = True

    def sync(self) -> None:
        """Make the removal of entries durable. Any thread can call it.

        Raises:
            OSError: the disk failed, and the removal is not durable yet.
        """
        if not self._is_cut:
            return
        self._is_cut = False  # first: more may be cut meanwhile
        folder, _, _ = self.file.path.rpartition("/")
        try:
            file = self._fs.open(self.file.path)
            try:
                file.sync()
            finally:
                file.close()
            self._fs.sync_directory(folder)  # the file may be one that has replaced another
        except OSError:
            self._is_cut = True
            raise

    def _write(self, content: bytes) -> None:
        self._count = 0
        self.file.remove()
        self.file.write_at([content], 0)
        self._count = len(content) // _SIZE

    def _bounds(self, number: int) -> tuple[Offset, Offset]:
        data = self.file.read_at(_BOUNDS.size, number * _SIZE)
        if len(data) < _BOUNDS.size:  # somebody has shortened the file: it has no such entry
            return 2**63 - 1, 2**63 - 1
        base_offset, end_offset = _BOUNDS.unpack(data)
        return base_offset, end_offset


def _encoded(segments: Segments, indexes: Sequence[int]) -> bytes:
    """Return the entries of sealed segments. Raises OSError if a time index cannot be read."""
    return b"".join([encode(_entry_of(segments, index)) for index in indexes])


def _entry_of(segments: Segments, index: int) -> SealedSegment:
    segment = segments[index]
    return SealedSegment(
        segment.base_offset,
        segments[index + 1].base_offset,
        SegmentSizes(segment.size, segment.offsets.size, segment.times.size, *segment.latest),
    )
