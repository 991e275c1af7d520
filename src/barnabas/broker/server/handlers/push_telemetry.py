"""PushTelemetry v0: stores the latest value of each metric that a client pushes, for ``/metrics`` (KIP-714).

The thread for long work decompresses the metrics to at most ``telemetry.max.bytes``, and decodes them. A push
that is larger gets TELEMETRY_TOO_LARGE, as in Apache Kafka since KAFKA-21076. After any other error a Java
client would stop pushing. As in Apache Kafka, clients need no permission.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import METADATA_TOPIC_ID, ZERO_TOPIC_ID
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Anyone
from barnabas.broker.server.telemetry.clients import ClientInstance, TelemetryClients
from barnabas.broker.server.telemetry.otlp import OtlpError, Pushed, read_metrics
from barnabas.broker.server.telemetry.subscriptions import attributes_of
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas.kafka.records.compression import Compression, ExpandsTooFarError, decompress

_RESERVED = (ZERO_TOPIC_ID, METADATA_TOPIC_ID)


@handles(PushTelemetryRequest, needs=[Anyone()], unconfirmed="it is about the client's own metrics")
def push_telemetry(
    clients: TelemetryClients,
    view: BrokerView,
    long_work: LongWork,
    context: RequestContext,
    request: PushTelemetryRequest,
) -> MaybeAwaitable[PushTelemetryResponse]:
    if request.client_instance_id in _RESERVED:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    client = clients.find(request.client_instance_id, attributes_of(request.client_instance_id, context))
    max_bytes = view.config.telemetry_max_bytes
    error = _refusal(client, request, clients.now(), max_bytes)
    client.is_ending = request.terminating
    if error is not None:
        return _answer(clients, client, error)
    if not request.metrics:
        return _answer(clients, client, ErrorCode.NONE)
    return _store(clients, long_work, client, request, max_bytes)


def _refusal(
    client: ClientInstance, request: PushTelemetryRequest, now: float, max_bytes: int
) -> ErrorCode | None:
    if client.is_ending:
        return ErrorCode.INVALID_REQUEST
    if not client.may_push(now) and not request.terminating:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if request.subscription_id != client.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in tuple(Compression):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > max_bytes else None


async def _store(
    clients: TelemetryClients,
    long_work: LongWork,
    client: ClientInstance,
    request: PushTelemetryRequest,
    max_bytes: int,
) -> PushTelemetryResponse:
    try:
        pushed = await long_work.run(_read, request.compression_type, request.metrics, max_bytes)
        clients.keep(client, pushed)
    except KafkaError as error:
        return _answer(clients, client, error.code)
    return _answer(clients, client, ErrorCode.NONE)


def _read(compression: int, metrics: bytes, max_bytes: int) -> Pushed:
    """Decompress and decode the metrics of a PushTelemetry request.

    Args:
        compression: number of the compression type, as in the request.
        metrics: the compressed metrics.
        max_bytes: largest allowed size of the decompressed metrics, in bytes.

    Raises:
        KafkaError: TELEMETRY_TOO_LARGE, the decompressed metrics have more than `max_bytes` bytes;
            INVALID_RECORD, the metrics are invalid.
    """
    try:
        data = decompress(compression, metrics, max_bytes)
    except ExpandsTooFarError as error:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE) from error
    except KafkaError as error:  # as Apache Kafka, where the plugin that is to read it fails
        raise KafkaError(ErrorCode.INVALID_RECORD) from error
    if len(data) > max_bytes:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    try:
        return read_metrics(data)
    except OtlpError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD) from error


def _answer(clients: TelemetryClients, client: ClientInstance, code: ErrorCode) -> PushTelemetryResponse:
    client.error = code
    clients.pushes[code.name] += 1
    return PushTelemetryResponse(error_code=code)
