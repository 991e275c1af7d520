"""Names the leaders of rejected partitions, so that clients can do without a Metadata request (KIP-951)."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from barnabas.base.errors import ErrorCode
from barnabas.base.types import NO_BROKER, BrokerId, TopicKey
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.fetch import LeaderIdAndEpoch, NodeEndpoint

#: errors after which a response names the leader of the partition
MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_NODE_ID = attrgetter("node_id")
_UNKNOWN = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


class Leaders:
    """Finds the leaders of partitions for one response, and collects the addresses of these leaders.

    Args:
        view: the cluster image and the id of this broker.
        listener: listener of the client's connection, which selects the addresses.
        endpoints: addresses that the response already has, ordered by node id.
    """

    __slots__ = ("_listener", "_view", "endpoints")

    def __init__(self, view: BrokerView, listener: str, endpoints: list[NodeEndpoint] | None = None) -> None:
        self._view = view
        self._listener = listener
        #: the addresses for the response, each once, ordered by node id as in Kafka's responses
        self.endpoints: list[NodeEndpoint] = [] if endpoints is None else endpoints

    def of(self, topic: TopicKey, index: int) -> LeaderIdAndEpoch:
        """Return the leader of a partition with its epoch, and add the leader's address to `endpoints`.

        If the partition does not exist, the leader id and the epoch are -1. If the partition has no leader,
        the leader id is -1. If the leader does not have the client's listener, `endpoints` gets no address.
        """
        found = self._find(topic, index)
        self._add_endpoint(found.leader_id)
        return found

    def after(self, code: ErrorCode, topic: TopicKey, index: int) -> LeaderIdAndEpoch:
        """Return the leader to name in a response to Produce or Fetch, and add its address to `endpoints`.

        The leader id and the epoch are -1, their defaults, if the response must not name a leader:

        - `code` is not in `MOVED`.
        - The partition does not exist, or has no leader. Kafka then sends the epoch with the leader id -1,
          which no client uses. librdkafka 2.15 reads uninitialized memory if a Fetch response names another
          partition's leader, too.
        - The leader is this broker, but `code` says that it does not lead. It has ended its leadership, or
          cannot prove it. A client that believes the response would not look for the next leader elsewhere.

        Args:
            code: error of the partition in the response.
            topic: name or id of the topic.
            index: number of the partition.
        """
        if code not in MOVED:
            return _UNKNOWN
        found = self._find(topic, index)
        if found.leader_id == NO_BROKER:
            return _UNKNOWN
        if found.leader_id == self._view.node_id and code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return _UNKNOWN
        self._add_endpoint(found.leader_id)
        return found

    def _find(self, topic: TopicKey, index: int) -> LeaderIdAndEpoch:
        image = self._view.image
        found = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return _UNKNOWN
        state = found.partitions[index]
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)

    def _add_endpoint(self, leader: BrokerId) -> None:
        endpoints = self.endpoints
        at = bisect_left(endpoints, leader, key=_NODE_ID)
        if at < len(endpoints) and endpoints[at].node_id == leader:
            return
        broker = self._view.image.brokers.get(leader)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found = NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            endpoints.insert(at, found)
