"""Rebuilds the sparse indexes of a segment in a thread, if they do not match the segment."""

from __future__ import annotations

from contextlib import suppress

from barnabas.base.errors import KafkaError
from barnabas.broker.storage.index import OffsetIndex, TimeIndex
from barnabas.broker.storage.open_files import ColdRead, LogFile
from barnabas.kafka.records.batch import HEADER_SIZE, parse_header

#: bytes between two entries: what `index.interval.bytes` says unless a topic changes it
_INTERVAL = 4096
_READ_BYTES = 64 * 1024


class IndexBuild:
    """Rebuilds both sparse indexes of a segment from its batches. Any thread can call `run`.

    The segment owns this object. `run` stores the content of both index files in `built`. This content has no
    entries for batches that were appended after this object was created: the segment adds them.
    """

    def __init__(
        self, log: LogFile, base_offset: int, size: int, offset_entries: int, time_entries: int
    ) -> None:
        """Create a rebuild of the indexes of a segment with `size` bytes.

        `offset_entries` and `time_entries` are the present numbers of entries in `.index` and `.timeindex`.
        """
        self.log = log
        self.size = size
        self.offset_entries = offset_entries
        self.time_entries = time_entries
        self._base_offset = base_offset
        #: whether the result is in use, or the indexes cannot be rebuilt
        self.is_over = False
        #: content of `.index` and `.timeindex`; None until `run` has computed it
        self.built: tuple[bytes, bytes] | None = None

    def run(self) -> None:
        """Compute `built` from the segment's batch headers, in any thread. The segment's file must be pinned.

        If a batch header is damaged, the indexes cannot be rebuilt: `built` stays None, and `is_over` becomes
        true.

        Raises:
            OSError: the disk failed.
        """
        if self.built is None:
            with suppress(KafkaError):
                self.built = self._build()
            self.is_over = self.built is None

    def _build(self) -> tuple[bytes, bytes] | None:
        """Return the content of `.index` and of `.timeindex`; None if a batch header is damaged.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a batch header cannot be parsed.
            OSError: the disk failed.
        """
        offsets, times = bytearray(), bytearray()
        position, indexed_at = 0, -_INTERVAL
        latest = indexed = (-1, 0)
        expected = self._base_offset
        block, block_at = b"", 0
        while position < self.size:
            if position + HEADER_SIZE > block_at + len(block):
                block, block_at = self.log.read_now(_READ_BYTES, position), position
            header = parse_header(block, position - block_at)
            relative = header.last_offset - self._base_offset
            is_whole = HEADER_SIZE <= header.size <= self.size - position
            if not is_whole or not expected <= header.base_offset <= header.last_offset or relative >= 2**31:
                return None
            expected = header.next_offset
            if header.latest_record_timestamp > latest[0]:
                latest = header.latest_record_timestamp, relative
            if position - indexed_at >= _INTERVAL:
                offsets += OffsetIndex.ENTRY.pack(relative, position)
                if latest > indexed:
                    times += TimeIndex.ENTRY.pack(*latest)
                    indexed = latest
                indexed_at = position
            position += header.size
        if latest > indexed:
            times += TimeIndex.ENTRY.pack(*latest)
        return bytes(offsets), bytes(times)


class DamagedIndex(ColdRead):
    """Raised by the search for a batch in a segment whose indexes do not match the segment.

    Call `warm` in a thread to rebuild the indexes. Then repeat the search.
    """

    def __init__(self, build: IndexBuild) -> None:
        super().__init__(build.log, build.size, 0)
        self._build = build

    def warm(self) -> None:
        self._build.run()
