"""Appends a plain batch by a short path.

Nearly every batch is plain: it is valid, and the active segment has room for it. The leader changes only its
offset and, with LogAppendTime, its timestamp. `PartitionLog.append_as_leader` appends all batches that are
not plain (docs/adr/0019-plain-batches-take-one-short-path.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.base.types import FIRST_BROKER_PRODUCER_ID, NO_PRODUCER_ID, Buffer
from barnabas.broker.config import TopicConfig
from barnabas.broker.storage.log import AppendInfo, PartitionLog, new_info
from barnabas.broker.storage.rolling import TIME_ENTRY_SIZE
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET
from barnabas.kafka.records.batch import (
    COMPRESSION_MASK,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    SEQUENCE_LIMIT,
    TRANSACTIONAL_FLAG,
    UNCOVERED,
    parse_header,
    placed,
    with_timestamp_type,
)
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.records.crc import crc32c

#: a plain batch has 1 to 2^24 records, so its last offset delta has no higher bits than these. No sequence
#: number can then repeat within the producer's remembered batches
_RECORDS_BITS = 24
_CODECS = frozenset(map(int, Compression))
_COVERED = slice(CRC_COVERS_FROM, None)
# A call of a function costs less than the look-up of a method in each call.
_unpack_header = HEADER.unpack_from
_pack_uncovered = UNCOVERED.pack
_EVER = 2**63


class PlainLimits:
    """The limits within which `append_plain` can append a batch, computed once from a topic's settings.

    Args:
        config: settings of the topic.
        has_keys: whether all records have keys, as a compacted topic requires. A coordinator's records have
            keys.
    """

    __slots__ = (
        "after_ms",
        "before_ms",
        "codecs",
        "config",
        "has_keys",
        "index_bytes",
        "index_interval",
        "is_log_append_time",
        "max_bytes",
        "segment_bytes",
        "segment_ms",
    )

    def __init__(self, config: TopicConfig, has_keys: bool) -> None:
        self.config = config
        self.has_keys = has_keys
        self.max_bytes = min(config.max_message_bytes, config.segment_bytes)
        if config.is_compacted and not has_keys:
            self.max_bytes = 0  # records have to be decoded: no batch is plain
        #: the numbers of the compressions that the topic keeps as they are
        self.codecs = _CODECS
        if config.compression_type != "producer":
            self.codecs = frozenset({int(Compression.named(config.compression_type))})
        self.is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        #: how far a record's timestamp may lie before and after the broker's time
        self.before_ms = _EVER if self.is_log_append_time else config.message_timestamp_before_max_ms
        self.after_ms = _EVER if self.is_log_append_time else config.message_timestamp_after_max_ms
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        if config.is_compacted:
            self.segment_ms = min(config.segment_ms, config.max_compaction_lag_ms)
        #: how large the time index may be before an append
        self.index_bytes = config.segment_index_bytes - TIME_ENTRY_SIZE
        self.index_interval = config.index_interval_bytes


def append_plain(
    log: PartitionLog, records: Buffer, leader_epoch: int, limits: PlainLimits, flags: int, now_ms: int
) -> AppendInfo | None:
    """Append a client's batch if it is plain. If it is not, return None and change nothing.

    A plain batch is valid and fits into the active segment, and the leader changes only its offset and
    timestamp. The log is then the same as after `PartitionLog.append_as_leader`. That method must append all
    other batches.

    Args:
        log: log of a partition that this broker leads in `leader_epoch`.
        records: the batch; as a memoryview, it is written without a copy.
        leader_epoch: the leader epoch to append it in.
        limits: limits from the topic's settings.
        flags: bits that the attributes of a plain batch can have. A batch with any other bit is not plain.
        now_ms: present time, in milliseconds.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, the disk failed, and nothing has changed.
    """
    segment = log.files.segments.active
    size = len(records)
    position = segment.size
    if (
        log.failure is not None
        or log.env.failure is not None
        or log.closed
        or size < HEADER_SIZE
        or size > limits.max_bytes
        or not position
        or position + size > limits.segment_bytes
        or segment.times.size > limits.index_bytes
        or log.epochs.latest != leader_epoch
    ):
        return None
    (offset, length, _, magic, crc, attributes, last_delta, earliest, latest,
     producer_id, producer_epoch, sequence, count) = _unpack_header(records)  # fmt: skip
    base_offset = log.log_end_offset
    last_offset = base_offset + last_delta
    covered = records[_COVERED]
    if (
        offset
        or length != size - LOG_OVERHEAD
        or magic != MAGIC
        or (attributes and attributes & ~flags)
        or attributes & COMPRESSION_MASK not in limits.codecs
        or count != last_delta + 1
        or last_delta >> _RECORDS_BITS
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        or latest < 0
        or latest > now_ms + limits.after_ms
        or earliest < now_ms - limits.before_ms
        or crc32c(covered) != crc
    ):
        return None
    log_append_time = -1
    if limits.is_log_append_time:
        latest = log_append_time = now_ms
    first = segment.first_timestamp
    if first < 0 or latest - first > limits.segment_ms - segment.roll_jitter_ms:
        return None
    producer = None
    producers = log.producers
    if producer_id != NO_PRODUCER_ID:
        if producer_id >= FIRST_BROKER_PRODUCER_ID:
            return None
        is_transactional = attributes & TRANSACTIONAL_FLAG != 0
        producer = producers.next_in_line(producer_id, producer_epoch, sequence, is_transactional)
        if producer is None:
            return None
    elif attributes & TRANSACTIONAL_FLAG:
        return None
    chunks: Sequence[Buffer]
    if limits.is_log_append_time:
        records = with_timestamp_type(parse_header(records), records, now_ms)
        chunks = placed(records, base_offset, leader_epoch)
    else:
        chunks = _pack_uncovered(base_offset, length, leader_epoch, MAGIC, crc), covered
    try:
        segment.append(chunks, size, base_offset, last_offset, latest, limits.index_interval)
    except OSError as error:
        raise log.append_failed(parse_header(records), error) from error
    log.log_end_offset = producers.end_offset = last_offset + 1
    if producer is not None:
        producer.wrote((sequence + last_delta) % SEQUENCE_LIMIT, last_offset, last_delta, latest)
    return new_info(
        AppendInfo, (base_offset, last_offset, log_append_time, log.log_start_offset, latest, False)
    )
