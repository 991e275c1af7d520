"""UnregisterBroker (key 64): remove the registration of a broker (KIP-500)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Request, Response, String


class UnregisterBrokerRequest(Request, key=64, versions=(0, 0), flexible=0):
    broker_id: Int32 = 0


class UnregisterBrokerResponse(Response, to=UnregisterBrokerRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
