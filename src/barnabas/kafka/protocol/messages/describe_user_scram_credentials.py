"""DescribeUserScramCredentials (key 50): list users with SCRAM credentials, without secrets (KIP-554)."""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Request, Response, String, Struct


class UserName(Struct):
    name: String = ""


class DescribeUserScramCredentialsRequest(Request, key=50, versions=(0, 0), flexible=0):
    # Null or empty for all users.
    users: list[UserName] | None = []


class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = None
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(Response, to=DescribeUserScramCredentialsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: list[DescribeUserScramCredentialsResult] = []
