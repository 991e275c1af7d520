"""ExpireDelegationToken (key 40): set a token's expiry to a time from now, or delete the token (KIP-48)."""

from barnabas.kafka.protocol.schema import Bytes, Int16, Int32, Int64, Request, Response


class ExpireDelegationTokenRequest(Request, key=40, versions=(1, 2), flexible=2):
    hmac: Bytes = b""
    # Milliseconds from now; a negative number deletes the token.
    expiry_time_period_ms: Int64 = 0

    def __repr__(self) -> str:
        return f"ExpireDelegationTokenRequest(..., expiry_time_period_ms={self.expiry_time_period_ms})"


class ExpireDelegationTokenResponse(Response, to=ExpireDelegationTokenRequest):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
