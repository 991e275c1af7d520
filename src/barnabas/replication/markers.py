"""Writes the markers that end transactions into the partitions this broker leads."""

from __future__ import annotations

from barnabas.records.control import EndTransaction, encode_end_transaction
from barnabas.replication.partition import ACKS_ALL, Partition
from barnabas.storage import AppendInfo, Origin
from barnabas.types import ProducerIdentity


def check_marker(
    partition: Partition, producer: ProducerIdentity, coordinator_epoch: int, *, must_raise_epoch: bool
) -> None:
    """Refuse a marker that has been overtaken, before anything is written.

    Raises:
        KafkaError: as `Partition.check_leader` and `Producers.check_marker`.
    """
    partition.check_leader()
    partition.log.producers.check_marker(producer, coordinator_epoch, must_raise_epoch=must_raise_epoch)


def append_marker(
    partition: Partition, producer: ProducerIdentity, marker: EndTransaction, now_ms: int
) -> AppendInfo:
    """Append a marker that may be; it counts when all in-sync replicas have it.

    Raises:
        KafkaError: as `Partition.append`.
    """
    batch = encode_end_transaction(
        marker, producer_id=producer.producer_id, producer_epoch=producer.epoch, timestamp=now_ms
    )
    return partition.append(batch, ACKS_ALL, Origin.COORDINATOR)
