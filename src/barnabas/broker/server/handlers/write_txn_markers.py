"""WriteTxnMarkers v1-2: writes the markers that end transactions, to partitions of this broker (KIP-98).

Transaction coordinators send the request. Administrators also send it to abort a hanging transaction
(KIP-664).
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.awaitables import resolve
from barnabas.broker.coordinator import Marker
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.server.requests.order import BetweenBrokers
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.transactions.markers import MarkerAppender
from barnabas.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.kafka.security.acls import Operation


@handles(
    WriteTxnMarkersRequest,
    needs=[Cluster(Operation.ALTER, Operation.CLUSTER_ACTION)],
    pieces=[Pieces("markers.topics.partition_indexes", "markers.topics.partitions", size=128)],
    is_heavy=True,
    order=BetweenBrokers(),
    unconfirmed="the in-sync replicas commit it",
)
async def write_txn_markers(
    markers: MarkerAppender, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await _write(markers, marker) for marker in request.markers])


async def _write(markers: MarkerAppender, wanted: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.transaction_result,
        wanted.coordinator_epoch,
        wanted.transaction_version,
    )
    return _result(wanted, await resolve(markers.write(marker, _partitions(wanted))))


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes
    ]


def _result(wanted: WritableTxnMarker, outcomes: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=wanted.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=number, error_code=outcomes[TopicPartition(topic.name, number)]
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in wanted.topics
        ],
    )
