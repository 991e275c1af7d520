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
    # Zero in a client's first request: the broker gives it one.
    client_instance_id: Uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Response, to=GetTelemetrySubscriptionsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    # Of these metrics and this interval; a push names it.
    subscription_id: Int32 = 0
    # Their numbers in record batches, the best first.
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    # Whether sums are to be told as the difference to the last push.
    delta_temporality: Bool = False
    # Prefixes of names; "*" for all, none for none.
    requested_metrics: list[String] = []
