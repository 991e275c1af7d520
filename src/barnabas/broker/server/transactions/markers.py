"""Appends transaction markers to the partitions that this broker leads.

The markers come from the transaction coordinator on this broker, or from others by WriteTxnMarkers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import GROUP_METADATA_TOPIC, ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable
from barnabas.broker.coordinator import Marker
from barnabas.broker.replication.acknowledgement import Acknowledgement, Appended
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import ACKS_ALL
from barnabas.broker.storage import Origin
from barnabas.broker.view import BrokerView
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

#: The first version of transactions whose markers raise the producer's epoch (KIP-890).
_EPOCH_BUMP_VERSION = 2

#: a partition leader's retriable error for each retriable error of a group coordinator
_GROUP_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


class Groups(Protocol):
    """The group coordinator, which appends the transaction markers in `__consumer_offsets`."""

    def end_transaction(
        self, partition: int, producer: ProducerIdentity, marker: EndTransaction
    ) -> MaybeAwaitable[None]:
        """Append the marker that ends a producer's transaction in a partition of `__consumer_offsets`.

        If the in-sync replicas must still get the marker, return an awaitable that waits for them.

        Args:
            partition: number of the partition.
            producer: id and epoch of the producer.
            marker: commit or abort, and the epoch of the transaction coordinator.

        Raises:
            KafkaError: the errors of `CoordinatorRuntime.end_transaction`.
        """


class MarkerAppender:
    """Implements `barnabas.broker.coordinator.MarkerWriter` for the partitions that this broker leads.

    Args:
        view: settings and clock of the broker.
        replicas: partitions of the broker.
        groups: group coordinator on this broker.
    """

    def __init__(self, view: BrokerView, replicas: ReplicaManager, groups: Groups) -> None:
        self._view = view
        self._replicas = replicas
        self._groups = groups

    def write(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        """Append a marker to partitions, and return the error code for each partition (NONE for success).

        If in-sync replicas must still get a marker, return an awaitable of the error codes, which waits for
        these replicas.
        """
        outcomes: dict[TopicPartition, ErrorCode] = {}
        waiting: dict[TopicPartition, Awaitable[object]] = {}
        for partition in partitions:
            outcomes[partition] = ErrorCode.NONE
            try:
                committed = self._append(marker, partition)
            except KafkaError as error:
                outcomes[partition] = _GROUP_ERRORS.get(error.code, error.code)
            else:
                if is_awaitable(committed):
                    waiting[partition] = committed
        return _when_committed(outcomes, waiting) if waiting else outcomes

    def _append(self, marker: Marker, partition: TopicPartition) -> MaybeAwaitable[object]:
        """Append a marker to a partition.

        Return None if all in-sync replicas already have the marker. If not, return an awaitable that waits
        until they have it.

        Raises:
            KafkaError: this broker does not lead the partition, a later epoch of the producer or of the
                coordinator has fenced the marker, or the append failed. The awaitable can raise KafkaError,
                too, for example REQUEST_TIMED_OUT.
        """
        replica = self._replicas.find(*partition)
        producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
        end = EndTransaction(marker.commit, marker.coordinator_epoch)
        # One that has been overtaken is refused before anything is written.
        replica.check_leader()
        replica.log.producers.check_marker(
            producer,
            marker.coordinator_epoch,
            must_raise_epoch=marker.transaction_version >= _EPOCH_BUMP_VERSION,
        )
        if partition.topic == GROUP_METADATA_TOPIC:
            # The coordinator must learn of it, too: what was pending counts now.
            return self._groups.end_transaction(partition.partition, producer, end)
        batch = encode_end_transaction(
            end,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=self._view.clock.now_ms(),
        )
        info = replica.append(batch, ACKS_ALL, Origin.COORDINATOR)
        if replica.is_acknowledged(info.last_offset, ACKS_ALL):
            return None
        appended = Appended(replica, info.last_offset, replica.leader_epoch, _refuse)
        return Acknowledgement([appended], ACKS_ALL, True).wait(self._view.config.request_timeout_ms).future


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
