"""DescribeCluster v0-2: returns the live brokers, the controller and the cluster's id (KIP-700).

The response lists only brokers, because controllers have no endpoints of their own (KIP-919). It has no
fenced brokers.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Anyone
from barnabas.broker.server.responses.acls import NOT_ASKED
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


@handles(
    DescribeClusterRequest,
    needs=[Anyone("the field cluster_authorized_operations needs cluster DESCRIBE")],
    unconfirmed="it tells what the image shows",
)
def describe_cluster(
    view: BrokerView, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this endpoint is a broker's")
    if request.endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no type {request.endpoint_type} of endpoints"
        )
    cluster = view.image
    brokers = []
    for member in cluster.brokers.values():
        endpoint = member.endpoint(context.listener)
        if endpoint is not None:
            brokers.append(
                DescribeClusterBroker(
                    broker_id=member.id, host=endpoint.host, port=endpoint.port, rack=member.rack
                )
            )
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=brokers,
        cluster_authorized_operations=context.access.cluster_operations() if asked else NOT_ASKED,
    )
