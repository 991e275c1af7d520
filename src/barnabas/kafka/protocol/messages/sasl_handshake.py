"""SaslHandshake (key 17): choose a SASL mechanism (KIP-43).

After v1, the client sends the mechanism's messages in SaslAuthenticate requests (KIP-152). After v0, it sends
them in frames without a header.
"""

from barnabas.kafka.protocol.schema import Int16, Request, Response, String


class SaslHandshakeRequest(Request, key=17, versions=(0, 1)):
    mechanism: String = ""


class SaslHandshakeResponse(Response, to=SaslHandshakeRequest):
    error_code: Int16 = 0
    # The broker's mechanisms.
    mechanisms: list[String] = []
