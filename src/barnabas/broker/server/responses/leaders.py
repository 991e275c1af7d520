"""Finds the leaders of partitions for the responses to ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from typing import Protocol

from barnabas.base.types import TopicId
from barnabas.broker.metadata import ClusterImage
from barnabas.kafka.protocol.messages.share_fetch import LeaderIdAndEpoch, NodeEndpoint


class _LedPartition(Protocol):
    error_code: int
    current_leader: LeaderIdAndEpoch


class Leaders:
    """Finds the leaders of partitions for one response, and collects the addresses of these leaders.

    Args:
        image: the latest cluster image.
        listener: listener of the client's connection, which selects the addresses.
    """

    def __init__(self, image: ClusterImage, listener: str) -> None:
        self._image = image
        self._listener = listener
        #: by node id
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        """Addresses of the leaders that `of` has returned so far, each once, in the order of the calls."""
        return list(self._endpoints.values())

    def of(self, topic_id: TopicId, index: int) -> LeaderIdAndEpoch:
        """Return the leader of a partition with its epoch, and add the leader's address to `endpoints`.

        If the partition does not exist, the leader id and the epoch are -1. If the partition has no leader,
        the leader id is -1. If the leader does not have the client's listener, `endpoints` gets no address.
        """
        topic = self._image.topic_by_id(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        state = topic.partitions[index]
        broker = self._image.brokers.get(state.leader)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            self._endpoints[state.leader] = NodeEndpoint(
                node_id=state.leader, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
