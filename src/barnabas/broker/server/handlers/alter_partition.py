"""AlterPartition v2-3: a leader proposes ISR changes to the controller (KIP-497, KIP-704, KIP-903).

The errors are those of Kafka's controller. Each result has the partition's state after the request, or an
error. After an error, the leader's own metadata image later shows the changes that the leader has missed. In
addition to Kafka's rules, a leader or a follower whose disk accepts no writes can propose an ISR without
itself.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId
from barnabas.broker.controller.partitions import IsrProposal, PartitionControl
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicResult,
)


@handles(
    AlterPartitionRequest,
    needs=[BETWEEN_BROKERS],
    pieces=[Pieces("topics.partitions", size=200, unique=True)],
    is_heavy=True,
    order=BetweenBrokers(),
    unconfirmed="the controller decides it",
)
async def alter_partition(
    partitions: PartitionControl, context: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    proposals = [_proposal(topic.topic_id, asked) for topic in request.topics for asked in topic.partitions]
    altered = iter(await partitions.alter(request.broker_id, request.broker_epoch, proposals))
    topics = []
    for topic in request.topics:
        results = [_result(asked, outcome) for asked, outcome in zip(topic.partitions, altered, strict=False)]
        topics.append(TopicResult(topic_id=topic.topic_id, partitions=results))
    return AlterPartitionResponse(topics=topics)


def _proposal(topic_id: TopicId, asked: PartitionData) -> IsrProposal:
    isr = tuple((each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs)
    return IsrProposal(
        topic_id,
        asked.partition_index,
        asked.leader_epoch,
        asked.partition_epoch,
        isr or tuple((broker, -1) for broker in asked.new_isr),
        bool(asked.leader_recovery_state),
    )


def _result(asked: PartitionData, outcome: PartitionState | KafkaError) -> PartitionResult:
    if isinstance(outcome, KafkaError):
        return PartitionResult(partition_index=asked.partition_index, error_code=outcome.code)
    if outcome.leader_epoch != asked.leader_epoch:
        return PartitionResult(partition_index=asked.partition_index, error_code=ErrorCode.NEW_LEADER_ELECTED)
    return PartitionResult(
        partition_index=asked.partition_index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=int(outcome.recovering),
        partition_epoch=outcome.partition_epoch,
    )
