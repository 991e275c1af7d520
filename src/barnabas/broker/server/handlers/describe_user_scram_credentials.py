"""DescribeUserScramCredentials v0: returns the users with SCRAM credentials, without secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from barnabas.base.errors import ErrorCode
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.kafka.security.acls import Operation
from barnabas.kafka.security.errors import InvalidCredential
from barnabas.kafka.security.scram import MECHANISMS, ScramCredential


@handles(
    DescribeUserScramCredentialsRequest,
    needs=[Cluster(Operation.DESCRIBE)],
    listing="results",
    unconfirmed="it tells what the image shows",
)
def describe_user_scram_credentials(
    view: BrokerView, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    configs = view.image.user_configs
    named = Counter(user.name for user in request.users or ())
    results = []
    for user in named or sorted(user for user, texts in configs.items() if _infos(texts)):
        if named[user] > 1:
            code, message = ErrorCode.DUPLICATE_RESOURCE, f"the request names '{user}' twice"
        elif not (infos := _infos(configs.get(user, {}))):
            code, message = ErrorCode.RESOURCE_NOT_FOUND, f"there is no user '{user}'"
        else:
            results.append(DescribeUserScramCredentialsResult(user=user, credential_infos=infos))
            continue
        results.append(DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message))
    return DescribeUserScramCredentialsResponse(results=results)


def _infos(texts: Mapping[str, str]) -> list[CredentialInfo]:
    infos = []
    for name, mechanism in MECHANISMS.items():
        if name in texts:
            try:
                iterations = ScramCredential.decode(texts[name]).iterations
            except InvalidCredential:
                continue  # nobody can log in by it
            infos.append(CredentialInfo(mechanism=mechanism, iterations=iterations))
    return infos
