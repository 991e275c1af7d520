"""CreateDelegationToken (key 38): create a token that lets others log in as its owner (KIP-48).

v3 lets a user create tokens for another user (KIP-373).
"""

from barnabas.kafka.protocol.schema import (
    Bytes,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    since,
)


class CreatableRenewers(Struct):
    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(Request, key=38, versions=(1, 3), flexible=2):
    # Null or empty: the owner is the requester.
    owner_principal_type: String | None = since(3, default="")
    owner_principal_name: String | None = since(3, default="")
    renewers: list[CreatableRenewers] = []
    # Milliseconds; -1 for as long as the broker allows.
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Response, to=CreateDelegationTokenRequest):
    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    # The password is the base64 of this HMAC.
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0

    def __repr__(self) -> str:
        return f"CreateDelegationTokenResponse(error_code={self.error_code}, token_id={self.token_id!r}, ...)"
