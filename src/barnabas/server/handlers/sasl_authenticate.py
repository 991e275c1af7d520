"""SaslAuthenticate v0-2: where it is not expected, on a listener without SASL, or after the login (KIP-152).

`barnabas.server.network.login` answers it where it is.
"""

from __future__ import annotations

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.needs import Anyone


@handles(SaslAuthenticateRequest, needs=[Anyone()])
def sasl_authenticate(
    ports: None, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate follows a SaslHandshake, on a listener with SASL",
    )
