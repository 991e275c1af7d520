"""The `.snapshot` file: a log's producers at the offset in the file's name.

Apache Kafka's format (big-endian) has version (int16, 1), CRC-32C of all that follows (uint32), number of
producers (int32), and for each:

- producer id (int64), epoch (int16);
- last sequence (int32), last offset (int64), offset delta (int32) of the last batch; timestamp of the last
  batch or marker (int64);
- coordinator epoch (int32), first offset of the ongoing transaction (int64, -1: none).

Kafka's format has only the last batch of each producer, but after a restart a producer may send any of its
last five batches again. So Barnabas adds a section with the earlier batches, which Kafka ignores. This
section has the number of producers that have earlier batches (int32), and for each:

- producer id (int64), number of earlier batches (int8);
- for each earlier batch, oldest first: last sequence (int32), last offset (int64), offset delta (int32),
  largest timestamp (int64).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from barnabas.base.types import UNKNOWN_OFFSET
from barnabas.broker.storage.producers import Producer, ProducerBatch
from barnabas.kafka.records.batch import NO_SEQUENCE
from barnabas.kafka.records.crc import crc32c

VERSION = 1
_OPENING = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")
_EARLIER = struct.Struct(">qb")
_BATCH = struct.Struct(">iqiq")


def encode_snapshot(producers: Iterable[Producer]) -> bytes:
    """Return the content of a `.snapshot` file."""
    entries = []
    earlier = []
    for producer in producers:
        last = producer.batches[-1] if producer.batches else ProducerBatch(NO_SEQUENCE, UNKNOWN_OFFSET, 0, -1)
        entries.append(
            _PRODUCER.pack(
                producer.producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
        )
        if len(producer.batches) > 1:
            before = producer.batches[:-1]
            packed = b"".join(_BATCH.pack(*batch) for batch in before)
            earlier.append(_EARLIER.pack(producer.producer_id, len(before)) + packed)
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    if earlier:
        body += _COUNT.pack(len(earlier)) + b"".join(earlier)
    return _OPENING.pack(VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> list[Producer]:
    """Return the producers in a `.snapshot` file.

    Raises:
        ValueError: the content is damaged or has another version.
    """
    try:
        version, crc = _OPENING.unpack_from(content)
        body = content[_OPENING.size :]
        if version != VERSION or crc != crc32c(body):
            raise ValueError("not a whole producer snapshot of version 1")
        return _decode(body)
    except struct.error as error:
        raise ValueError("a producer snapshot is cut off") from error


def _decode(body: bytes) -> list[Producer]:
    (count,) = _COUNT.unpack_from(body)
    position = _COUNT.size
    producers = {}
    for _ in range(count):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_start = (
            _PRODUCER.unpack_from(body, position)
        )
        position += _PRODUCER.size
        producer = Producer(producer_id, epoch)
        if offset != UNKNOWN_OFFSET:  # a coordinator's batches have no sequences
            producer.batches = [ProducerBatch(sequence, offset, delta, timestamp)]
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = transaction_start
        producers[producer_id] = producer
    if position < len(body):
        (count,) = _COUNT.unpack_from(body, position)
        position += _COUNT.size
        for _ in range(count):
            producer_id, number = _EARLIER.unpack_from(body, position)
            position += _EARLIER.size
            before = []
            for _ in range(number):
                before.append(ProducerBatch._make(_BATCH.unpack_from(body, position)))
                position += _BATCH.size
            producers[producer_id].batches[:0] = before
    return list(producers.values())
