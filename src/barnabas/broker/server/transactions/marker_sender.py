"""Sends transaction markers to the leaders of partitions, on this broker and on others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from barnabas.base.errors import ErrorCode, error_code
from barnabas.base.types import NO_BROKER, BrokerId, TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable, resolve, then
from barnabas.broker.coordinator import Marker
from barnabas.broker.interbroker import BrokerClient, ChannelError
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.store import StoreError
from barnabas.broker.server.transactions.markers import MarkerAppender
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Outcomes = dict[TopicPartition, ErrorCode]

#: in seconds, how long a leader may take longer to answer than it waits for its followers
_GRACE = 5.0
#: time limit for a newer image from the store, in seconds
_STORE_PATIENCE = 5.0


class MarkerSender:
    """Implements `barnabas.broker.coordinator.MarkerWriter` for partitions on all brokers.

    Args:
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        synced: awaited without arguments; returns a cluster image that has all changes of the metadata made
            before the call.
        local: appends markers to the partitions that this broker leads.
        peers: the other brokers.
    """

    def __init__(
        self,
        view: BrokerView,
        synced: Callable[[], Awaitable[ClusterImage]],
        local: MarkerAppender,
        peers: BrokerClient,
    ) -> None:
        self._view = view
        self._synced = synced
        self._local = local
        self._peers = peers

    def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> MaybeAwaitable[Outcomes]:
        """Write a marker to partitions on all brokers, and return an error code for each partition.

        If the result is not known at once, return an awaitable of it. These are the codes:

        - NONE: all in-sync replicas of the partition have the marker.
        - UNKNOWN_TOPIC_OR_PARTITION: the partition was deleted.
        - LEADER_NOT_AVAILABLE: the partition has no leader now, or its leader does not know the partition.
        - NETWORK_EXCEPTION: the leader did not respond.
        - Any other: the leader's error.
        """
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        missing: list[TopicPartition] = []
        image = self._view.image
        for partition in partitions:
            state = image.partition(partition)
            if state is None:
                missing.append(partition)
            else:
                by_leader.setdefault(state.leader, []).append(partition)
        outcomes = dict.fromkeys(by_leader.pop(NO_BROKER, ()), ErrorCode.LEADER_NOT_AVAILABLE)
        answers: list[MaybeAwaitable[Outcomes]] = []
        own = by_leader.pop(self._view.node_id, ())
        if own:
            answers.append(then(self._local.write(marker, own), _not_unknown))
        answers += [self._send(leader, marker, theirs) for leader, theirs in by_leader.items()]
        if missing:
            answers.append(self._look_for(missing))
        if any(map(is_awaitable, answers)):
            return _joined(outcomes, answers)
        for answer in answers:
            assert not is_awaitable(answer)
            outcomes |= answer
        return outcomes

    async def _send(self, leader: BrokerId, marker: Marker, partitions: Sequence[TopicPartition]) -> Outcomes:
        wanted = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.commit,
            topics=_by_topic(partitions),
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        timeout = self._view.config.request_timeout_ms / 1000 + _GRACE
        try:
            response: WriteTxnMarkersResponse = await self._peers.channel(leader, "markers").send(
                WriteTxnMarkersRequest(markers=[wanted]), timeout_s=timeout
            )
        except ChannelError:
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return _not_unknown(
            {
                TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code)
                for result in response.markers
                for topic in result.topics
                for partition in topic.partitions
            }
        )

    async def _look_for(self, partitions: Sequence[TopicPartition]) -> Outcomes:
        """Return an error code for partitions that are not in this broker's image, from a newer image.

        UNKNOWN_TOPIC_OR_PARTITION means that a partition was deleted. LEADER_NOT_AVAILABLE means that the
        partition exists, or that no newer image came in time. The caller then tries again.
        """
        try:
            async with asyncio.timeout(_STORE_PATIENCE):
                image = await self._synced()
        except (StoreError, TimeoutError):
            return dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)
        return {
            partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if image.partition(partition) is None
            else ErrorCode.LEADER_NOT_AVAILABLE
            for partition in partitions
        }


def _not_unknown(outcomes: Outcomes) -> Outcomes:
    """Return the error codes, with LEADER_NOT_AVAILABLE in place of UNKNOWN_TOPIC_OR_PARTITION.

    LEADER_NOT_AVAILABLE makes the caller retry. `outcomes` does not change. The partitions are in this
    broker's image. So a leader that answers UNKNOWN_TOPIC_OR_PARTITION has a stale image, and has written no
    marker.
    """
    unknown, retried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE
    if unknown not in outcomes.values():
        return outcomes
    return {partition: retried if code is unknown else code for partition, code in outcomes.items()}


async def _joined(outcomes: Outcomes, answers: Iterable[MaybeAwaitable[Outcomes]]) -> Outcomes:
    for answer in await asyncio.gather(*map(resolve, answers)):
        outcomes |= answer
    return outcomes


def _by_topic(partitions: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, number in partitions:
        topic = topics.setdefault(name, WritableTxnMarkerTopic(name=name, partition_indexes=[]))
        topic.partition_indexes.append(number)
    return list(topics.values())
