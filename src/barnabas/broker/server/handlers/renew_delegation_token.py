"""RenewDelegationToken v1-2: sets a later expiry time of a delegation token (KIP-48).

Only the owner and the renewers of the token may do this.
"""

from __future__ import annotations

from barnabas.broker.controller.tokens import TokenControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.kafka.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(
    RenewDelegationTokenRequest,
    needs=[checked_by_handler("a login that is not by a token, of the token's owner or one of its renewers")],
    is_forwarded=True,
    needs_login=True,
    is_audited=True,
)
async def renew_delegation_token(
    tokens: TokenControl, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    expires_ms = await tokens.renew(
        context.connection.principal, bytes(request.hmac), request.renew_period_ms
    )
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
