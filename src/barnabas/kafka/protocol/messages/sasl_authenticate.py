"""SaslAuthenticate (key 36): exchange one client message of SASL for the server's reply (KIP-152).

v1 adds the session lifetime (KIP-368).
"""

from barnabas.kafka.protocol.schema import Bytes, Int16, Int64, Request, Response, String, since


class SaslAuthenticateRequest(Request, key=36, versions=(0, 2), flexible=2):
    auth_bytes: Bytes = b""

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(...)"  # it may hold a password


class SaslAuthenticateResponse(Response, to=SaslAuthenticateRequest):
    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = since(1, default=0)
