"""Selects the batches of a Fetch response that the reader may see, and decompresses their records.

A response begins with the whole batch that contains the requested offset, so it may have earlier records. It
ends at its size limit, often in the middle of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer, Offset
from barnabas.kafka.protocol.messages.fetch import AbortedTransaction
from barnabas.kafka.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    check_crc,
    parse_header,
)
from barnabas.kafka.records.compression import decompress
from barnabas.kafka.records.control import decode_end_transaction


class Payload(NamedTuple):
    """The records of one batch, decompressed but not decoded: the bytes of `data` from `start` to `end`."""

    header: BatchHeader
    data: Buffer
    start: int
    end: int


def whole_batches(data: memoryview) -> list[tuple[int, BatchHeader]]:
    """Return the position and the header of each complete batch in `data`.

    An incomplete batch at the end is left out.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a size is impossible; UNSUPPORTED_FOR_MESSAGE_FORMAT, messages of format
            0 or 1, which brokers wrote before version 0.11.
    """
    found = []
    position = 0
    while position + MAGIC_AT < len(data):
        if data[position + MAGIC_AT] != MAGIC:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"there are messages of format {data[position + MAGIC_AT]}: only format {MAGIC}, "
                "which brokers write since version 0.11, can be read",
            )
        if position + HEADER_SIZE > len(data):
            break
        header = parse_header(data, position)
        if header.length + LOG_OVERHEAD < HEADER_SIZE:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch says it has {header.size} bytes")
        if position + header.size > len(data):
            break
        found.append((position, header))
        position += header.size
    return found


def visible_payloads(
    data: memoryview,
    batches: Sequence[tuple[int, BatchHeader]],
    aborted: Sequence[AbortedTransaction],
    *,
    start: Offset,
    end: Offset,
    check_crcs: bool,
) -> Iterator[Payload]:
    """Yield the decompressed records of each visible batch that has offsets in a range.

    The range begins at `start` and ends before `end`. The first and the last of these batches can also have
    records outside it. Control batches and batches of aborted transactions are left out. For read_committed,
    the broker lists the `aborted` transactions (KIP-98). An aborted transaction covers the batches of its
    producer, from the transaction's first offset up to the producer's next abort marker.

    Args:
        data: the bytes with the batches.
        batches: position and header of each batch, from `whole_batches`.
        check_crcs: whether to compare the checksums of the yielded batches.

    Raises:
        KafkaError: CORRUPT_MESSAGE or UNSUPPORTED_COMPRESSION_TYPE.
    """
    upcoming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    aborting: set[int] = set()
    for position, header in batches:
        while upcoming and upcoming[-1].first_offset <= header.last_offset:
            aborting.add(upcoming.pop().producer_id)
        if header.is_control:
            if header.producer_id in aborting:
                marker = decode_end_transaction(header, data[position : position + header.size])
                if marker is not None and not marker.commit:
                    aborting.remove(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborting:
            continue
        if header.next_offset <= start or header.base_offset >= end or not header.record_count:
            continue
        if check_crcs:
            check_crc(header, data, position)
        first, last = position + HEADER_SIZE, position + header.size
        if header.compression:
            records = decompress(header.compression, data[first:last])
            yield Payload(header, records, 0, len(records))
        else:
            yield Payload(header, data, first, last)
