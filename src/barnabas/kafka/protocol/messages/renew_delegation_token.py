"""RenewDelegationToken (key 39): extend the validity of a token (KIP-48)."""

from barnabas.kafka.protocol.schema import Bytes, Int16, Int32, Int64, Request, Response


class RenewDelegationTokenRequest(Request, key=39, versions=(1, 2), flexible=2):
    hmac: Bytes = b""
    # Milliseconds from now; a negative number means the broker's default.
    renew_period_ms: Int64 = 0

    def __repr__(self) -> str:
        return f"RenewDelegationTokenRequest(..., renew_period_ms={self.renew_period_ms})"


class RenewDelegationTokenResponse(Response, to=RenewDelegationTokenRequest):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
