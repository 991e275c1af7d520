"""Restores a log's producers from its latest snapshot and the batches appended since."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

from barnabas.base.environment.filesystem import read_file
from barnabas.base.types import NO_PRODUCER_ID, Buffer, Offset
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.producer_snapshot import decode_snapshot
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.segments import Segments
from barnabas.broker.storage.transaction_index import AbortedTransaction
from barnabas.kafka.records.batch import CONTROL_FLAG, BatchHeader
from barnabas.kafka.records.control import decode_end_transaction

logger = logging.getLogger(__name__)


class LogFiles(Protocol):
    """The part of `barnabas.broker.storage.log_files.LogFiles` that this module uses."""

    @property
    def env(self) -> LogEnvironment: ...

    @property
    def segments(self) -> Segments: ...

    @property
    def snapshots(self) -> Sequence[Offset]: ...

    def snapshot_path(self, offset: Offset) -> str: ...

    def drop_snapshot(self, offset: Offset) -> None: ...


def note_producer(
    producers: Producers, header: BatchHeader, data: Buffer, base_offset: Offset
) -> AbortedTransaction | None:
    """Update the producers' state with an idempotent producer's batch.

    Args:
        producers: the producers' state.
        header: header of the batch.
        data: the whole batch, if it is a control batch; any other batch is not read.
        base_offset: offset of the batch in the log.

    Returns:
        The transaction that the batch aborts, for the segment's transaction index; None for other batches.
    """
    if not header.attributes & CONTROL_FLAG:
        producers.update(header, base_offset)
        return None
    marker = decode_end_transaction(header, data)
    return None if marker is None else producers.end_transaction(header, marker, base_offset)


def load_producers(files: LogFiles, end_offset: Offset) -> Producers:
    """Return the producers at `end_offset`, from the latest undamaged snapshot and the batches after it.

    A damaged snapshot is removed, and the previous one is used.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, a batch before `end_offset` is damaged.
    """
    producers = from_snapshot(files, end_offset)
    replay(files, producers, end_offset)
    return producers


def from_snapshot(files: LogFiles, end_offset: Offset) -> Producers:
    """Return the producers of the latest undamaged snapshot whose offset is at most `end_offset`.

    Remove the damaged snapshots after it. Without a snapshot, the result has no producers.

    Raises:
        OSError: the disk failed.
    """
    producers = Producers()
    for offset in sorted(files.snapshots, reverse=True):
        if offset > end_offset:
            continue
        path = files.snapshot_path(offset)
        try:
            producers.restore(decode_snapshot(read_file(files.env.fs, path)), offset)
        except (ValueError, FileNotFoundError) as error:
            logger.warning("%s is dropped: %s", path, error)
            files.drop_snapshot(offset)
        else:
            return producers
    return producers


def replay(files: LogFiles, producers: Producers, end_offset: Offset) -> None:
    """Update `producers` with the batches from `producers.end_offset` up to, but without, `end_offset`.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, one of these batches is damaged.
    """
    start = producers.end_offset
    if start < end_offset:
        for segment in files.segments.from_offset(start):
            if segment.base_offset >= end_offset:
                break
            _replay_segment(segment, producers, start, end_offset)
    producers.end_offset = end_offset


def find_aborted(files: LogFiles, segment: LogSegment) -> list[AbortedTransaction]:
    """Return a segment's aborted transactions, from its batches and the transactions open at its start.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, a batch up to the segment's end is damaged.
    """
    producers = load_producers(files, segment.base_offset)
    return list(_noted(segment, producers, segment.base_offset, segment.next_offset()))


def _replay_segment(segment: LogSegment, producers: Producers, start: Offset, end_offset: Offset) -> None:
    for _ in _noted(segment, producers, start, end_offset):
        pass  # the segment's transaction index has it


def _noted(
    segment: LogSegment, producers: Producers, start: Offset, end_offset: Offset
) -> Iterator[AbortedTransaction]:
    """Apply a segment's batches from `start` up to, but without, `end_offset` to the producers.

    Yield the transactions that the markers among them abort.
    """
    for position, header in segment.headers(segment.position_of(start)):
        if header.base_offset >= end_offset:
            return
        if header.producer_id != NO_PRODUCER_ID and header.base_offset >= start:
            data = segment.log.read_at(header.size, position) if header.is_control else b""
            aborted = note_producer(producers, header, data, header.base_offset)
            if aborted is not None:
                yield aborted
