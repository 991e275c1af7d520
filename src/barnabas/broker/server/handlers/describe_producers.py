"""DescribeProducers v0: returns the active producers of partitions on this broker (KIP-664).

These are the idempotent and transactional producers. As in Apache Kafka, followers also answer.
"""

from __future__ import annotations

from barnabas.base.errors import KafkaError
from barnabas.base.types import NO_LEADER_EPOCH
from barnabas.broker.controller.names import check_topic_name
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.kafka.security.acls import Operation


@handles(
    DescribeProducersRequest,
    needs=[each_topic(Operation.READ, "topics")],
    pieces=[Pieces("topics.partition_indexes", "topics.partitions", size=32, unique=True)],
    is_heavy=True,
    listing="topics.partitions.active_producers",
    unconfirmed="it only informs",
)
def describe_producers(
    replicas: ReplicaManager, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        results = []
        for index in topic.partition_indexes:
            result = PartitionResponse(partition_index=index)
            try:
                check_topic_name(topic.name)
                partition = replicas.find(topic.name, index)
                partition.check_epoch(NO_LEADER_EPOCH)
                result.active_producers = [
                    ProducerState(
                        producer_id=producer.producer_id,
                        producer_epoch=producer.epoch,
                        last_sequence=producer.last_sequence,
                        last_timestamp=producer.last_timestamp,
                        coordinator_epoch=producer.coordinator_epoch,
                        current_txn_start_offset=producer.transaction_start,
                    )
                    for producer in partition.log.producers
                ]
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.message
            results.append(result)
        response.topics.append(TopicResponse(name=topic.name, partitions=results))
    return response
