"""One cleaning of a compacted log (KIP-58, KIP-280, KIP-354, KIP-534): the part that runs in a thread.

First it stores the last offset of each key in the dirty tail (the part after the last cleaning), as far as
memory allows. Then it copies the log up to the last stored offset, segment by segment. It leaves out records
that a later record with the same key replaces. Several small segments become one. Offsets never change.

A cleaning reads only sealed, durable and stable records, through its own file handles. No other code uses the
new files until the log's owner replaces the old ones (`LogFiles.begin_swap`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from barnabas.base.environment.blocking import Signal
from barnabas.base.errors import BarnabasError
from barnabas.base.types import NO_PRODUCER_ID, UNKNOWN_OFFSET, Buffer, Offset
from barnabas.broker.storage.cleaned_transactions import CleanedTransactions
from barnabas.broker.storage.dirtiness import Dirtiness
from barnabas.broker.storage.log import PartitionLog
from barnabas.broker.storage.offset_map import OffsetMap
from barnabas.broker.storage.open_files import LogFile, OpenFiles
from barnabas.broker.storage.producers import Producer
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET, LogSegment, file_name
from barnabas.broker.storage.swap import CLEANED
from barnabas.broker.storage.throttle import Throttle
from barnabas.broker.storage.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.kafka.records.batch import HEADER_SIZE, BatchHeader, parse_header
from barnabas.kafka.records.builder import batch_payload
from barnabas.kafka.records.compacted import with_records, without_records
from barnabas.kafka.records.record import RecordSpan, record_spans

#: bytes, a few tenths of a millisecond's work, after which the thread pauses for the event loop
_TURN_BYTES = 8 * 1024
#: long enough for a waiting thread to take the GIL
_PAUSE_SECONDS = 0.0001


class CleaningCancelled(BarnabasError):
    """The cleaning was cancelled, or the log changed while it ran."""


class Cleaning:
    """Cleans a log once: `index` finds the last offset of each key, `clean` writes the records that stay.

    Create it on the event loop, which owns the log. `index` and `clean` run in a thread, one at a time.

    Args:
        log: log to clean.
        dirtiness: the part of the log to clean.
        now_ms: present time, in milliseconds.
        map_bytes: memory for the last offsets of the keys, in bytes.
        block_bytes: about how many bytes are read or written at once.
        throttle: limits the rate of reads and writes.
        cancelled: signal that `cancel` sets, to cancel the cleaning.

    Raises:
        KafkaError: `index` and `clean`: CORRUPT_MESSAGE, the log is damaged.
        CleaningCancelled: `index` and `clean`, after `cancel`.
        OSError: the disk failed.
    """

    def __init__(
        self,
        log: PartitionLog,
        dirtiness: Dirtiness,
        *,
        now_ms: int,
        map_bytes: int,
        block_bytes: int,
        throttle: Throttle,
        cancelled: Signal,
    ) -> None:
        self.log = log
        #: `LogFiles.truncation_epoch` when the cleaning began: it changes if the log is truncated
        self.truncation_epoch = log.files.truncation_epoch
        #: up to where the log is clean already
        self.start = dirtiness.first_dirty
        #: up to where the log will be clean: as far as the map went
        self.end = dirtiness.first_dirty
        self.bytes_read = 0
        self.bytes_written = 0
        self._dirtiness = dirtiness
        self._now_ms = now_ms
        self._block_bytes = max(block_bytes, HEADER_SIZE)
        self._throttle = throttle
        self._config = log.config
        self._path = log.files.path
        self._files = OpenFiles(log.files.env.fs, capacity=8)
        self._map = OffsetMap(map_bytes)
        self._cancelled = cancelled
        segments = log.files.segments
        self._sources = [segment for segment in segments if segment.base_offset < dirtiness.end]
        #: bytes of the transaction index of every segment: a marker may lie beyond what is cleaned
        self._aborted_bytes = {
            segment.base_offset: segment.aborted.stored_bytes for segment in segments if len(segment.aborted)
        }
        #: those that could not be stored yet
        self._unstored = [aborted for segment in segments for aborted in segment.aborted.waiting]
        #: what is known of each producer: its last data offset, else the epoch of its last marker
        self._producers = {producer.producer_id: _last_batch(producer) for producer in log.producers}
        self._transactions = CleanedTransactions([])

    def cancel(self) -> None:
        """Cancel the cleaning: `index` and `clean` soon raise CleaningCancelled. Any thread can call this."""
        self._cancelled.set()

    def index(self) -> None:
        """Add the keys of the dirty tail, with their last offsets, to the map until the map is full.

        Always add the keys of at least one batch. Afterwards `end` is the offset after the last batch added.
        """
        aborted = self._aborted()
        self._transactions = CleanedTransactions(aborted)
        transactions = CleanedTransactions(aborted)
        first_dirty = self._dirtiness.first_dirty
        for number, source in enumerate(self._sources):
            if self._source_end(number) <= first_dirty:
                continue
            with self._opened(source) as segment:
                position = segment.position_of(max(first_dirty, segment.base_offset))
                for header, batch in self._batches(segment, position):
                    is_first = self.end == first_dirty
                    if not self._note(header, batch, transactions, force=is_first):
                        return
                    self.end = header.next_offset
            self.end = self._source_end(number)

    def groups(self) -> list[list[LogSegment]]:
        """Return groups of the segments to clean, in order.

        Each group becomes one segment within the size limit.
        """
        config = self._config
        groups: list[list[LogSegment]] = []
        log_bytes = offset_bytes = time_bytes = 0
        for number, segment in enumerate(self._sources):
            if segment.base_offset >= self.end:
                break
            fits = (
                groups
                and log_bytes + segment.size <= config.segment_bytes
                and offset_bytes + segment.offsets.size <= config.segment_index_bytes
                and time_bytes + segment.times.size <= config.segment_index_bytes
                and self._source_end(number) - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
            if not fits:
                groups.append([])
                log_bytes = offset_bytes = time_bytes = 0
            groups[-1].append(segment)
            log_bytes += segment.size
            offset_bytes += segment.offsets.size
            time_bytes += segment.times.size
        return groups

    def clean(self, group: Sequence[LogSegment]) -> LogSegment:
        """Write the records of old segments that stay into one new segment. Fsync and return the new segment.

        The names of the new segment's files end in `.cleaned`. This call waits for the disk. Call it once for
        each of the `groups`, in their order.

        Args:
            group: adjacent sealed segments, which the new segment will replace.
        """
        cleaned = LogSegment(
            self._files,
            self._path,
            group[0].base_offset,
            now_ms=self._now_ms,
            modified_ms=group[-1].modified_ms,
            suffix=CLEANED,
        )
        try:
            for file in cleaned.all_files():
                file.remove()  # what an earlier attempt has left
            cleaned.log.truncate(0)
            for source in group:
                with self._opened(source) as segment:
                    self._clean_into(cleaned, segment)
            cleaned.seal()
            for file in cleaned.kept_files():
                file.sync()
            self._files.fs.sync_directory(self._path)
        except BaseException:
            self.discard(cleaned)
            raise
        finally:
            cleaned.close()
        return cleaned

    def discard(self, cleaned: LogSegment) -> None:
        """Remove the files of an unused cleaned segment. If this fails, the next start removes them."""
        with suppress(OSError):
            for file in cleaned.all_files():
                file.remove()

    def _clean_into(self, cleaned: LogSegment, segment: LogSegment) -> None:
        pending: list[tuple[BatchHeader, Buffer]] = []
        size = 0
        for header, batch in self._batches(segment, 0):
            is_useless, aborted = self._judged(header, batch)
            kept = self._kept(header, batch, is_useless)
            if aborted is not None:
                cleaned.aborted.append(aborted)
            if kept is None:
                continue
            pending.append((header if kept is batch else parse_header(kept), kept))
            size += len(kept)
            if size >= self._block_bytes:
                self._write(cleaned, pending, size)
                pending = []
                size = 0
        self._write(cleaned, pending, size)

    def _write(self, cleaned: LogSegment, batches: list[tuple[BatchHeader, Buffer]], size: int) -> None:
        cleaned.write([batch for _, batch in batches])
        position = cleaned.size
        for header, _ in batches:
            cleaned.index_batch(position, header, self._config.index_interval_bytes)
            position += header.size
        cleaned.size += size
        self.bytes_written += size
        self._pace(size)

    def _judged(self, header: BatchHeader, batch: Buffer) -> tuple[bool, AbortedTransaction | None]:
        """Return whether the batch can be dropped because of its transaction, and an aborted transaction.

        - A control batch: return whether the log no longer needs the marker. If the marker aborts a
          transaction of which batches are left, also return this transaction, for the new segment's
          transaction index. If not, return None.
        - Any other batch: return whether its transaction was aborted, and None.
        """
        if header.is_control:
            return self._transactions.end(header, batch)
        return self._transactions.is_aborted(header), None

    def _kept(self, header: BatchHeader, batch: Buffer, is_useless: bool) -> Buffer | None:
        """Return the batch as it stays in the log; None if the cleaning drops it.

        `is_useless` says whether the batch can be dropped because of its transaction (`_judged`).
        """
        if header.last_offset >= self.end:
            return batch  # the map has no keys of this part of the log
        horizon = header.delete_horizon_ms
        has_expired = horizon is not None and horizon <= self._now_ms
        if header.is_control:
            if is_useless and has_expired:
                return self._kept_empty(header, batch)
            if not header.record_count:
                return self._kept_empty(header, batch)
            if not is_useless or horizon is not None:
                return batch
        elif is_useless:
            return self._kept_empty(header, batch)
        payload = batch_payload(header, batch)
        spans = record_spans(payload, header.record_count)
        kept = spans if header.is_control else self._latest(header, spans, has_expired)
        if not kept:
            return self._kept_empty(header, batch)
        needs_horizon = horizon is None and (header.is_control or not all(span.has_value for span in kept))
        if needs_horizon:
            return with_records(header, payload, kept, self._now_ms + self._config.delete_retention_ms)
        return batch if len(kept) == len(spans) else with_records(header, payload, kept, None)

    def _latest(
        self, header: BatchHeader, spans: Sequence[RecordSpan], has_expired: bool
    ) -> Sequence[RecordSpan]:
        """Return the records that no later record replaces, without expired tombstones.

        With `has_expired`, the delete horizon of the batch has passed. Records without a key are left out.
        """
        is_latest = self._map.is_latest
        base = header.base_offset
        return [
            span
            for span in spans
            if span.key is not None
            and is_latest(span.key, base + span.offset_delta)
            and (span.has_value or not has_expired)
        ]

    def _kept_empty(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Return the batch without its records if the log still needs an empty batch; if not, return None.

        The log needs the empty batch if `batch` is the last batch of its producer, or of the cleaned part.
        """
        last_offset, epoch = self._producers.get(header.producer_id, _NOTHING)
        is_last_of_producer = header.producer_id != NO_PRODUCER_ID and (
            header.last_offset == last_offset
            if last_offset != UNKNOWN_OFFSET
            else header.is_control and header.producer_epoch == epoch
        )
        if not is_last_of_producer and header.next_offset != self._dirtiness.end:
            return None
        return without_records(header) if header.record_count else batch

    def _note(
        self, header: BatchHeader, batch: Buffer, transactions: CleanedTransactions, *, force: bool
    ) -> bool:
        """Add the keys of a batch to the map. Return False if they do not fit.

        Control batches and batches of aborted transactions add no keys. With `force`, the map takes the keys
        even if it is full.
        """
        if header.is_control:
            transactions.end(header, batch)
            return True
        if transactions.is_aborted(header):
            return True
        put = self._map.put
        base = header.base_offset
        spans = record_spans(batch_payload(header, batch), header.record_count)
        return all(
            put(span.key, base + span.offset_delta, force=force) for span in spans if span.key is not None
        )

    def _batches(self, segment: LogSegment, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the header and bytes of each batch of a segment, not faster than the throttle allows."""
        size = 0
        for header, batch in segment.batches(position, self._block_bytes):
            yield header, batch
            size += header.size
            if size >= _TURN_BYTES:
                self._pace(size)
                self.bytes_read += size
                size = 0
        self._pace(size)
        self.bytes_read += size

    def _pace(self, size: int) -> None:
        if self._cancelled.wait(max(self._throttle.delay(size), _PAUSE_SECONDS)):
            raise CleaningCancelled(f"the cleaning of {self.log.topic_partition} was cancelled")

    @contextmanager
    def _opened(self, source: LogSegment) -> Iterator[LogSegment]:
        """Open a segment through separate file handles: the log's own handles belong to the event loop."""
        segment = LogSegment(
            self._files,
            self._path,
            source.base_offset,
            now_ms=self._now_ms,
            size=source.size,
            offset_entries=len(source.offsets),
        )
        try:
            yield segment
        finally:
            segment.close()

    def _aborted(self) -> list[AbortedTransaction]:
        """Return every aborted transaction that began in the cleaned segments."""
        found = []
        for base_offset, size in self._aborted_bytes.items():
            file = LogFile(self._files, f"{self._path}/{file_name(base_offset, '.txnindex')}")
            found += [
                aborted
                for aborted in TransactionIndex(file, size).from_offset(0)
                if aborted.first_offset < self._dirtiness.end
            ]
            file.close()
        return found + [aborted for aborted in self._unstored if aborted.first_offset < self._dirtiness.end]

    def _source_end(self, number: int) -> Offset:
        """Return the end offset of the segment at index `number` in the list of segments to clean."""
        following = number + 1
        return self._sources[following].base_offset if following < len(self._sources) else self._dirtiness.end


#: a producer that the log does not remember
_NOTHING = (UNKNOWN_OFFSET, -1)


def _last_batch(producer: Producer) -> tuple[Offset, int]:
    return producer.last_offset, producer.epoch
