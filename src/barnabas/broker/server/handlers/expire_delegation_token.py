"""ExpireDelegationToken v1-2: sets a delegation token's expiry to a time from now, or deletes it (KIP-48).

Only the owner and the renewers of the token may do this.
"""

from __future__ import annotations

from barnabas.broker.controller.tokens import TokenControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.kafka.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(
    ExpireDelegationTokenRequest,
    needs=[checked_by_handler("a login that is not by a token, of the token's owner or one of its renewers")],
    is_forwarded=True,
    needs_login=True,
    is_audited=True,
)
async def expire_delegation_token(
    tokens: TokenControl, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    expires_ms = await tokens.expire(
        context.connection.principal, bytes(request.hmac), request.expiry_time_period_ms
    )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
