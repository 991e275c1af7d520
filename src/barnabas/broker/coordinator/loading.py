"""Loads a shard's state from its partition. Between slices of the work, the event loop serves requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Buffer, LeaderEpoch, Offset, ProducerId
from barnabas.broker.awaitables import MaybeAwaitable, resolve
from barnabas.broker.coordinator.contract import Shard
from barnabas.kafka.records import batch_keys_and_values, batches, check_crc
from barnabas.kafka.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from barnabas.kafka.records.control import decode_end_transaction

#: the bytes read, and the records replayed, in one slice: it takes some milliseconds
CHUNK_BYTES = 64 * 1024
_RECORDS_A_TURN = 250

#: gets a record's key, and returns the key of the record that it adds to; None if it replaces earlier records
Extends: TypeAlias = Callable[[bytes], bytes | None]


class InternalLog(Protocol):
    """The partitions of one internal topic on this broker, with the methods that a coordinator needs."""

    def append(self, partition: int, batch: bytes, epoch: LeaderEpoch, now_ms: int) -> MaybeAwaitable[None]:
        """Append one batch as the leader of `epoch`. `now_ms` is the present time, in ms since 1970.

        Return None if the batch is committed already. If it is not committed yet, return an awaitable that
        completes when it is.

        Raises:
            KafkaError: the batch was not appended. If the awaitable raises KafkaError, the batch may still be
                committed later, and the log accepts no other append in this epoch.
        """

    def max_bytes(self, partition: int) -> int:
        """Return the size of the largest batch that can be appended, in bytes.

        Raises:
            KafkaError: the partition cannot be opened.
        """

    def bounds(self, partition: int, epoch: LeaderEpoch) -> tuple[Offset, Offset]:
        """Return the log's current start offset and end offset.

        Raises:
            KafkaError: this broker does not lead the partition in `epoch`, or the partition cannot be opened.
        """

    def committed(self, partition: int, end: Offset, epoch: LeaderEpoch) -> MaybeAwaitable[None]:
        """Wait until all records below `end` are committed.

        Return None if they are committed already. If not, return an awaitable that completes when they are.

        Raises:
            KafkaError: this broker does not lead the partition in `epoch`, or the log is offline. The
                awaitable raises KafkaError if the leadership ends meanwhile.
        """

    def read(self, partition: int, offset: Offset, max_bytes: int) -> MaybeAwaitable[Sequence[Buffer]]:
        """Read whole batches below the high watermark, from the batch that contains `offset` on.

        The result has about `max_bytes` at most, but at least one batch.

        Raises:
            KafkaError: the log cannot be read.
        """


class _Pending(NamedTuple):
    value: bytes
    #: a later record outside the transaction has the same key
    is_superseded: bool = False


async def load(
    log: InternalLog,
    partition: int,
    shard: Shard,
    offset: Offset,
    end: Offset,
    extends: Extends | None = None,
) -> int:
    """Read the committed records of `partition` from `offset` to `end`, and replay the last one of each key.

    Return the number of records read, without markers. As in compaction, a record replaces the earlier ones
    with the same key. So the function reads all records first, and then decodes and replays only the last
    value of each key. A group that has committed every second is replayed as fast as one that has committed
    once.

    - A record of a transaction becomes valid at the commit marker. But a record outside the transaction with
      the same key, between the record and the marker, remains the last one.
    - Records of an aborted transaction are dropped.
    - Records of an open transaction go to `Shard.replay_pending`.

    If `extends` returns a key for a record, the record adds to the last record of that key, and is replayed
    after it. A later record of that key replaces both.

    Raises:
        KafkaError: the log cannot be read; or CORRUPT_MESSAGE, a batch is damaged. The damaged batch may have
            had the last value of any key, so the broker must not serve the partition.
    """
    latest: dict[bytes, bytes | None] = {}
    added: dict[bytes, list[tuple[bytes, bytes | None]]] = {}
    pending: dict[ProducerId, dict[bytes, _Pending]] = {}
    count = 0
    while offset < end:
        start = offset
        try:
            data = b"".join(await resolve(log.read(partition, offset, CHUNK_BYTES)))
            found = _checked(data, offset)
        except KafkaError as error:
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                raise _damaged(offset, end, error.message) from error
            raise
        for position, header in found:
            if header.base_offset >= end:
                offset = end
                break
            offset = header.base_offset + header.last_offset_delta + 1
            if header.attributes & CONTROL_FLAG:
                marker = decode_end_transaction(header, memoryview(data)[position : position + header.size])
                if marker is not None:
                    written = pending.pop(header.producer_id, {})
                    if marker.commit:
                        latest.update({k: v.value for k, v in written.items() if not v.is_superseded})
                continue
            is_transactional = header.attributes & TRANSACTIONAL_FLAG
            for key, value in batch_keys_and_values(header, data, position):
                if key is None:
                    continue
                if is_transactional:
                    if value is not None:
                        pending.setdefault(header.producer_id, {})[key] = _Pending(value)
                    continue
                if extends is not None:
                    if (extended := extends(key)) is not None:
                        added.setdefault(extended, []).append((key, value))
                        continue
                    added.pop(key, None)
                # Replay keeps the order of the last records of the keys.
                latest.pop(key, None)
                latest[key] = value
                if pending:
                    _supersede(pending, key, value)
            count += header.record_count
        if offset == start:
            raise _damaged(offset, end, "there is no complete batch")
        await asyncio.sleep(0)
    _replay_pending(shard, pending, is_superseded=True)
    for number, (key, value) in enumerate(_with_additions(latest, added), 1):
        if value is not None and (record := shard.decode(key, value)) is not None:
            shard.replay(record)
        if number % _RECORDS_A_TURN == 0:
            await asyncio.sleep(0)
    _replay_pending(shard, pending, is_superseded=False)
    return count


def _with_additions(
    latest: Mapping[bytes, bytes | None], added: Mapping[bytes, Sequence[tuple[bytes, bytes | None]]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield (key, value): each item of `latest`, followed by the additions to the item's key.

    An addition is a record with a key of its own that changes the state stored under another key. The
    additions to a deleted key are left out.

    Args:
        latest: the last value of each key; None for a deleted key.
        added: by key of `latest`, the additions to this key as (own key, value).
    """
    for key, value in latest.items():
        yield key, value
        if added and value is not None:
            yield from added.get(key, ())


def _checked(data: bytes, expected: Offset) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of each whole batch in `data`. The position is an index in `data`.

    `expected` is the offset from which `data` was read. The first batch contains `expected`, or begins after
    it.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a checksum is wrong, the first batch ends before `expected`, or offsets
            overlap or are out of order.
    """
    found: list[tuple[int, BatchHeader]] = []
    for position, header in batches(data):
        check_crc(header, data, position)
        if header.next_offset <= expected or (found and header.base_offset < expected):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"offsets {header.base_offset} to {header.last_offset} lie where {expected} should",
            )
        found.append((position, header))
        expected = header.next_offset
    return found


def _damaged(offset: Offset, end: Offset, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"it is damaged from offset {offset} on and ends at {end} ({reason}): stop the broker and run "
        "`barnabas log check` with its log.dirs, which says how it can be served again",
    )


def _supersede(pending: dict[ProducerId, dict[bytes, _Pending]], key: bytes, value: bytes | None) -> None:
    """Mark the writes of `key` in open transactions as superseded by a later record outside of transactions.

    `pending` has the writes of open transactions by producer id and key; it is changed. The marked writes
    must not replace the later record when their transactions commit. If the later record deletes the key
    (`value` is None), remove the writes.
    """
    for written in pending.values():
        if key not in written:
            continue
        if value is None:
            del written[key]
        else:
            written[key] = _Pending(written[key].value, is_superseded=True)


def _replay_pending(
    shard: Shard, pending: dict[ProducerId, dict[bytes, _Pending]], *, is_superseded: bool
) -> None:
    for producer_id, written in pending.items():
        for key, (value, superseded) in written.items():
            if superseded is is_superseded and (record := shard.decode(key, value)) is not None:
                shard.replay_pending(producer_id, record)
