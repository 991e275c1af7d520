"""DescribeDelegationToken (key 41): list the delegation tokens that the caller may see (KIP-48).

v3 adds each token's requester (KIP-373).
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


class DescribeDelegationTokenOwner(Struct):
    principal_type: String = ""
    principal_name: String = ""


class DescribeDelegationTokenRequest(Request, key=41, versions=(1, 3), flexible=2):
    # Null: all.
    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribedDelegationTokenRenewer(Struct):
    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(Struct):
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: String = since(3, default="")
    token_requester_principal_name: String = since(3, default="")
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []

    def __repr__(self) -> str:
        return f"DescribedDelegationToken(token_id={self.token_id!r}, ...)"


class DescribeDelegationTokenResponse(Response, to=DescribeDelegationTokenRequest):
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0
