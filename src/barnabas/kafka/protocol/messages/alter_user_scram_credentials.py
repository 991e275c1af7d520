"""AlterUserScramCredentials (key 51): set and delete users' SCRAM passwords (KIP-554)."""

from barnabas.kafka.protocol.schema import Bytes, Int8, Int16, Int32, Request, Response, String, Struct


class ScramCredentialDeletion(Struct):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    # The password as the mechanism salts it (RFC 5802: SaltedPassword).
    salted_password: Bytes = b""

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, ...)"


# librdkafka ends the request with a section of tagged fields too many.
class AlterUserScramCredentialsRequest(Request, key=51, versions=(0, 0), flexible=0, slack=1):
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class AlterUserScramCredentialsResponse(Response, to=AlterUserScramCredentialsRequest):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
