"""DescribeDelegationToken v1-3: returns the delegation tokens that the client may see (KIP-48, KIP-373).

The owner, the renewers and the creator of a token may see it. Other users need DESCRIBE on the token or
DESCRIBE_TOKENS on its owner.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.logins.delegation_tokens import DelegationToken, TokenKeys
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.kafka.security.acls import Operation, ResourceType
from barnabas.kafka.security.principal import Principal


@handles(
    DescribeDelegationTokenRequest,
    needs=[
        checked_by_handler(
            "a login that is not by a token; the response has the client's own tokens, the tokens with "
            "delegation token DESCRIBE, and the tokens of owners with user DESCRIBE_TOKENS"
        )
    ],
    listing="tokens",
    unconfirmed="it tells what the image shows",
    needs_login=True,
)
def describe_delegation_token(
    view: BrokerView,
    long_work: LongWork,
    keys: TokenKeys | None,
    context: RequestContext,
    request: DescribeDelegationTokenRequest,
) -> MaybeAwaitable[DescribeDelegationTokenResponse]:
    if keys is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {Principal(each.principal_name, each.principal_type) for each in request.owners}
    principal, access = context.connection.principal, context.access

    def describe(token: DelegationToken) -> DescribedDelegationToken | None:
        if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            return None
        if not (
            token.concerns(principal)
            or access.allows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
            or access.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
        ):
            return None
        return _description(token, keys.hmac(token.id))

    tokens = view.image.delegation_tokens
    ids = sorted(tokens) if owners is None or owners else []  # the map has no order
    return long_work.listed(
        ids,
        lambda token_id: describe(tokens[token_id]),
        lambda found: DescribeDelegationTokenResponse(tokens=found),
    )


def _description(token: DelegationToken, mac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=mac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.kind, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )
