"""Reads partitions without a group: it fetches batches as they are stored, and decodes their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.client.brokers import Brokers, check
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.records import Record, batches, check_crc
from barnabas.kafka.records.builder import batch_records
from barnabas.kafka.records.control import decode_end_transaction

#: largest size of a decompressed batch, in bytes
_MAX_BATCH = 32 << 20
_MAX_ANSWER = 8 << 20


class Found(NamedTuple):
    """A record, or a marker that ends a transaction.

    Attributes:
        record: the record; for a marker, a record without key and value.
        marker: "" for a record; "commit", "abort" or "control" for a marker.
        aborted: whether the record belongs to an aborted transaction.
        open: whether the record belongs to a transaction that has not ended yet.
    """

    record: Record
    marker: str
    aborted: bool
    open: bool


class Chunk(NamedTuple):
    """Batches of a partition, and its offsets on the leader.

    Attributes:
        start: log start offset.
        stable: last stable offset.
        end: high watermark.
        data: the batches, in the format of the log.
        aborted: producer id and first offset of each aborted transaction in the batches.
    """

    start: int
    stable: int
    end: int
    data: bytes
    aborted: tuple[tuple[int, int], ...]


def fetch(
    brokers: Brokers, leader: int, topic: Any, wanted: dict[int, int], max_bytes: int
) -> dict[int, Chunk]:
    """Return batches of a topic's partitions from their leader, without a wait for more records.

    Partitions that cannot be read are left out.

    The first request is read_committed, because its answer lists aborted transactions. If its batches end
    where an open transaction starts, a second request (read_uncommitted) reads the batches after them.

    Args:
        topic: the topic in a MetadataResponse.
        wanted: offset to begin with, by partition.
        max_bytes: largest number of bytes for each partition in a response. The first batch of a response
            is whole, even if it is larger.

    Raises:
        KafkaError: the leader rejects the request.
        ClientError: the leader does not answer.
    """
    found = _fetched(brokers, leader, topic, wanted, max_bytes, committed=True)
    behind = {
        p: reached
        for p, chunk in found.items()
        if chunk.stable <= (reached := next_offset(chunk, wanted[p])) < chunk.end
    }
    if behind:
        for p, more in _fetched(brokers, leader, topic, behind, max_bytes, committed=False).items():
            found[p] = found[p]._replace(data=found[p].data + more.data, end=max(found[p].end, more.end))
    return found


def _fetched(
    brokers: Brokers, leader: int, topic: Any, wanted: dict[int, int], max_bytes: int, *, committed: bool
) -> dict[int, Chunk]:
    request = FetchRequest(
        max_bytes=min(max_bytes * len(wanted), _MAX_ANSWER),
        isolation_level=int(committed),
        topics=[
            FetchTopic(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=max_bytes)
                    for p, offset in wanted.items()
                ],
            )
        ],
    )
    response = brokers.ask(leader, request)
    check(response.error_code, topic.name)
    return {
        data.partition_index: Chunk(
            data.log_start_offset,
            data.last_stable_offset,
            data.high_watermark,
            bytes(data.records or b""),
            tuple((a.producer_id, a.first_offset) for a in data.aborted_transactions or ()),
        )
        for answered in response.responses
        for data in answered.partitions
        if not data.error_code
    }


def records_in(chunk: Chunk, first: int) -> Iterator[Found]:
    """Yield the records and markers of a chunk, from offset `first` on.

    Raises:
        KafkaError: a batch is damaged (CORRUPT_MESSAGE), or has an unknown compression codec
            (UNSUPPORTED_COMPRESSION_TYPE). The records before this batch have been yielded.
    """
    begun = sorted(chunk.aborted, key=lambda aborted: aborted[1])
    aborting: set[int] = set()
    view = memoryview(chunk.data)
    for position, header in batches(chunk.data):
        check_crc(header, chunk.data, position)
        batch = view[position : position + header.size]
        while begun and begun[0][1] <= header.last_offset:
            aborting.add(begun.pop(0)[0])
        if header.is_control:
            ended = decode_end_transaction(header, batch)
            if ended is not None and not ended.commit:
                aborting.discard(header.producer_id)
            marker = "control" if ended is None else "commit" if ended.commit else "abort"
            if header.base_offset >= first:
                record = Record(None, None, header.max_timestamp, (), header.base_offset)
                yield Found(record, marker, False, False)
            continue
        aborted = header.is_transactional and header.producer_id in aborting
        for record in batch_records(header, batch, _MAX_BATCH):
            if record.offset >= first:
                is_open = header.is_transactional and record.offset >= chunk.stable
                yield Found(record, "", aborted, is_open)


def next_offset(chunk: Chunk, first: int) -> int:
    """Return the offset after the last whole batch of a chunk that was requested from `first` on.

    Return `first` if the chunk has no whole batch.
    """
    last = first
    for _, header in batches(chunk.data):
        last = max(last, header.next_offset)
    return last
