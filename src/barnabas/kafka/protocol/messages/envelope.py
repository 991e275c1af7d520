"""Envelope (key 58): a broker forwards a client's request to the controller (KIP-590)."""

from barnabas.kafka.protocol.schema import Bytes, Int16, Request, Response


class EnvelopeRequest(Request, key=58, versions=(0, 0), flexible=0):
    # The header and the message of the client's request, as a frame has them.
    request_data: Bytes = b""
    # Null: the client has not authenticated.
    request_principal: Bytes | None = b""
    # The client's address: 4 or 16 bytes.
    client_host_address: Bytes = b""


class EnvelopeResponse(Response, to=EnvelopeRequest):
    # The header and the message of the response; null if the broker rejected the envelope.
    response_data: Bytes | None = None
    error_code: Int16 = 0
