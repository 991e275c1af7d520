"""OffsetForLeaderEpoch v2-4: returns the end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

A follower or a consumer compares this offset with its position, and so finds out whether its records diverge
from the leader's log.
"""

from __future__ import annotations

from barnabas.base.errors import KafkaError
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import leader_of
from barnabas.broker.server.requests.needs import each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.kafka.security.acls import Operation


@handles(
    OffsetForLeaderEpochRequest,
    needs=[each_topic(Operation.DESCRIBE, "topics", name="topic", unless=Operation.CLUSTER_ACTION)],
    pieces=[Pieces("topics.partitions", size=512)],
    confirmed_by=leader_of("partition"),
)
def offset_for_leader_epoch(
    replicas: ReplicaManager, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = EpochEndOffset(partition=wanted.partition)
            try:
                partition = replicas.find(topic.topic, wanted.partition)
                partition.check_leader(wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
    return response
