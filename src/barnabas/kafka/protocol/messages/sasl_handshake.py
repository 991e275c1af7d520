"""SaslHandshake (key 17): choose a SASL mechanism; after v1 SaslAuthenticate follows (KIP-152)."""

from barnabas.kafka.protocol.schema import Int16, Request, Response, String


class SaslHandshakeRequest(Request, key=17, versions=(0, 1)):
    mechanism: String = ""


class SaslHandshakeResponse(Response, to=SaslHandshakeRequest):
    error_code: Int16 = 0
    # The broker's mechanisms.
    mechanisms: list[String] = []
