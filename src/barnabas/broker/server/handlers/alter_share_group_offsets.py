"""AlterShareGroupOffsets v0: sets share-partition start offsets of a share group without members (KIP-932).

The coordinator creates the group if it does not exist. It also raises the state epoch of each partition. The
partition's leader may then still send a write with the earlier state epoch: the share coordinator rejects it.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import Offset
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.coordinator.share_state.persister import SharePartitionKey
from barnabas.broker.metadata.features import SHARE_VERSION
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group, each_topic
from barnabas.broker.server.requests.new_names import NewGroups
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from barnabas.kafka.security.acls import Operation


def _failed(request: AlterShareGroupOffsetsRequest, error: KafkaError) -> AlterShareGroupOffsetsResponse:
    if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    topics = [
        AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            partitions=[
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=error.code,
                    error_message=error.message,
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterShareGroupOffsetsResponse(responses=topics)


@handles(
    AlterShareGroupOffsetsRequest,
    needs=[
        Group(Operation.READ),
        each_topic(Operation.READ, "topics", "responses", name="topic_name"),
    ],
    on_error=_failed,
    pieces=[Pieces("topics.partitions", "responses.partitions", size=512)],
    is_heavy=True,
    confirmed_by=group_coordinator(),
    new_names=NewGroups,
    is_audited=True,
    feature=SHARE_VERSION,
)
async def alter_share_group_offsets(
    groups: GroupCoordinator,
    view: BrokerView,
    _context: RequestContext,
    request: AlterShareGroupOffsetsRequest,
) -> AlterShareGroupOffsetsResponse:
    topics = view.image.topics
    offsets: dict[SharePartitionKey, Offset] = {}
    response = AlterShareGroupOffsetsResponse()
    outcomes: dict[SharePartitionKey, AlterShareGroupOffsetsResponsePartition] = {}
    for wanted in request.topics:
        topic = topics.get(wanted.topic_name)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
        response.responses.append(answer)
        if topic is not None:
            answer.topic_id = topic.id
        for partition in wanted.partitions:
            outcome = AlterShareGroupOffsetsResponsePartition(partition_index=partition.partition_index)
            answer.partitions.append(outcome)
            if topic is None or not 0 <= partition.partition_index < len(topic.partitions):
                outcome.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.start_offset < 0:
                outcome.error_code = ErrorCode.INVALID_REQUEST
                outcome.error_message = "StartOffset must not be negative."
            else:
                key = SharePartitionKey(request.group_id, topic.id, partition.partition_index)
                offsets[key] = partition.start_offset
                outcomes[key] = outcome
    names = {
        topics[wanted.topic_name].id: wanted.topic_name
        for wanted in request.topics
        if wanted.topic_name in topics
    }
    failures = await groups.share_groups.alter_offsets(request.group_id, offsets, names)
    for key, error in failures.items():
        outcomes[key].error_code, outcomes[key].error_message = error.code, error.message
    return response
