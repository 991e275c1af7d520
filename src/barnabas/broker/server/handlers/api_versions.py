"""ApiVersions v0-4: lists the APIs that this broker serves (KIP-35, KIP-511), and its features.

The response lists the telemetry APIs (KIP-714) only while there is a client-metrics resource. It lists the
APIs of a feature only while the feature's level is above 0. It lists GetReplicaLogInfo only for brokers of
Barnabas, because Apache Kafka 4.4 has another API with its key.

A feature whose lowest level is 0 is listed from v4 on, because older clients do not expect a level of 0
(KIP-1022).
"""

from __future__ import annotations

import re

from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.connection import SOFTWARE_NAME
from barnabas.broker.metadata.features import SUPPORTED
from barnabas.broker.server.requests.api import ServedApis, handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Anyone
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas.kafka.protocol.messages.describe_share_partitions import DescribeSharePartitionsRequest
from barnabas.kafka.protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest
from barnabas.kafka.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from barnabas.kafka.protocol.messages.push_telemetry import PushTelemetryRequest

_NAMED_FROM = 3
_LOWEST_ZERO_FROM = 4
#: clients push no metrics if the broker does not advertise these APIs
_TELEMETRY = {GetTelemetrySubscriptionsRequest.api_key, PushTelemetryRequest.api_key}
#: its key is that of StreamsGroupTopologyDescriptionUpdate for clients of Apache Kafka 4.4
_OF_BROKERS = {GetReplicaLogInfoRequest.api_key}
#: `KafkaAdminClient.api_versions()` of kafka-python fails if the response lists a key unknown to Kafka.
#: Connections of `barnabas.client.connection` send v0, without a name (ADR 23)
_OF_BARNABAS = {DescribeSharePartitionsRequest.api_key}

#: what a client's name and version may look like (KIP-511); they end up in logs and metrics
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, needs=[Anyone()], unconfirmed="it is about the connection")
def api_versions(
    view: BrokerView, served: ServedApis, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    if context.api_version >= _NAMED_FROM:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    image = view.image
    finalized = image.features
    hidden: set[int] = set() if image.client_metrics else _TELEMETRY
    if context.connection.client_software_name != SOFTWARE_NAME:
        hidden = hidden | _OF_BROKERS
        if context.api_version >= _NAMED_FROM:
            hidden |= _OF_BARNABAS
    return ApiVersionsResponse(
        api_keys=[served.api.advertised() for served in served.values() if served.api.key not in hidden],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in SUPPORTED.items()
            if feature.lowest > 0 or context.api_version >= _LOWEST_ZERO_FROM
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.all().items()
            if level > 0
        ],
    )
