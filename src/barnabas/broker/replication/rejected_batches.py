"""Remembers batches of idempotent producers that were rejected because their partition was not open yet.

A producer can learn of a new partition before the broker that leads it. The broker then rejects the first
batch, and could accept the next one, which is already in flight. A new log accepts any first sequence of a
producer that it does not know. The producer could then never write the first batch (KAFKA-15591). librdkafka
even treats the first batch as delivered when the second one is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_PRODUCER_ID, Buffer, ProducerId, TopicKey
from barnabas.broker.storage.producers import Producers
from barnabas.kafka.records.batch import SEQUENCE_LIMIT, BatchHeader, check_crc, parse_header

#: most batches that are remembered; above it, the oldest partition's batches are forgotten
_MAX_BATCHES = 1000
#: seconds after which a producer has given up a batch that it has not sent again: clients retry each second
_SECONDS = 30.0


def header_of(records: Buffer) -> BatchHeader | None:
    """Return the header of an idempotent producer's batch; None for other or invalid batches."""
    try:
        header = parse_header(records)
        if header.producer_id == NO_PRODUCER_ID or header.is_control:
            return None
        check_crc(header, records)
    except KafkaError:
        return None
    return header


class _Rejection(NamedTuple):
    header: BatchHeader
    code: ErrorCode
    #: time at which the batch was last received
    at: float


class RejectedBatches:
    """Rejected batches of partitions that are not open yet. Only the event loop may use it.

    Args:
        now: returns a monotonic time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._by_partition: dict[tuple[TopicKey, int], dict[ProducerId, _Rejection]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, topic: TopicKey, index: int, header: BatchHeader, code: ErrorCode) -> None:
        """Store the header of a rejected batch, until `move_to` passes it to the partition's log.

        Do nothing if another batch of the same producer, in the same producer epoch, was received for the
        partition in the last `_SECONDS` seconds. If more than `_MAX_BATCHES` headers are stored, drop all
        headers of the partition that was added first.

        Args:
            topic: id of the topic, or its name if the id is unknown.
            index: number of the partition.
            header: header of the batch.
            code: the error that the producer gets.
        """
        now = self._now()
        of_partition = self._by_partition.setdefault((topic, index), {})
        before = of_partition.get(header.producer_id)
        if (
            before is not None
            and now - before.at <= _SECONDS
            and before.header.producer_epoch == header.producer_epoch
            and before.header.base_sequence != header.base_sequence
        ):
            return
        self._count += before is None
        of_partition[header.producer_id] = _Rejection(header, code, now)
        while self._count > _MAX_BATCHES:
            self.forget(*next(iter(self._by_partition)))

    def forget(self, topic: TopicKey, index: int) -> dict[ProducerId, _Rejection]:
        """Remove the rejected batches of a partition, and return them by producer id.

        The result is empty if there are none.
        """
        gone = self._by_partition.pop((topic, index), {})
        self._count -= len(gone)
        return gone

    def move_to(self, topic: TopicKey, index: int, to: Producers) -> None:
        """Move a partition's rejected batches from this object to `to`, the producers of its new log.

        The log then rejects later batches of a producer until the producer sends its rejected batch again.
        Drop batches older than `_SECONDS`, and batches that the log probably has (`is_written`).
        """
        if not self._by_partition:
            return
        now = self._now()
        for refused in self.forget(topic, index).values():
            if now - refused.at <= _SECONDS and not is_written(to, refused.header):
                to.note_rejection(refused.header, refused.code)


def is_written(producers: Producers, header: BatchHeader) -> bool:
    """Whether a log probably has the batch with this header.

    The result is True if the log knows the producer, in the batch's epoch, and expects another sequence
    number than the batch's first one.
    """
    known = producers.get(header.producer_id)
    return (
        known is not None
        and known.epoch == header.producer_epoch
        and header.base_sequence != (known.last_sequence + 1) % SEQUENCE_LIMIT
    )
