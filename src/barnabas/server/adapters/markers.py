"""Brings the markers that end transactions to the leaders of their partitions.

Every partition of a single broker is led by itself, so all of them are written here; those of others will go
out as WriteTxnMarkers, whose handler is the other user of `write_markers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING

from barnabas.coordinator import Marker
from barnabas.errors import ErrorCode, KafkaError
from barnabas.records.control import EndTransaction
from barnabas.replication.markers import append_marker, check_marker
from barnabas.replication.partition import ACKS_ALL
from barnabas.replication.produce import Acknowledgement, Appended
from barnabas.types import GROUP_METADATA_TOPIC, ProducerIdentity, TopicPartition

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

#: from this version of transactions on, a marker bears a higher epoch than what it ends (KIP-890)
_EPOCH_BUMP_VERSION = 2

#: what a group coordinator's refusal means to whoever wrote to a partition's leader: try again
_GROUP_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class MarkerSender:
    """`barnabas.coordinator.MarkerWriter` for the coordinator on this broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def write(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode] | Awaitable[dict[TopicPartition, ErrorCode]]:
        return write_markers(self._broker, marker, partitions)


def write_markers(
    broker: Broker, marker: Marker, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode] | Awaitable[dict[TopicPartition, ErrorCode]]:
    """Write a marker to partitions that this broker leads; what became of each."""
    outcomes: dict[TopicPartition, ErrorCode] = {}
    waiting: dict[TopicPartition, Awaitable[object]] = {}
    for partition in partitions:
        outcomes[partition] = ErrorCode.NONE
        try:
            committed = _write(broker, marker, partition)
        except KafkaError as error:
            outcomes[partition] = _GROUP_ERRORS.get(error.code, error.code)
        else:
            if committed is not None:
                waiting[partition] = committed
    return _when_committed(outcomes, waiting) if waiting else outcomes


def _write(broker: Broker, marker: Marker, partition: TopicPartition) -> Awaitable[object] | None:
    """What finishes when the marker is committed, None when it is."""
    replica = broker.replicas.find(*partition)
    producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
    end = EndTransaction(marker.commit, marker.coordinator_epoch)
    check_marker(
        replica,
        producer,
        marker.coordinator_epoch,
        must_raise_epoch=marker.transaction_version >= _EPOCH_BUMP_VERSION,
    )
    if partition.topic == GROUP_METADATA_TOPIC:
        # The coordinator must learn of it, too: what was pending counts now.
        return broker.groups.end_transaction(partition.partition, producer, end)
    info = append_marker(replica, producer, end, broker.clock.now_ms())
    if replica.is_acknowledged(info.last_offset, ACKS_ALL):
        return None
    appended = Appended(replica, info.last_offset, _refuse)
    return Acknowledgement([appended], ACKS_ALL, True).wait(broker.config.request_timeout_ms).future


async def _when_committed(
    outcomes: dict[TopicPartition, ErrorCode], waiting: dict[TopicPartition, Awaitable[object]]
) -> dict[TopicPartition, ErrorCode]:
    results = await asyncio.gather(*waiting.values(), return_exceptions=True)
    for partition, result in zip(waiting, results, strict=True):
        if isinstance(result, KafkaError):
            outcomes[partition] = _GROUP_ERRORS.get(result.code, result.code)
        elif isinstance(result, BaseException):
            raise result
    return outcomes


def _refuse(error: KafkaError) -> None:
    raise error
