"""What a leader checks of a batch before it takes it, and what the topic's settings make of it.

The records are not decoded, but for a compacted topic (each must have a key) and when the topic asks for
another compression.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.config import TopicConfig
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    parse_header,
    with_timestamp_type,
)
from barnabas.records.builder import batch_records, recompress
from barnabas.records.compression import Compression
from barnabas.storage.producers import Origin
from barnabas.types import NO_PRODUCER_ID, Buffer


class RecordError(NamedTuple):
    """What is wrong with one record of a batch (KIP-467)."""

    batch_index: int
    message: str


class InvalidRecords(KafkaError):
    """INVALID_RECORD, with the records that are to blame."""

    def __init__(self, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.record_errors = record_errors


class ValidBatch(NamedTuple):
    """A batch that may be appended; `log_append_time` is -1 where records keep the producer's time."""

    header: BatchHeader
    data: Buffer
    log_append_time: int


def validate_batch(records: Buffer, config: TopicConfig, origin: Origin, now_ms: int) -> ValidBatch:
    """The one batch in `records`, checked and changed as the topic asks.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
            INVALID_TIMESTAMP or UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = _check_frame(records)
    size = header.size
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    check_crc(header, records)
    _check_header(header, origin)
    if "compact" in config.cleanup_policy and not header.is_control:
        _check_keys(header, records)
    log_append_time = -1
    if config.message_timestamp_type == "LogAppendTime":
        log_append_time = now_ms
        records = with_timestamp_type(header, records, now_ms)
        header = parse_header(records)
    else:
        if header.is_log_append_time:  # the topic's type holds, not what the producer set
            records = with_timestamp_type(header, records, None)
            header = parse_header(records)
        if header.max_timestamp != NO_TIMESTAMP:
            _check_timestamps(header, config, now_ms)
    if config.compression_type != "producer" and not header.is_control:
        codec = Compression.named(config.compression_type)
        if codec != header.compression:
            records = recompress(records, codec)
            header = parse_header(records)
            if header.size > config.max_message_bytes:
                raise _too_large(header.size, config)
    if header.size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {header.size} bytes, a segment at most segment.bytes={config.segment_bytes}",
        )
    return ValidBatch(header, records, log_append_time)


def _check_frame(records: Buffer) -> BatchHeader:
    if not len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no batch to append")
    if len(records) > HEADER_SIZE and records[16] != MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"only batches of magic {MAGIC} are taken, this one has {records[16]}"
        )
    header = parse_header(records)
    if header.size > len(records) or header.size < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch says it has {header.size} bytes, {len(records)} came",
        )
    if header.size < len(records):
        raise KafkaError(ErrorCode.INVALID_RECORD, "one batch per partition may be appended, more came")
    return header


def _check_header(header: BatchHeader, origin: Origin) -> None:
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch says it has {header.record_count} records and spans "
            f"{header.last_offset_delta + 1} offsets",
        )
    if header.compression > Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no compression has the number {header.compression}"
        )
    if origin is not Origin.CLIENT:
        return
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"a batch to append has base offset 0, this one {header.base_offset}"
        )
    if header.producer_id == NO_PRODUCER_ID:
        if header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch has no producer id")
    elif header.base_sequence < 0 or header.producer_epoch < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a batch of producer {header.producer_id} has epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}",
        )


def _check_keys(header: BatchHeader, records: Buffer) -> None:
    errors = [
        RecordError(index, "a compacted topic takes no record without a key")
        for index, record in enumerate(batch_records(header, records))
        if record.key is None
    ]
    if errors:
        raise InvalidRecords("a compacted topic takes no record without a key", errors)


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    earliest = min(header.base_timestamp, header.max_timestamp)
    if header.max_timestamp > newest or earliest < oldest:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the records' timestamps {earliest} to {header.max_timestamp} are not within {oldest} and "
            f"{newest}, which message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
        )


def _too_large(size: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {size} bytes, max.message.bytes={config.max_message_bytes} allows fewer",
    )
