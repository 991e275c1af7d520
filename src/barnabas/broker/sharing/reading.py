"""The batches in a chunk of the log, and whether a share group delivers their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.base.types import Buffer, Chunk, Offset
from barnabas.broker.sharing.in_flight import ReadBatch
from barnabas.broker.storage import AbortedTransaction
from barnabas.broker.storage.open_files import FileSlice
from barnabas.kafka.records.batch import HEADER_SIZE, BatchHeader, parse_header
from barnabas.kafka.records.control import decode_end_transaction


class LogBatches:
    """Iterates over the batches of a chunk. It reads only headers, and the markers of aborted transactions.

    The iterator skips an incomplete batch at the end of the chunk.

    Args:
        chunk: bytes read from the log, from the start of a batch on.
        aborted: the aborted transactions in the chunk; empty if the group also reads aborted records.
    """

    def __init__(self, chunk: Chunk, aborted: Sequence[AbortedTransaction] = ()) -> None:
        self._chunk = chunk if isinstance(chunk, FileSlice) else memoryview(bytes(chunk))
        self._upcoming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborting: set[int] = set()
        #: each batch so far: its first byte, the byte after its last one, and its last offset
        self._seen: list[tuple[int, int, Offset]] = []

    def __iter__(self) -> Iterator[ReadBatch]:
        """Yield each whole batch. Raises KafkaError CORRUPT_MESSAGE for an invalid batch header."""
        position = 0
        while position + HEADER_SIZE <= len(self._chunk):
            header = parse_header(self._read(position, HEADER_SIZE))
            end = position + max(header.size, HEADER_SIZE)
            if end > len(self._chunk):
                return
            self._seen.append((position, end, header.last_offset))
            yield ReadBatch(header.base_offset, header.last_offset, self._is_deliverable(header, position))
            position = end

    def part(self, first: Offset, last: Offset) -> Chunk:
        """Return the bytes of the batches that contain the offsets from `first` to `last`.

        The iterator must have yielded these batches.
        """
        begin = next(begin for begin, _, last_offset in self._seen if last_offset >= first)
        end = next(end for _, end, last_offset in self._seen if last_offset >= last)
        if isinstance(self._chunk, FileSlice):
            return self._chunk.part(begin, end - begin)
        return self._chunk[begin:end]

    def _is_deliverable(self, header: BatchHeader, position: int) -> bool:
        while self._upcoming and self._upcoming[-1].first_offset <= header.last_offset:
            self._aborting.add(self._upcoming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._aborting:
                marker = decode_end_transaction(header, self._read(position, header.size))
                if marker is not None and not marker.commit:
                    self._aborting.remove(header.producer_id)
            return False
        if header.is_transactional and header.producer_id in self._aborting:
            return False
        return header.record_count > 0

    def _read(self, start: int, size: int) -> Buffer:
        if isinstance(self._chunk, FileSlice):
            return self._chunk.read(start, size)
        return self._chunk[start : start + size]
