"""SaslAuthenticate v0-2: rejects a request that no SaslHandshake precedes (KIP-152).

`barnabas.broker.server.network.login` answers the requests of a login, also those of another login (KIP-368).
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Anyone
from barnabas.kafka.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


@handles(SaslAuthenticateRequest, needs=[Anyone()], unconfirmed="it is about the connection")
def sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate follows a SaslHandshake, on a listener with SASL",
    )
