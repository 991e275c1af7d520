"""WriteTxnMarkers v1-2: end transactions in partitions that this broker leads (KIP-98).

Asked by coordinators, and by an administrator who aborts a transaction that hangs (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator import Marker
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.server.adapters.markers import write_markers
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.pieces import Pieces
from barnabas.types import TopicPartition

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


def _failed(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _result(marker, dict.fromkeys(_partitions(marker), error.code)) for marker in request.markers
        ]
    )


@handles(
    WriteTxnMarkersRequest,
    on_error=_failed,
    pieces=[Pieces("markers.topics.partition_indexes", "markers.topics.partitions", size=128)],
    is_heavy=True,
)
async def write_txn_markers(
    broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await _write(broker, marker) for marker in request.markers])


async def _write(broker: Broker, wanted: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.transaction_result,
        wanted.coordinator_epoch,
        wanted.transaction_version,
    )
    written = write_markers(broker, marker, _partitions(wanted))
    return _result(wanted, written if isinstance(written, dict) else await written)


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
