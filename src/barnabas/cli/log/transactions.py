"""Finds aborted transactions of a stopped broker's partition, in its batches and its `.txnindex` files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.base.types import Offset, ProducerId
from barnabas.broker.storage.producer_snapshot import decode_snapshot
from barnabas.broker.storage.producers import Producers
from barnabas.broker.storage.segment import file_name
from barnabas.broker.storage.transaction_index import (
    CHECKSUMS,
    ENTRY,
    NO_ENTRIES,
    AbortedTransaction,
    Checksum,
    decode_checksums,
    encode_entries,
)
from barnabas.cli.log.findings import Partition, Segment
from barnabas.kafka.records import BatchHeader
from barnabas.kafka.records.control import EndTransaction, decode_end_transaction
from barnabas.kafka.records.crc import crc32c

INDEX = ".txnindex"


class _Open(NamedTuple):
    """A transaction that has not ended. `epoch` and `last_sequence` are from its last batch so far."""

    first_offset: Offset
    epoch: int
    last_sequence: int


def index_problems(partition: Partition) -> Iterator[tuple[Path, str]]:
    """Yield each `.txnindex` that is missing or disagrees with its segment, and a text about the problem.

    The check stops at the first damaged segment, gap or unreadable marker. A log that does not begin at
    offset 0 needs a producer snapshot at its first offset. If this cannot be read, nothing is checked.
    """
    producers = _producers_at_start(partition)
    if producers is None:
        return
    end = partition.segments[0].base_offset if partition.segments else 0
    for segment in partition.segments:
        if segment.damaged or segment.base_offset != end:
            return
        end = segment.end
        try:
            aborted = list(_aborted_by_batches(segment, producers))
        except KafkaError:  # a marker that says nothing: a start finds it, too
            return
        file = segment.path.with_suffix(INDEX)
        content = file.read_bytes() if file.is_file() else b""
        if content != encode_entries(aborted):
            found = f"it has {len(content) // ENTRY.size}" if file.is_file() else "it is missing"
            yield (
                file,
                f"the segment aborts {len(aborted)} transactions, {found} or says other things of them",
            )


def aborted_by_index(segment: Segment) -> list[AbortedTransaction]:
    """Return the aborted transactions that the segment's `.txnindex` names; empty if it cannot be read.

    Entries with impossible offsets are left out. The last offset of a possible entry is above its first
    offset, and above the last offset of the entry before it. It is not below the segment's base offset.
    """
    try:
        content = segment.path.with_suffix(INDEX).read_bytes()
    except OSError:
        return []
    found: list[AbortedTransaction] = []
    for at in range(0, len(content) - ENTRY.size + 1, ENTRY.size):
        _, *fields = ENTRY.unpack_from(content, at)
        aborted = AbortedTransaction._make(fields)
        floor = found[-1].last_offset if found else segment.base_offset - 1
        if aborted.first_offset < aborted.last_offset > floor:
            found.append(aborted)
    return found


def is_index_proven(partition: Partition, segment: Segment) -> bool:
    """Whether the segment's `.txnindex`, or its absence, agrees with the checksum that the broker stored."""
    file = segment.path.with_suffix(INDEX)
    try:
        content = file.read_bytes() if file.exists() else b""
        checksums = decode_checksums((partition.path / CHECKSUMS).read_bytes())
    except FileNotFoundError:  # which is so where nothing was ever aborted
        return not any(partition.path.glob(f"*{INDEX}"))
    except (ValueError, OSError):
        return False
    return checksums.get(segment.base_offset, NO_ENTRIES) == Checksum(len(content), crc32c(content))


def maybe_aborted(
    partition: Partition, start: Offset, end: Offset, known: list[AbortedTransaction]
) -> list[AbortedTransaction]:
    """Return the transactions that may have ended in the lost offsets from `start` to `end` - 1.

    The caller must abort them, because nothing shows whether they were committed. If they stayed open, the
    producer's next marker could commit them.

    The result's `last_offset` is the lost offset at which the caller must write the abort marker. If there
    are more transactions than free lost offsets, the result has only the oldest ones.

    Args:
        known: the segment's aborted transactions, from the index. The result does not use their last offsets,
            and has no transaction of a producer whose known transaction ended in the lost offsets.
    """
    taken = {aborted.last_offset for aborted in known}
    free = (offset for offset in range(end - 1, start - 1, -1) if offset not in taken)
    ended = {aborted.producer_id for aborted in known if start <= aborted.last_offset < end}
    found = []
    for producer_id, transaction in _open_at(partition, start).items():
        if producer_id in ended or not _may_have_ended(partition, producer_id, transaction, start, end):
            continue
        marker = next(free, None)
        if marker is None:
            break
        found.append(AbortedTransaction(producer_id, transaction.first_offset, marker, marker + 1))
    return found


def _producers_at_start(partition: Partition) -> Producers | None:
    producers = Producers()
    first = partition.segments[0].base_offset if partition.segments else 0
    if first:
        try:
            content = (partition.path / file_name(first, ".snapshot")).read_bytes()
            producers.restore(decode_snapshot(content), first)
        except (OSError, ValueError):
            return None
    return producers


def _aborted_by_batches(segment: Segment, producers: Producers) -> Iterator[AbortedTransaction]:
    with segment.path.open("rb") as file:
        for position, header in segment.batches:
            if not header.is_transactional:
                continue
            if not header.is_control:
                producers.update(header, header.base_offset)
                continue
            file.seek(position)
            marker = decode_end_transaction(header, file.read(header.size))
            if marker is not None:
                aborted = producers.end_transaction(header, marker, header.base_offset)
                producers.committed(header.next_offset)
                if aborted is not None:
                    yield aborted


def _open_at(partition: Partition, offset: Offset) -> dict[ProducerId, _Open]:
    """Return the transactions that begin below `offset` and have no marker below it, by producer id.

    The oldest transaction comes first.
    """
    opened: dict[ProducerId, _Open] = {}
    for header in _transactional(partition):
        if header.base_offset >= offset:
            break
        if header.is_control:
            opened.pop(header.producer_id, None)
        else:
            first = opened[header.producer_id].first_offset if header.producer_id in opened else None
            opened[header.producer_id] = _Open(
                header.base_offset if first is None else first, header.producer_epoch, header.last_sequence
            )
    return opened


def _may_have_ended(
    partition: Partition, producer_id: ProducerId, transaction: _Open, start: Offset, end: Offset
) -> bool:
    """Whether the end marker of an open transaction may be among the lost offsets from `start` to `end` - 1.

    False in two cases:

    - The producer's first marker at or after `end` is an abort marker. It ends this transaction.
    - The sequence numbers show that the transaction's records filled all the lost offsets.
    """
    is_next = True
    for header in _transactional(partition):
        if header.base_offset < end or header.producer_id != producer_id:
            continue
        if header.is_control:
            marker = _marker(partition, header)
            return marker is None or marker.commit
        if is_next and header.producer_epoch == transaction.epoch:
            lost = (header.base_sequence - transaction.last_sequence - 1) % (1 << 31)
            if lost == end - start:
                return False
        is_next = False
    return True


def _transactional(partition: Partition) -> Iterator[BatchHeader]:
    batches = chain.from_iterable(segment.batches for segment in partition.segments)
    return (header for _, header in batches if header.is_transactional)


def _marker(partition: Partition, header: BatchHeader) -> EndTransaction | None:
    for segment in partition.segments:
        for position, found in segment.batches:
            if found is header:
                with segment.path.open("rb") as file:
                    file.seek(position)
                    try:
                        return decode_end_transaction(header, file.read(header.size))
                    except KafkaError:
                        return None
    return None
