"""A log segment: batches one after the other in a `.log` file, with its indexes beside it.

The file's name is the segment's base offset in 20 digits. Batches are only appended to the last segment of a
log, the active one. All others are sealed.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer, Chunk
from barnabas.broker.storage.harm import TornError
from barnabas.broker.storage.index import OffsetIndex, TimeIndex
from barnabas.broker.storage.index_build import DamagedIndex, IndexBuild
from barnabas.broker.storage.open_files import SLICE_BYTES, FileSlice, LogFile, OpenFiles
from barnabas.broker.storage.transaction_index import AbortedTransaction, Checksum, TransactionIndex
from barnabas.kafka.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    parse_header,
)

logger = logging.getLogger(__name__)

#: base offset, batch length, magic and last offset delta: the fields of a header that a search needs
_SPAN = struct.Struct(">qi4xb6xi")
#: how many positions of the latest batches are remembered, for consumers that read the log's end
_RECENT = 64
#: shared values of `_recent`: no batch is known, and only the first one is known
_NONE_KNOWN: dict[int, int] = cast(Any, MappingProxyType({}))
_FIRST_KNOWN: dict[int, int] = cast(Any, MappingProxyType({}))
_SCAN_BYTES = 8192
#: how many damaged entries of an index are skipped before the segment is read from its start
_INDEX_TRIES = 8
#: the limits of the distance from an index entry to the batch that a search with it finds: in bytes, and as a
#: multiple of the average distance between two entries. A larger distance means that the index is damaged:
#: for example, an entry of zeros points to the segment's start
_FAR_BYTES = 1024 * 1024
_FAR_TIMES = 16
#: how many batches a read checks to find the last one that fits whole
_LARGE_BATCHES = 16
#: bytes by which a file is shortened in one turn of the event loop; takes a few milliseconds
_CUT_AT_ONCE = 4 * 1024 * 1024
#: an offset must fit the indexes relative to its segment's base
MAX_RELATIVE_OFFSET = 2**31 - 1


class TimestampedOffset(NamedTuple):
    timestamp: int
    offset: int


#: makes a `TimestampedOffset` of its fields, at half the cost of calling it
_timestamped = tuple.__new__


class Cut(NamedTuple):
    """The position at which to cut a segment off, and the state of the part that stays."""

    #: bytes that stay
    size: int
    #: end offset of the part that stays
    end: int
    offset_entries: int
    time_entries: int
    latest: TimestampedOffset
    first_timestamp: int
    #: checksum of the remaining entries of the transaction index; None if the index is damaged
    aborted: Checksum | None
    #: entries that replace those of a damaged transaction index
    aborted_anew: Sequence[AbortedTransaction] = ()


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's file, such as ``00000000000000000000.log``."""
    return f"{base_offset:020d}{suffix}"


@lru_cache(maxsize=64)
def _file_names(base_offset: int, suffix: str) -> tuple[str, ...]:
    """Return the names of a segment's four files. Segments with the same base offset share the strings."""
    return tuple(
        file_name(base_offset, kind + suffix) for kind in (".log", ".index", ".timeindex", ".txnindex")
    )


class LogSegment:
    """One segment of a log. The log owns it."""

    __slots__ = (
        "_build",
        "_latest",
        "_recent",
        "_since_indexed",
        "aborted",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "log",
        "modified_ms",
        "offsets",
        "roll_jitter_ms",
        "size",
        "surplus_end",
        "times",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        now_ms: int,
        size: int = 0,
        modified_ms: int = 0,
        offset_entries: int = 0,
        time_entries: int = 0,
        aborted_bytes: int = 0,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        """Create the object for a segment in the folder `directory`.

        Args:
            files: the open files of the broker.
            directory: path of the partition's folder.
            base_offset: offset of the segment's first record.
            now_ms: present time, in milliseconds since 1970.
            size: bytes in the `.log` file.
            modified_ms: time of the last change of the `.log` file, in milliseconds since 1970; 0 for
                `now_ms`.
            offset_entries: number of entries in the `.index` file.
            time_entries: number of entries in the `.timeindex` file.
            aborted_bytes: bytes in the `.txnindex` file.
            roll_jitter_ms: time by which the segment is sealed earlier than ``segment.ms`` says.
            suffix: the end of the files' names until they belong to the log, for example ``.cleaned``.
        """
        log, offsets, times, aborted = _file_names(base_offset, suffix)
        self.base_offset = base_offset
        self.log = LogFile(files, directory, log)
        self.offsets = OffsetIndex(LogFile(files, directory, offsets), offset_entries)
        self.times = TimeIndex(LogFile(files, directory, times), time_entries)
        self.aborted = TransactionIndex(LogFile(files, directory, aborted), aborted_bytes)
        self.size = size
        #: size of the file while it is longer than the segment (`cut_some` shortens it); else 0
        self.surplus_end = 0
        self.created_ms = now_ms
        self.modified_ms = modified_ms or now_ms
        self.roll_jitter_ms = roll_jitter_ms
        #: the first batch's largest timestamp, from which rolling by time counts; -1 if there is none. In a
        #: segment from an earlier run, `find_first_timestamp` sets it
        self.first_timestamp = NO_TIMESTAMP
        self._latest: TimestampedOffset | None = None if time_entries else TimestampedOffset(-1, base_offset)
        self._since_indexed = 0
        self._recent = _NONE_KNOWN
        #: the rebuild of the indexes, once a look-up has found that they do not fit the segment
        self._build: IndexBuild | None = None

    @property
    def latest(self) -> TimestampedOffset:
        """The largest timestamp in the segment, and the last offset of the first batch that has it."""
        if self._latest is None:
            last = self.times.last()
            assert last is not None
            self._latest = TimestampedOffset(last[0], self.base_offset + last[1])
        return self._latest

    @property
    def largest_timestamp(self) -> int:
        """The time from which the segment's age counts, in milliseconds since 1970.

        It is the segment's largest timestamp. Without timestamps, it is the last change of the segment's
        file.
        """
        timestamp = self.latest.timestamp
        return timestamp if timestamp >= 0 else self.modified_ms

    def restore_latest(self, latest: TimestampedOffset) -> None:
        """Set `latest` to a stored value, instead of the last entry of the time index."""
        self._latest = latest

    def append(
        self,
        chunks: Sequence[Buffer],
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        index_interval: int,
    ) -> None:
        """Write one batch at the end of the segment.

        If more than `index_interval` bytes were written since the last index entries, add new entries.

        Args:
            chunks: the bytes of the batch, in parts.
            size: size of the batch in bytes.
            base_offset: first offset of the batch.
            last_offset: last offset of the batch.
            max_timestamp: largest timestamp in the batch; -1 if there is none.
            index_interval: bytes between two index entries (``index.interval.bytes``).

        Raises:
            OSError: nothing was appended.
        """
        position = self.size
        if self.surplus_end:
            self.cut_surplus()
        log = self.log
        log.used_lately = True
        file = log.handle or log.open(create=not position)
        try:
            file.write_at(chunks, position)
            latest = self._latest
            recent = self._recent
            if latest is None or self._since_indexed > index_interval or not 0 < len(recent) < _RECENT:
                self.indexed(position, size, base_offset, last_offset, max_timestamp, index_interval)
            else:  # the same as `indexed`, without the call: no entry is due
                if max_timestamp > latest[0]:
                    self._latest = _timestamped(TimestampedOffset, (max_timestamp, last_offset))
                self._since_indexed += size
                recent[base_offset] = position
        except (
            BaseException
        ):  # the file may be closed now: `indexed` opens files when there is no handle left
            self._cut_to_size()
            raise
        self.size = position + size

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Write whole batches after the segment's end. They do not belong to the segment yet.

        The caller must then call `index_batch` for each batch, which raises no error after this call. After
        that, the caller must add the number of bytes to `size`.

        Raises:
            OSError: nothing was written; TornError if the file could not be restored.
        """
        self._load_index_ends()
        if self.surplus_end:
            self.cut_surplus()
        try:
            self.log.write_at(chunks, self.size)
        except OSError:
            if self.log.is_open:  # else nothing was written
                self._cut_to_size()
            raise

    def _load_index_ends(self) -> None:
        """Read the ends of the indexes, which `index_batch` needs and could not read after a write."""
        _ = self.latest, self.times.last_timestamp

    def indexed(
        self,
        position: int,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        index_interval: int,
    ) -> None:
        """Update the indexes for a batch at `position`, which is already in the file.

        If more than `index_interval` bytes were written since the last index entries, add new entries. The
        other arguments are as in `append`.

        Raises:
            OSError: an index could not be read; nothing has changed.
        """
        latest = self._latest
        if latest is None:
            latest = self.latest
        if max_timestamp > latest[0]:
            latest = _timestamped(TimestampedOffset, (max_timestamp, last_offset))
        if self._since_indexed > index_interval:
            self.times.append(latest.timestamp, latest.offset - self.base_offset)  # this alone may raise
            self.offsets.append(last_offset - self.base_offset, position)
            self._since_indexed = 0
        self._latest = latest
        self._since_indexed += size
        recent = self._recent
        if position == 0:
            self.first_timestamp = max_timestamp
            self._recent = _FIRST_KNOWN
            return
        if recent is _NONE_KNOWN or recent is _FIRST_KNOWN:
            recent = self._recent = {self.base_offset: 0} if recent is _FIRST_KNOWN else {}
        recent[base_offset] = position
        if len(recent) > _RECENT:
            for oldest in tuple(islice(recent, _RECENT // 2)):
                del recent[oldest]

    def index_batch(self, position: int, header: BatchHeader, index_interval: int) -> None:
        """Update the indexes for the batch with this header at `position` (`indexed`)."""
        # All at once: to look up a field of a named tuple takes longer than to unpack it.
        base_offset, length, _, _, _, _, last_delta, _, timestamp, _, _, _, record_count = header
        self.indexed(
            position,
            length + LOG_OVERHEAD,
            base_offset,
            base_offset + last_delta,
            timestamp if record_count else NO_TIMESTAMP,
            index_interval,
        )

    def was_just_written(self, offset: int) -> bool:
        """Whether one of the latest batches begins at `offset`, so that its bytes are in the page cache."""
        return offset in self._recent or (self._recent is _FIRST_KNOWN and offset == self.base_offset)

    def position_of(self, offset: int) -> int:
        """Return the position of the batch that contains `offset`.

        If no batch contains it, return the position of the next batch. If there is none, return `size`.

        Raises:
            ColdRead: the search would wait for the disk, inside `OpenFiles.without_waiting`.
            KafkaError: CORRUPT_MESSAGE, a batch in the searched part is damaged.
            OSError: the disk failed.
        """
        position = self._recent.get(offset)
        if position is not None:
            return position
        if offset == self.base_offset and self._recent is _FIRST_KNOWN:
            return 0
        block_at, block = self._indexed_block(offset)
        start = position = block_at
        expected = self.base_offset
        while position < self.size:
            if position + _SPAN.size > block_at + len(block):
                if position - start > _FAR_BYTES and self._is_far(position - start):
                    if self._report_damaged(self.offsets):
                        return self.position_of(offset)
                    start = position  # there is nothing better
                block_at = position
                block = self.log.read_at(min(_SCAN_BYTES, self.size - position), position)
                if len(block) < _SPAN.size:
                    raise self._cut_off(position)
            base_offset, length, magic, last_delta = _SPAN.unpack_from(block, position - block_at)
            # the CRC does not cover where a batch says that it lies: no reader would find out
            if (
                magic != MAGIC
                or base_offset < expected
                or not 0 <= last_delta <= MAX_RELATIVE_OFFSET - (base_offset - self.base_offset)
            ):
                raise self._cut_off(position)
            if base_offset + last_delta >= offset:
                return position
            if length < HEADER_SIZE - LOG_OVERHEAD:
                raise self._cut_off(position)
            expected = base_offset + last_delta + 1
            position += LOG_OVERHEAD + length
        return self.size

    def _is_far(self, scanned: int) -> bool:
        """Whether an index entry must be missing, by the bytes that a search has read.

        `scanned` is the number of bytes that the search has read after the last index entry.
        """
        return scanned > _FAR_TIMES * (self.size // (len(self.offsets) + 1))

    def _indexed_block(self, offset: int) -> tuple[int, bytes]:
        """Return the position in the file from which to search for `offset`, and the bytes from there on.

        Return at most `_SCAN_BYTES` bytes. The position comes from the last entry of the offset index that is
        not after `offset`. If no batch that matches the entry begins there, try a few earlier entries. If
        none of them matches, return position 0 and no bytes.
        """
        relative = offset - self.base_offset
        tries = _INDEX_TRIES
        while tries and (entry := self.offsets.floor(relative)) is not None:
            position = entry[1]
            block = self.log.read_at(min(_SCAN_BYTES, max(self.size - position, 0)), position)
            if len(block) >= _SPAN.size and self._begins_batch(entry, block):
                return position, block
            tries -= 1
            if self._report_damaged(self.offsets):
                relative, tries = offset - self.base_offset, _INDEX_TRIES
            else:
                relative = entry[0] - 1
        return 0, b""

    def start_for_time(self, timestamp: int) -> int:
        """Return an offset such that all earlier records in the segment are earlier than `timestamp`.

        That offset comes from the time index. An entry is used only if it matches the batch at its position.
        If it does not, the search tries the entry before it. Without a matching entry, the result is the base
        offset.

        Raises:
            ColdRead: inside `OpenFiles.without_waiting`, the index must be rebuilt, or the search would wait
                for the disk.
            KafkaError: CORRUPT_MESSAGE, a batch in the searched part is damaged.
            OSError: the disk failed.
        """
        target = timestamp - 1
        tries = _INDEX_TRIES
        while tries and (entry := self.times.floor(target)) is not None:
            if self._is_true(entry):
                return self.base_offset + entry[1]
            tries -= 1
            if self._report_damaged(self.times):
                target, tries = timestamp - 1, _INDEX_TRIES
            else:
                target = entry[0] - 1
        return self.base_offset

    def _is_true(self, entry: tuple[int, int]) -> bool:
        """Whether the batch that an entry of the time index names has the entry's timestamp."""
        timestamp, relative = entry
        position = self.position_of(self.base_offset + relative)
        if relative < 0 or position >= self.size:
            return False
        _, header = next(self.headers(position))
        # Kafka has had versions that wrote down a record's offset, not its batch's last
        is_there = header.base_offset <= self.base_offset + relative <= header.last_offset
        return is_there and header.latest_record_timestamp == timestamp

    def _report_damaged(self, index: OffsetIndex | TimeIndex) -> bool:
        """Handle damage that a search has found in an index.

        The first call logs the damage, and creates the task that rebuilds both indexes (`IndexBuild`). When
        the task has run, the next call puts the rebuilt indexes in place, and returns True: the search must
        start again. Any other call returns False: the search then continues with an earlier entry.

        Raises:
            DamagedIndex: the task has not run yet, and this call is inside `OpenFiles.without_waiting`. The
                error has the task.
        """
        build = self._build
        if build is None:
            logger.warning(
                "%s is damaged: entries that do not fit its segment are ignored; the next client that reads "
                "there has it built again",
                index.file.path,
            )
            entries = len(self.offsets), len(self.times)
            build = self._build = IndexBuild(self.log, self.base_offset, self.size, *entries)
        elif build.is_over:
            return False
        if build.built is not None:
            build.is_over = True
            self.offsets.replace(build.offset_entries, build.built[0])
            self.times.replace(build.time_entries, build.built[1])
            logger.warning("%s: its indexes were built again", self.log.path)
            return True
        if not self.log.may_wait:
            raise DamagedIndex(build)
        return False

    def has_true_indexes(self, *, are_complete: bool) -> bool:
        """Whether the last entries of both indexes match the segment.

        Args:
            are_complete: whether it is certain that no entry is missing at the end of the indexes. If not,
                also check that no batch after the last entry of the time index has a later timestamp.

        Raises:
            OSError: the disk failed.
        """
        last = self.times.last()
        offset = self.offsets.last()
        try:
            if offset is not None and self._first_offset_at(offset) is None:
                return False
            if last is not None and not self._is_true(last):
                return False
            if not are_complete:
                latest, relative = last or (NO_TIMESTAMP, 0)
                for _, header in self.headers(self.position_of(self.base_offset + relative)):
                    if header.latest_record_timestamp > latest:
                        return False
        except KafkaError:
            return False
        return True

    def _first_offset_at(self, entry: tuple[int, int]) -> int | None:
        """Return the base offset of the batch to which an offset index entry points.

        Return None if no batch with the entry's offset begins there: the entry is damaged.
        """
        data = self.log.read_at(_SPAN.size, entry[1]) if entry[1] < self.size else b""
        if len(data) < _SPAN.size or not self._begins_batch(entry, data):
            return None
        base_offset, *_ = _SPAN.unpack(data)
        assert isinstance(base_offset, int)
        return base_offset

    def _begins_batch(self, entry: tuple[int, int], data: bytes) -> bool:
        """Whether `data` can be the start of the batch to which the offset index `entry` points.

        Bytes inside a batch may look like the start of a batch. So this method also checks the magic and the
        last offset.
        """
        base_offset, length, magic, last_delta = _SPAN.unpack_from(data)
        return bool(
            magic == MAGIC
            and last_delta >= 0
            and 0 <= base_offset - self.base_offset <= entry[0] - last_delta
            and HEADER_SIZE - LOG_OVERHEAD <= length <= self.size - entry[1]
        )

    def read(self, position: int, max_bytes: int, end: int, min_one: bool) -> Chunk:
        """Return the batches from `position`, the start of a batch, to `end` at most.

        The result has at most `max_bytes`, and its last batch may be incomplete. If the first batch is larger
        than `max_bytes`, the result is that whole batch (with `min_one`) or empty.

        Raises:
            ColdRead: the read would wait for the disk, inside `OpenFiles.without_waiting`.
            KafkaError: CORRUPT_MESSAGE, the first batch is damaged.
            OSError: the disk failed.
        """
        there = end - position
        self.log.check_cached(min(there, max_bytes), position)
        size = there
        if there > max_bytes:
            size = self._worth_sending(position, max_bytes, there, min_one)
            if size > max_bytes:
                self.log.check_cached(size, position)
        return (
            self.log.read_now(size, position) if size < SLICE_BYTES else FileSlice(self.log, position, size)
        )

    def _worth_sending(self, position: int, max_bytes: int, there: int, min_one: bool) -> int:
        """Return how many bytes to read from `position` on, if more than `max_bytes` could be read.

        Clients drop an incomplete batch, so the result avoids one. This method looks at the first
        `_LARGE_BATCHES` batches:

        - If the first batch is larger than `max_bytes`, return its size, or 0 if `min_one` is false.
        - If a later batch goes beyond `max_bytes`, or is damaged, return the size of all batches before it.
        - If all of these batches fit, return `max_bytes`. The last batch may then be incomplete.

        Args:
            position: position of a batch in the file.
            max_bytes: largest number of bytes to read.
            there: number of bytes that could be read; it is larger than `max_bytes`.
            min_one: whether the first batch is read even if it is larger than `max_bytes`.

        Raises:
            KafkaError: CORRUPT_MESSAGE, the first batch is damaged.
        """
        size = 0
        for _ in range(_LARGE_BATCHES):
            length = LOG_OVERHEAD + int.from_bytes(self.log.read_now(4, position + size + 8))
            if not HEADER_SIZE <= length <= there - size:  # damaged: what is before it is whole
                if size:
                    return size
                raise self._cut_off(position)
            if size + length > max_bytes:
                return size or (length if min_one else 0)
            size += length
        return max_bytes

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch from `position` on, without its records.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a header is invalid, or does not belong at this position.
            ColdRead: the read would wait for the disk, inside `OpenFiles.without_waiting`.
            OSError: the disk failed.
        """
        expected = self.base_offset
        block_at = 0
        block = b""
        while position < self.size:
            if position + HEADER_SIZE > block_at + len(block):
                block_at = position
                block = self.log.read_at(min(_SCAN_BYTES, self.size - position), position)
                if len(block) < HEADER_SIZE:
                    raise self._cut_off(position)
            header = parse_header(block, position - block_at)
            if header.magic != MAGIC or not HEADER_SIZE <= header.size <= self.size - position:
                raise self._cut_off(position)
            if header.base_offset < expected or not 0 <= header.last_offset_delta <= MAX_RELATIVE_OFFSET:
                raise self._cut_off(position)
            expected = header.next_offset
            yield position, header
            position += header.size

    def batches(self, position: int, block_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the header and bytes of each batch from `position` on, after a check of its CRC.

        Each read of the file has at least `block_bytes`.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a batch is damaged or misplaced.
            OSError: the disk failed.
        """
        block = b""
        at = 0
        expected = self.base_offset
        while position < self.size:
            if at + HEADER_SIZE > len(block):
                block, at = self.log.read_at(block_bytes, position), 0
            header = parse_header(block, at)
            if header.size < HEADER_SIZE or position + header.size > self.size:
                raise self._cut_off(position)
            if not expected <= header.base_offset <= header.last_offset:
                raise self._cut_off(position)
            if at + header.size > len(block):
                block, at = self.log.read_at(max(block_bytes, header.size), position), 0
            check_crc(header, block, at)
            yield header, memoryview(block)[at : at + header.size]
            expected = header.next_offset
            at += header.size
            position += header.size

    def next_offset(self) -> int:
        """Return the offset after the segment's last batch.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a batch after the last index entry is damaged.
            OSError: the disk failed.
        """
        last = self.offsets.last()
        offset = self.base_offset
        for _, header in self.headers(last[1] if last else 0):
            offset = header.next_offset
        return offset

    def checked_end(self) -> int:
        """Check the batches from the last index entry on, and return the offset after the last batch.

        Raises:
            KafkaError: CORRUPT_MESSAGE, one of these batches is damaged, or incomplete bytes follow.
        """
        last = self.offsets.last()
        position = last[1] if last else 0
        end = self.base_offset
        limit = self.base_offset + MAX_RELATIVE_OFFSET
        while position < self.size:
            data = self.log.read_at(HEADER_SIZE, position)
            header = parse_header(data)
            if not HEADER_SIZE <= header.size <= self.size - position:
                raise self._cut_off(position)
            if not end <= header.base_offset <= header.last_offset <= limit:
                raise self._cut_off(position)
            check_crc(header, self.log.read_at(header.size, position))
            end = header.next_offset
            position += header.size
        return end

    def find_first_timestamp(self) -> None:
        """Read the first batch's header, and set `first_timestamp` to the batch's latest timestamp.

        For an empty segment, or a batch without timestamps, set it to -1.
        """
        self.first_timestamp = next(self.headers(0))[1].latest_record_timestamp if self.size else NO_TIMESTAMP

    def seal(self) -> None:
        """Add the last entry of the time index, and write all indexes to their files.

        The last entry has the segment's largest timestamp.
        """
        self.cut_surplus()
        if self.latest.timestamp >= 0:
            self.times.append(self.latest.timestamp, self.latest.offset - self.base_offset)
        self.offsets.store()
        self.times.store()
        self.aborted.store()

    def copy(self, files: OpenFiles) -> LogSegment:
        """Return a read-only copy of this object in its present state.

        The copy reads the same files on disk, through its own handles from `files`.
        """
        copy = LogSegment(
            files,
            self.log.path.rpartition("/")[0],
            self.base_offset,
            now_ms=self.created_ms,
            size=self.size,
            modified_ms=self.modified_ms,
        )
        copy.log = LogFile(files, self.log.path)
        copy.offsets = self.offsets.copy(LogFile(files, self.offsets.file.path))
        copy.times = self.times.copy(LogFile(files, self.times.file.path))
        copy.aborted = self.aborted.copy(LogFile(files, self.aborted.file.path))
        return copy

    def cut_off(self, offset: int) -> Cut:
        """Compute how to remove the batch that contains `offset`, and all later batches.

        Return the position of the cut, and the state of the remaining segment, for `truncate`. Call this
        method on a `copy` of the segment: it changes attributes of the copy, and no files. Damage after the
        cut is ignored.

        Raises:
            KafkaError: CORRUPT_MESSAGE, a batch before `offset` is damaged.
            OSError: the disk failed.
        """
        self.size, end = self._find_cut(offset)
        self.offsets.restrict(self.offsets.count_before(end - self.base_offset))
        self.times.restrict(self.times.count_before(end - self.base_offset))
        self._find_latest()
        self.find_first_timestamp()
        return Cut(
            self.size,
            end,
            len(self.offsets),
            len(self.times),
            self.latest,
            self.first_timestamp,
            self.aborted.checksum_before(end),
        )

    def _find_cut(self, offset: int) -> tuple[int, int]:
        """Return the position at which to cut the segment off, and the end offset of the remaining part.

        If a batch contains `offset`, return the position and the base offset of this batch. If no batch
        contains it, return the position of the next batch, and `offset`. If there is no next batch, the
        position is the segment's end.
        """
        end = self._indexed_block(offset)[0]
        expected = self.base_offset
        try:
            for position, header in self.headers(end):
                if header.last_offset >= offset:
                    return position, min(offset, header.base_offset)
                expected = header.next_offset
                end = position + header.size
        except KafkaError:
            if expected != offset:
                raise
            # the damaged part is removed
        return end, offset

    def truncate(self, cut: Cut) -> None:
        """Remove the batches after a position from the segment and its indexes.

        If more than `_CUT_AT_ONCE` bytes are after the position, they stay in the file, because their removal
        can take long. `cut_some`, `cut_surplus` or the next write removes them.

        Args:
            cut: the position, and the state of the part of the segment that stays.

        Raises:
            OSError: the disk failed.
        """
        self.offsets.keep(cut.offset_entries)
        self.times.keep(cut.time_entries)
        if cut.aborted is None:
            self.aborted.replace(cut.aborted_anew)
        else:
            self.aborted.truncate(cut.end, cut.aborted)
        self.surplus_end = max(self.size, self.surplus_end)
        self.size = cut.size
        if self.surplus_end - self.size <= _CUT_AT_ONCE:
            self.cut_surplus()
        self._build = None
        self._recent = _NONE_KNOWN
        self._since_indexed = 0
        self._latest = cut.latest
        self.first_timestamp = cut.first_timestamp

    def cut_some(self) -> bool:
        """Remove at most `_CUT_AT_ONCE` of the bytes that `truncate` has left at the end of the file.

        Return whether some of these bytes are still in the file.

        Raises:
            OSError: the disk failed, and the bytes are still in the file.
        """
        end = self.surplus_end - _CUT_AT_ONCE
        if end <= self.size:
            self.cut_surplus()
            return False
        self.log.truncate(end)
        self.surplus_end = end
        return True

    def cut_surplus(self) -> None:
        """Remove all bytes that `truncate` has left at the end of the file. Raises OSError."""
        if self.surplus_end:
            self.log.truncate(self.size)
            self.surplus_end = 0

    def remove(self) -> None:
        """Delete the segment's files."""
        for file in self.all_files():
            file.remove()

    def close(self) -> None:
        for file in self.all_files():
            file.close()

    def all_files(self) -> tuple[LogFile, LogFile, LogFile, LogFile]:
        return self.log, self.offsets.file, self.times.file, self.aborted.file

    def kept_files(self) -> tuple[LogFile, ...]:
        """Return the files of the segment that exist after it is sealed."""
        return self.all_files() if len(self.aborted) else self.all_files()[:-1]

    def offset_bound(self, position: int) -> int | None:
        """Return a bound that is above all offsets of the batches before `position`.

        It is the base offset of the batch of the first index entry at or after `position`. Return None if the
        index has no such entry, or if this entry is damaged.
        """
        entry = self.offsets.first_from_position(position)
        if entry is None:
            return None
        bound = self._first_offset_at(entry)  # the entry's own offset may be damaged
        if bound is None:
            self._report_damaged(self.offsets)
        return bound

    def clear_indexes(self) -> None:
        """Remove all entries of both sparse indexes, before `indexed` rebuilds them."""
        self.offsets.reset()
        self.times.reset()
        self._build = None
        self._latest = TimestampedOffset(-1, self.base_offset)
        self.first_timestamp = NO_TIMESTAMP
        self._since_indexed = 0
        self._recent = _NONE_KNOWN

    def _find_latest(self) -> None:
        """Set `latest` from the batches, because the time index may have lost the entry with this value."""
        position = 0
        best = TimestampedOffset(NO_TIMESTAMP, self.base_offset)
        entry, last = self.offsets.last(), self.times.last()
        is_sound = entry is not None and self._first_offset_at(entry) is not None
        if entry is not None and is_sound and (last is None or self._is_true(last)):
            position = entry[1]
            if last is not None:
                best = TimestampedOffset(last[0], self.base_offset + last[1])
        for _, header in self.headers(position):
            if header.latest_record_timestamp > best.timestamp:
                best = TimestampedOffset(header.max_timestamp, header.last_offset)
        self._latest = best

    def _cut_to_size(self) -> None:
        """Undo a failed write, so that its bytes are not read as records. Raises TornError if this fails."""
        try:
            self.log.truncate(self.size)
        except OSError as error:
            raise TornError(f"{self.log.path} cannot be cut off behind its last batch", error) from error

    def _cut_off(self, position: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{self.log.path} holds no whole batch at byte {position}"
        )
