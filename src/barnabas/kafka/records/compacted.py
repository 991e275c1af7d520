"""Batches after compaction: with fewer records, or none.

A batch keeps its base offset and last offset delta, its producer, sequence and leader epoch. So the headers
show no gap in offsets and sequences (KIP-98). Kept records are copied unchanged. Only a new delete horizon
(KIP-534) changes their timestamp deltas.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.kafka.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
)
from barnabas.kafka.records.builder import assemble_batch
from barnabas.kafka.records.compression import Compression, compress
from barnabas.kafka.records.record import RecordSpan, shifted


def with_records(
    header: BatchHeader, payload: bytes, kept: Sequence[RecordSpan], delete_horizon_ms: int | None
) -> bytes:
    """Return the batch with only some of its records, compressed with the batch's codec.

    Args:
        payload: the batch's records, decompressed.
        kept: positions in `payload` of the records to keep, at least one.
        delete_horizon_ms: the delete horizon to set (KIP-534), in ms since 1970; None keeps the batch's own
            one, if any.
    """
    if not header.is_log_append_time:
        latest = header.base_timestamp + max(span.timestamp_delta for span in kept)
        header = header._replace(max_timestamp=latest)
    if delete_horizon_ms is None:
        records = b"".join([payload[span.start : span.end] for span in kept])
    else:
        shift = delete_horizon_ms - header.base_timestamp
        records = b"".join([shifted(payload, span, shift) for span in kept])
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=delete_horizon_ms
        )
    codec = Compression(header.compression)
    return assemble_batch(header._replace(record_count=len(kept)), compress(codec, records))


def without_records(header: BatchHeader) -> bytes:
    """Return the batch without its records.

    Compaction keeps such an empty batch if it has the last sequence of a producer, or the last offset of the
    log.
    """
    return assemble_batch(
        header._replace(
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )
