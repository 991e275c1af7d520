"""CreateDelegationToken v1-3: creates a token with which a client logs in as the token's owner (KIP-48).

A user can create tokens for another user with the permission CREATE_TOKENS on that user (KIP-373).
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.controller.tokens import TokenControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.kafka.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.kafka.security.acls import Operation, ResourceType
from barnabas.kafka.security.principal import Principal

_USER = "User"


@handles(
    CreateDelegationTokenRequest,
    needs=[
        checked_by_handler(
            "a login that is not by a token; for a token of another user: CREATE_TOKENS on that user"
        )
    ],
    is_forwarded=True,
    needs_login=True,
    is_audited=True,
)
async def create_delegation_token(
    tokens: TokenControl, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = owner = context.connection.principal
    if request.owner_principal_type and request.owner_principal_name:
        owner = Principal(request.owner_principal_name, request.owner_principal_type)
    if owner != requester and not context.access.allows(
        Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    keys = tokens.keys()
    renewers = [Principal(each.principal_name, each.principal_type) for each in request.renewers]
    if any(each.kind != _USER for each in (owner, *renewers)):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    token = await tokens.create(requester, owner, renewers, request.max_lifetime_ms)
    return CreateDelegationTokenResponse(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=keys.hmac(token.id),
    )
