"""Finds problems of partitions, which `topics describe` shows and filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.admin_types import ConfigValue, PartitionDescription, TopicDescription
from barnabas.client.errors import ClientError
from barnabas.client.moves import Move, Moves, PartitionReplicas

UNDER_REPLICATED = "under-replicated"
UNAVAILABLE = "unavailable"
UNDER_MIN_ISR = "under-min-isr"
MOVING = "moving"

_MIN_ISR = "min.insync.replicas"


class Health:
    """Finds the problems of the partitions of some topics.

    Eligible leader replicas, offline replicas and reassignments come from separate requests. If one of these
    requests fails (Kafka before 3.7 does not serve them), problems that need its answer are not found.
    """

    def __init__(
        self,
        bootstrap_server: str,
        topics: Sequence[TopicDescription],
        configs: Mapping[str, Iterable[ConfigValue]],
    ) -> None:
        moves = Moves(bootstrap_server)
        self._holders: Mapping[TopicPartition, PartitionReplicas] = {}
        self._under_way: Mapping[TopicPartition, Move] = {}
        if topics:
            try:
                self._holders = moves.replicas_of([topic.name for topic in topics])
                self._under_way = moves.reassignments()
            except (ClientError, KafkaError):
                pass  # not served, or a topic is gone by now
        self._min_isr = {
            topic: next((int(each.value or 1) for each in values if each.name == _MIN_ISR), 1)
            for topic, values in configs.items()
        }

    def holders(self, topic: str, partition: PartitionDescription) -> PartitionReplicas:
        """Return leader, replicas and ISR of a partition, with its eligible leader replicas.

        The eligible leader replicas are None, and the offline replicas empty, if the request for them failed.
        """
        found = self._holders.get(TopicPartition(topic, partition.partition))
        return found or PartitionReplicas(partition.leader, partition.replicas, partition.isr)

    def marks(self, topic: str, partition: PartitionDescription) -> tuple[str, ...]:
        """Return the problems of a partition, the worst first; empty for a healthy one.

        The problems are "unavailable", "under-min-isr", "under-replicated" and "moving". As in Kafka's
        kafka-topics, a replica that a reassignment adds need not be in the ISR yet.
        """
        holders = self.holders(topic, partition)
        move = self._under_way.get(TopicPartition(topic, partition.partition))
        expected = len(partition.replicas) - (len(move.adding) if move is not None else 0)
        found = {
            UNAVAILABLE: partition.leader is None or partition.leader in holders.offline,
            UNDER_MIN_ISR: len(partition.isr) < self._min_isr[topic],
            UNDER_REPLICATED: len(partition.isr) < expected,
            MOVING: move is not None,
        }
        return tuple(mark for mark, holds in found.items() if holds)

    def is_at_min_isr(self, topic: str, partition: PartitionDescription) -> bool:
        """Whether producers with acks=all would stop after the loss of one more replica."""
        return len(partition.isr) == self._min_isr[topic]
