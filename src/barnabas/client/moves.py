"""Requests about replicas of partitions and their reassignments, which librdkafka does not support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, BrokerId, TopicPartition
from barnabas.client.admin_types import ClusterDescription, described
from barnabas.client.brokers import Brokers
from barnabas.client.connection_pool import RESPONSE_TIMEOUT
from barnabas.client.errors import check_code, error_code
from barnabas.client.leaders import by_topic
from barnabas.client.servers import servers_of
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.kafka.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.kafka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

_PREFERRED, _UNCLEAN = 0, 1


class PartitionReplicas(NamedTuple):
    """The leader and the replicas of a partition, by broker id. `leader` is None if there is no leader.

    `elr` and `last_known_elr` are None if the cluster does not track them.
    """

    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    #: eligible leader replicas (KIP-966); None if the cluster does not track them
    elr: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    #: replicas on brokers that are not alive
    offline: tuple[BrokerId, ...] = ()


class Move(NamedTuple):
    """A reassignment in progress. `replicas` includes those that it adds and those that it removes."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


class Moves:
    """The replicas and reassignments of one cluster. Any broker forwards its requests to the controller.

    Every method raises KafkaError if a broker rejects the request, and ClientError if no broker answers
    within `timeout` seconds.
    """

    def __init__(self, bootstrap_servers: str, *, timeout: float = 15.0) -> None:
        self.brokers = Brokers(servers_of(bootstrap_servers, {}), timeout)

    def cluster(self) -> ClusterDescription:
        """Return the brokers with their racks, and the controller."""
        return described(self.brokers.ask_once(DescribeClusterRequest(), response_timeout=RESPONSE_TIMEOUT))

    def replicas_of(self, topics: Sequence[str] = ()) -> dict[TopicPartition, PartitionReplicas]:
        """Return replicas, ISR and leader of each partition of `topics`; of all topics if `topics` is empty.

        Raises KafkaError if one of the topics does not exist.
        """
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in sorted(topics)])
        found: dict[TopicPartition, PartitionReplicas] = {}
        while True:
            response = self.brokers.ask_once(request, response_timeout=RESPONSE_TIMEOUT)
            for topic in response.topics:
                if topic.error_code:
                    raise KafkaError(error_code(topic.error_code), f"there is no topic {topic.name}")
                for each in topic.partitions:
                    found[TopicPartition(topic.name, each.partition_index)] = _holders(each)
            if response.next_cursor is None:
                return found
            request.cursor = Cursor(
                topic_name=response.next_cursor.topic_name,
                partition_index=response.next_cursor.partition_index,
            )

    def reassignments(self) -> dict[TopicPartition, Move]:
        """Return every reassignment in progress."""
        request = ListPartitionReassignmentsRequest(topics=None)
        response = self.brokers.ask_once(request, response_timeout=RESPONSE_TIMEOUT)
        check_code(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Move(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """Start to move partitions to their target replicas. The target None cancels a reassignment.

        A target has the broker ids of the replicas, the preferred leader first.

        Return an error for each partition that the controller rejected.
        """
        topics: dict[str, ReassignableTopic] = {}
        for partition, target in sorted(targets.items()):
            topic = topics.setdefault(partition.topic, ReassignableTopic(name=partition.topic))
            replicas = None if target is None else list(target)
            topic.partitions.append(
                ReassignablePartition(partition_index=partition.partition, replicas=replicas)
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=round(1000 * self.brokers.timeout), topics=list(topics.values())
        )
        response = self.brokers.ask_once(request)
        check_code(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): KafkaError(
                error_code(each.error_code), each.error_message
            )
            for topic in response.responses
            for each in topic.partitions
            if each.error_code
        }

    def elect(
        self, partitions: Iterable[TopicPartition] | None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders. Return the result of each partition that needed an election; None means success.

        Args:
            partitions: partitions that get new leaders; None for all.
            is_unclean: if True, elect a replica that may lack records, for partitions without a leader. If
                False, elect the preferred leaders.
        """
        asked = None if partitions is None else by_topic(sorted(partitions))
        request = ElectLeadersRequest(
            election_type=_UNCLEAN if is_unclean else _PREFERRED,
            topic_partitions=None
            if asked is None
            else [TopicPartitions(topic=name, partitions=numbers) for name, numbers in asked.items()],
            timeout_ms=round(1000 * self.brokers.timeout),
        )
        response = self.brokers.ask_once(request)
        check_code(response.error_code)
        results: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.replica_election_results:
            for each in topic.partition_result:
                error = KafkaError(error_code(each.error_code), each.error_message)
                if error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                    results[TopicPartition(topic.topic, each.partition_id)] = (
                        error if each.error_code else None
                    )
        return results


def _holders(each: Any) -> PartitionReplicas:
    return PartitionReplicas(
        None if each.leader_id == NO_BROKER else each.leader_id,
        tuple(each.replica_nodes),
        tuple(each.isr_nodes),
        None if each.eligible_leader_replicas is None else tuple(each.eligible_leader_replicas),
        None if each.last_known_elr is None else tuple(each.last_known_elr),
        tuple(each.offline_replicas),
    )
