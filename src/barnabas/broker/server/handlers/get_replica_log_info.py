"""GetReplicaLogInfo v0: returns log end offsets and leader epochs of this broker's replicas (KIP-966).

ApiVersions lists this API only for brokers of Barnabas: in Apache Kafka 4.4, key 93 is
StreamsGroupTopologyDescriptionUpdate.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicId
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import BETWEEN_BROKERS
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.get_replica_log_info import (
    EpochStart,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

#: the most leader epochs in the answer about one log
_MAX_EPOCHS = 100


@handles(
    GetReplicaLogInfoRequest,
    needs=[BETWEEN_BROKERS],
    pieces=[
        Pieces("topic_partitions.partitions", "topic_partition_log_info_list.partition_log_info", size=256)
    ],
    order=BetweenBrokers(),
    unconfirmed="it tells what this broker holds",
)
def get_replica_log_info(
    replicas: ReplicaManager, view: BrokerView, context: RequestContext, request: GetReplicaLogInfoRequest
) -> GetReplicaLogInfoResponse:
    return GetReplicaLogInfoResponse(
        broker_epoch=view.broker_epoch,
        topic_partition_log_info_list=[
            TopicPartitionLogInfo(
                topic_id=asked.topic_id,
                partition_log_info=[
                    _info(replicas, asked.topic_id, number, request.include_epoch_starts)
                    for number in asked.partitions
                ],
            )
            for asked in request.topic_partitions
        ],
    )


def _info(replicas: ReplicaManager, topic_id: TopicId, number: int, has_epochs: bool) -> PartitionLogInfo:
    try:
        partition = replicas.find(topic_id, number)
        if partition.unwritable is not None:
            raise partition.unwritable
        if partition.log.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline")
    except KafkaError as error:
        return PartitionLogInfo(partition=number, error_code=error.code, error_message=error.message)
    return PartitionLogInfo(
        partition=number,
        last_written_leader_epoch=partition.log.latest_epoch,
        current_leader_epoch=partition.leader_epoch,
        log_end_offset=partition.log.log_end_offset,
        epoch_starts=[
            EpochStart(leader_epoch=epoch, start_offset=start)
            for epoch, start in partition.log.epochs.entries[-_MAX_EPOCHS:]
        ]
        if has_epochs
        else [],
    )
