"""GetTelemetrySubscriptions (key 71): tell a client which metrics to push, and how often (KIP-714)."""

from barnabas.kafka.protocol.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Uuid,
)


class GetTelemetrySubscriptionsRequest(Request, key=71, versions=(0, 0), flexible=0):
    # Zero in a client's first request: the broker assigns an id.
    client_instance_id: Uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Response, to=GetTelemetrySubscriptionsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    # The id of these metrics and this interval; a push contains it.
    subscription_id: Int32 = 0
    # Codecs by their numbers in record batches, the preferred first.
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    # Whether the client sends sums as the difference to its last push.
    delta_temporality: Bool = False
    # Prefixes of metric names; "*" means all, an empty list means none.
    requested_metrics: list[String] = []
