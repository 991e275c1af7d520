"""Checks the transaction indexes of segments whose batches a broker's start does not read.

If an index has no valid checksum, the start compares it with the batches, and rebuilds it if it differs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from barnabas.base.environment.filesystem import Entry
from barnabas.base.types import Offset
from barnabas.broker.storage.damage import keep_damaged, read_small_file
from barnabas.broker.storage.log_files import LogFiles
from barnabas.broker.storage.producer_recovery import find_aborted
from barnabas.broker.storage.segment import LogSegment
from barnabas.broker.storage.transaction_index import (
    CHECKSUMS,
    NO_ENTRIES,
    Checksum,
    decode_checksums,
    encode_entries,
)

logger = logging.getLogger(__name__)


def check_transaction_indexes(
    files: LogFiles, entries: Mapping[str, Entry], segments: Sequence[LogSegment]
) -> None:
    """Check the transaction indexes of `segments`, and rebuild wrong ones. `entries` are the folder's files.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, an index has no valid checksum, and its segment is damaged.
    """
    found = [(segment, entries.get(_name(segment))) for segment in segments]
    checksums = _read_checksums(files, entries, is_needed=any(entry is not None for _, entry in found))
    for segment, entry in found:
        if not _is_proven(segment, entry, checksums):
            _compare(files, segment, entry)


def _name(segment: LogSegment) -> str:
    return segment.aborted.file.path.rpartition("/")[2]


def _read_checksums(
    files: LogFiles, entries: Mapping[str, Entry], *, is_needed: bool
) -> dict[Offset, Checksum] | None:
    """Return the checksums of the transaction indexes, by base offset of the segment.

    Return None if the file of the checksums is missing or damaged. If it is missing and `is_needed` is false,
    return no checksums instead: `is_needed` says whether a transaction index exists.
    """
    path = f"{files.path}/{CHECKSUMS}"
    if CHECKSUMS not in entries:
        if not is_needed:
            return {}
        reason = "is missing"
    else:
        files.has_checksums = True
        try:
            return decode_checksums(read_small_file(files.env.fs, path))
        except ValueError as error:
            reason = str(error)
            keep_damaged(files.env.fs, path)
    logger.warning("%s: %s: comparing the indexes of aborted transactions with their segments", path, reason)
    files.are_checksums_due = True
    return None


def _is_proven(segment: LogSegment, entry: Entry | None, checksums: Mapping[Offset, Checksum] | None) -> bool:
    if checksums is None:
        return False
    expected = checksums.get(segment.base_offset, NO_ENTRIES)
    if entry is None:
        return expected == NO_ENTRIES
    return not entry.is_directory and entry.size == expected.size and segment.aborted.checksum() == expected


def _compare(files: LogFiles, segment: LogSegment, entry: Entry | None) -> None:
    """Compare a segment's transaction index with its batches, and rewrite it if it differs.

    `entry` is the index file's entry in the log's folder; None if the file is missing. A folder with the name
    of the index file is renamed.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a batch of the segment is damaged.
        OSError: the disk failed.
    """
    index = segment.aborted
    aborted = find_aborted(files, segment)
    files.are_checksums_due = True
    if entry is not None and entry.is_directory:
        keep_damaged(files.env.fs, index.file.path)
    elif encode_entries(aborted) == index.content() and (entry.size if entry else 0) == index.stored_bytes:
        return
    logger.warning(
        "%s %s: it is rebuilt from its segment, with %d aborted transactions",
        index.file.path,
        "is missing" if entry is None else "is damaged",
        len(aborted),
    )
    index.reset()
    for transaction in aborted:
        index.append(transaction)
    index.store()
    files.note_indexes(segment)
