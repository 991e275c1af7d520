"""Checks a batch before a leader appends it, and changes it as the topic's settings demand.

The records are decoded in three cases only:

- the topic is compacted: each record must have a key;
- the topic asks for another compression;
- an error must name the records with wrong timestamps.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_ID, Buffer
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.producers import Origin
from barnabas.kafka.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_of,
    parse_header,
    with_timestamp_type,
    wrong_crc,
)
from barnabas.kafka.records.builder import batch_payload, recompressed
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.records.record import decode_records, records_without_key

#: most of a batch that is decoded at once, on the event loop: more takes milliseconds
AT_ONCE_RECORDS = 500
AT_ONCE_BYTES = 64 * 1024
#: levels with which the event loop compresses. None takes longer than gzip's default: 7 ms for 64 KiB
_FAST_LEVELS = {
    Compression.GZIP: range(-1, 7),
    Compression.LZ4: (*range(1, 7), 9),
    Compression.ZSTD: range(-131_072, 11),
}
#: most of a batch that is decoded at all; far above any honest batch
MAX_RECORDS = 500_000
MAX_BYTES = 24 * 1024 * 1024
#: most decoded bytes, as a multiple of ``max.message.bytes``, if that is more
MAX_TIMES = 10
#: how many records of a batch an error names
MAX_RECORD_ERRORS = 100


class LongValidation(Exception):
    """Raised if the validation of a batch takes too long for the event loop.

    Nothing has changed. Call `validate_batch` in a thread, with `at_once` False.
    """


class RecordError(NamedTuple):
    """An error of one record of a batch (KIP-467)."""

    batch_index: int
    message: str


class InvalidRecords(KafkaError):
    """INVALID_RECORD or INVALID_TIMESTAMP, with the records that caused it."""

    def __init__(
        self, message: str, record_errors: list[RecordError], code: ErrorCode = ErrorCode.INVALID_RECORD
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


#: a batch's header, the batch, and its log append time, -1 where records keep the producer's time
ValidBatch = tuple[BatchHeader, Buffer, int]


def validate_batch(
    records: Buffer, config: TopicConfig, origin: Origin, now_ms: int, *, at_once: bool = True
) -> ValidBatch:
    """Check the one batch in `records`, and change it as the topic's settings demand.

    Return the header, the bytes of the batch, and the log append time in ms; -1 if the records keep the
    producer's timestamps. `now_ms` is the present time in ms. Batches of a client (`origin`) are checked
    completely. In other batches, the base offset, the control flag, the fields of the producer and the keys
    of the records are not checked.

    With `at_once`, this call takes at most some milliseconds for a client's batch. With `at_once` False, it
    can take long: call this function in a thread. The function uses only its arguments.

    Raises:
        LongValidation: with `at_once`, the validation would take longer. Nothing has changed.
        KafkaError: CORRUPT_MESSAGE, the CRC or the length is wrong; INVALID_RECORD, `records` is not one
            valid batch; MESSAGE_TOO_LARGE, it exceeds ``max.message.bytes``; RECORD_LIST_TOO_LARGE, it
            exceeds ``segment.bytes``; INVALID_TIMESTAMP, a timestamp is not allowed;
            UNSUPPORTED_COMPRESSION_TYPE, its compression is not known.
    """
    size = len(records)
    if size < HEADER_SIZE or records[MAGIC_AT] != MAGIC:
        raise _not_a_batch(records)
    header = parse_header(records)
    if header.length + LOG_OVERHEAD != size:
        raise _not_one_batch(header, size)
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    crc = crc_of(records)
    if crc != header.crc:
        raise wrong_crc(header, crc)
    _check_header(header, origin)
    attributes = header.attributes
    is_control = attributes & CONTROL_FLAG
    if config.is_compacted and not is_control and origin is Origin.CLIENT:
        _check_keys(header, records, config, at_once)
    log_append_time = -1
    if config.message_timestamp_type == "LogAppendTime":
        log_append_time = now_ms
        records = with_timestamp_type(header, records, now_ms)
        header = parse_header(records)
    else:
        if attributes & LOG_APPEND_TIME_FLAG:  # the topic's type holds, not what the producer set
            records = with_timestamp_type(header, records, None)
            header = parse_header(records)
        _check_timestamps(header, records, config, now_ms, at_once and origin is Origin.CLIENT)
    if config.compression_type != "producer" and not is_control:
        codec = Compression.named(config.compression_type)
        if codec != header.compression:
            level = _level(config, codec)
            if at_once and level is not None and level not in _FAST_LEVELS[codec]:
                if origin is Origin.CLIENT:
                    raise LongValidation
                level = None  # coordinators append on the event loop only
            payload = _payload(header, records, config, at_once and origin is Origin.CLIENT)
            records = recompressed(header, payload, codec, level)
            header = parse_header(records)
            size = len(records)
            if size > config.max_message_bytes:
                raise _too_large(size, config)
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size} bytes, a segment at most segment.bytes={config.segment_bytes}",
        )
    return header, records, log_append_time


def _level(config: TopicConfig, codec: Compression) -> int | None:
    """Return the level with which the broker compresses for a topic; None if the codec has no levels."""
    return {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }.get(codec)


def _check_header(header: BatchHeader, origin: Origin) -> None:
    # All at once: to look up a field of a named tuple takes longer than to unpack it.
    base_offset, _, _, _, _, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
    if count <= 0 or last_delta + 1 != count:
        raise _invalid(f"the batch says it has {count} records and spans {last_delta + 1} offsets")
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no compression has the number {header.compression}"
        )
    if origin is not Origin.CLIENT:
        return
    if attributes & CONTROL_FLAG:
        raise _invalid("clients may not write control records")
    if base_offset != 0:
        raise _invalid(f"a batch to append has base offset 0, this one {base_offset}")
    if producer_id == NO_PRODUCER_ID:
        if attributes & TRANSACTIONAL_FLAG:
            raise _invalid("a transactional batch has no producer id")
    elif sequence < 0 or epoch < 0:
        raise _invalid(f"a batch of producer {producer_id} has epoch {epoch} and sequence {sequence}")


def _check_keys(header: BatchHeader, records: Buffer, config: TopicConfig, at_once: bool) -> None:
    payload = _payload(header, records, config, at_once)
    errors = [
        RecordError(index, "a compacted topic takes no record without a key")
        for index in records_without_key(payload, header.record_count, MAX_RECORD_ERRORS)
    ]
    if errors:
        raise InvalidRecords("a compacted topic takes no record without a key", errors)


def _check_timestamps(
    header: BatchHeader, records: Buffer, config: TopicConfig, now_ms: int, at_once: bool
) -> None:
    latest = header.max_timestamp
    earliest = header.base_timestamp
    if latest == NO_TIMESTAMP:
        return
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    if latest > newest or earliest < oldest:
        payload = _payload(header, records, config, at_once)
        timestamps = (
            (index, record.timestamp)
            for index, record in enumerate(decode_records(payload, header.record_count, 0, earliest))
        )
        refused = ((index, time) for index, time in timestamps if not oldest <= time <= newest)
        raise InvalidRecords(
            f"the records' timestamps {earliest} to {latest} are not within {oldest} and {newest}, which "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
            [
                # a client with one rejected record shows this message instead of that of the batch
                RecordError(index, f"the record's timestamp {time} is not within {oldest} and {newest}")
                for index, time in islice(refused, MAX_RECORD_ERRORS)
            ],
            ErrorCode.INVALID_TIMESTAMP,
        )


def _payload(header: BatchHeader, records: Buffer, config: TopicConfig, at_once: bool) -> bytes:
    """Return the decompressed records of a batch. Raises the errors of `validate_batch`.

    With `at_once`, raise LongValidation for a batch that takes too long for the event loop.
    """
    if not at_once:
        if header.record_count > MAX_RECORDS:
            raise _invalid(
                f"the batch has {header.record_count} records: this topic's settings require that they are "
                f"decoded, and at most {MAX_RECORDS} of a batch are"
            )
        return batch_payload(header, records, max(MAX_BYTES, MAX_TIMES * config.max_message_bytes))
    if header.record_count > AT_ONCE_RECORDS or len(records) > AT_ONCE_BYTES:
        raise LongValidation
    try:
        return batch_payload(header, records, AT_ONCE_BYTES)
    except KafkaError as error:  # too long, or damaged: we are not told which
        raise LongValidation from error


def _not_a_batch(records: Buffer) -> KafkaError:
    if not len(records):
        return _invalid("there is no batch to append")
    if len(records) < HEADER_SIZE:
        return _invalid(f"{len(records)} bytes are less than a batch header")
    return _invalid(f"only batches of magic {MAGIC} are taken, this one has {records[MAGIC_AT]}")


def _not_one_batch(header: BatchHeader, size: int) -> KafkaError:
    if header.size < HEADER_SIZE:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch says it has {header.size} bytes")
    if header.size < size:
        return _invalid("one batch per partition may be appended, more came")
    return _invalid(f"the batch says it has {header.size} bytes, {size} came")


def _too_large(size: int, config: TopicConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {size} bytes, max.message.bytes={config.max_message_bytes} allows fewer",
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
