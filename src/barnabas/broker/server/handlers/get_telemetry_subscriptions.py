"""GetTelemetrySubscriptions v0: tells a client which metrics it must push, and how often (KIP-714).

The broker advertises this API only while there is a client-metrics resource. (Apache Kafka advertises it only
with a receiver plugin.) After the last resource was deleted, the response requests no metrics.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ZERO_TOPIC_ID
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Anyone
from barnabas.broker.server.telemetry.clients import TelemetryClients
from barnabas.broker.server.telemetry.subscriptions import attributes_of
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.kafka.records.compression import Compression

#: the best first, in Apache Kafka's order
_COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_NO_ID = ZERO_TOPIC_ID
#: errors after which a client requests its subscription at once
_ASKS_AGAIN_AFTER = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@handles(
    GetTelemetrySubscriptionsRequest, needs=[Anyone()], unconfirmed="it is about the client's own metrics"
)
def get_telemetry_subscriptions(
    clients: TelemetryClients,
    view: BrokerView,
    context: RequestContext,
    request: GetTelemetrySubscriptionsRequest,
) -> GetTelemetrySubscriptionsResponse:
    client_id = request.client_instance_id
    if client_id == _NO_ID:
        client_id = clients.new_id()
    client = clients.find(client_id, attributes_of(client_id, context))
    if not client.may_ask(clients.now()) and client.error not in _ASKS_AGAIN_AFTER:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    client.error = ErrorCode.NONE
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_id,
        subscription_id=client.subscription_id,
        accepted_compression_types=list(_COMPRESSIONS),
        push_interval_ms=client.subscription.interval_ms,
        telemetry_max_bytes=view.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(client.subscription.metrics),
    )
