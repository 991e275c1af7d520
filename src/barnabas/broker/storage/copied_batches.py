"""Checks the batches that a follower copies from its leader."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset, TopicPartition
from barnabas.kafka.records.batch import (
    CRC_COVERS_FROM,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    batches,
    check_crc,
)
from barnabas.kafka.records.crc import crc32c


def find_copied_batches(
    records: memoryview, topic_partition: TopicPartition, end: Offset, epoch: int, leader_epoch: int
) -> list[tuple[int, BatchHeader]]:
    """Return the position in `records` and the header of each complete batch.

    The result ends before the first batch whose leader epoch is later than `leader_epoch`.

    Args:
        records: bytes from the leader; the last batch may be incomplete.
        topic_partition: partition of the records.
        end: end offset of the log.
        epoch: leader epoch of the log's last batch.
        leader_epoch: last epoch whose batches are accepted.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a CRC is wrong, or offsets or epochs do not ascend from the log's end.
    """
    found = []
    for position, header in batches(records):
        base_offset, length, batch_epoch, magic, crc, _, last_delta, _, _, _, _, _, _ = header
        if batch_epoch > leader_epoch:
            break
        covered = records[position + CRC_COVERS_FROM : position + length + LOG_OVERHEAD]
        if magic != MAGIC or crc32c(covered) != crc:
            check_crc(header, records, position)
        # the CRC does not cover where a batch says that it lies, nor its epoch and its magic byte
        if base_offset < end or last_delta < 0:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{topic_partition}: a batch at {base_offset} cannot follow {end - 1}",
            )
        if 0 <= batch_epoch < epoch:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{topic_partition}: a batch of epoch {batch_epoch} cannot follow one of {epoch}",
            )
        found.append((position, header))
        end = base_offset + last_delta + 1
        epoch = max(epoch, batch_epoch)
    return found
