"""Keeps requests about delegation tokens from those who have not proven who they are (KIP-48)."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.answers import Answer
from barnabas.broker.logins.delegation_tokens import TokenPrincipal
from barnabas.broker.server.requests.context import Handle, RequestContext
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.security.principal import ANONYMOUS


def logged_in_only(handle: Handle) -> Handle:
    """`handle` for clients that have logged in or shown a certificate, and not by a delegation token."""

    def check_and_handle(context: RequestContext, request: Request) -> Answer[Response | None]:
        principal = context.connection.principal
        if principal == ANONYMOUS or isinstance(principal, TokenPrincipal):
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
                "ask on a listener where clients log in, and not by a delegation token",
            )
        return handle(context, request)

    return check_and_handle
