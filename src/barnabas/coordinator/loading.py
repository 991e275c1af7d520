"""Reading a shard's state back from its partition, without keeping the event loop from others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from barnabas.records import batch_records, batches
from barnabas.records.control import decode_end_transaction
from barnabas.types import Buffer, LeaderEpoch, Offset, ProducerId

#: how much is read, and how many records are replayed, before others get their turn: some milliseconds' work
CHUNK_BYTES = 64 * 1024
_RECORDS_A_TURN = 250


class InternalLog(Protocol):
    """The partitions of one internal topic on this broker, as a coordinator needs them."""

    def append(self, partition: int, batch: bytes, epoch: LeaderEpoch) -> Awaitable[None] | None:
        """Append one batch as the leader of `epoch`.

        Returns None when it is committed already, else what finishes when it is.

        Raises:
            KafkaError: it was not appended; when awaited, it was not committed.
        """

    def bounds(self, partition: int) -> tuple[Offset, Offset]:
        """Log start offset and high watermark: what is there to load."""

    def read(self, partition: int, offset: Offset, max_bytes: int) -> Sequence[Buffer]:
        """Whole batches from the one that holds `offset` on, at least one, below the high watermark."""


async def load(log: InternalLog, partition: int, replay: Callable[[bytes, bytes | None], None]) -> int:
    """Replay what `partition` holds; returns how many records were read.

    A record replaces the one before it under the same key, as compaction would have it. So the log is read
    through raw, the last value of each key is kept, and only those are decoded and replayed: a group that
    commits every second costs as little as one that has committed once. What a transaction wrote counts from
    its commit marker on, and not at all when it was aborted or is still open.
    """
    latest: dict[bytes, bytes | None] = {}
    pending: dict[ProducerId, dict[bytes, bytes | None]] = {}
    count = 0
    offset, end = log.bounds(partition)
    while offset < end:
        data = b"".join(log.read(partition, offset, CHUNK_BYTES))
        start = offset
        for position, header in batches(data):
            batch = memoryview(data)[position : position + header.size]
            offset = header.next_offset
            if header.is_control:
                marker = decode_end_transaction(header, batch)
                written = pending.pop(header.producer_id, {})
                if marker is not None and marker.commit:
                    latest.update(written)
                continue
            target = latest
            if header.is_transactional:
                target = pending.setdefault(header.producer_id, {})
            for record in batch_records(header, batch):
                if record.key is not None:
                    # The last record decides the place as well as the value: replay keeps the log's order.
                    target.pop(record.key, None)
                    target[record.key] = record.value
            count += header.record_count
        if offset == start:
            raise EOFError(f"nothing can be read at offset {offset}, below the high watermark {end}")
        await asyncio.sleep(0)
    for number, (key, value) in enumerate(latest.items(), 1):
        if value is not None:
            replay(key, value)
        if number % _RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
    return count
