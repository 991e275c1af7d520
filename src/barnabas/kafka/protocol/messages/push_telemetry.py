"""PushTelemetry (key 72): send a client's metrics to the broker, as OpenTelemetry's MetricsData (KIP-714)."""

from barnabas.kafka.protocol.schema import ZERO_UUID, Bool, Bytes, Int8, Int16, Int32, Request, Response, Uuid


class PushTelemetryRequest(Request, key=72, versions=(0, 0), flexible=0):
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    # Whether this is the client's last push.
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(Response, to=PushTelemetryRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
