"""AlterUserScramCredentials v0: sets and deletes the SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from barnabas.base.errors import KafkaError
from barnabas.broker.controller.users import CredentialChange, UserControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from barnabas.kafka.security.acls import Operation

#: of how many users the changes are decided at once, each user's as a whole: about a millisecond
_USERS_A_STEP = 64


def _failed(
    request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    users = _users(request)
    return AlterUserScramCredentialsResponse(results=_results(users, dict.fromkeys(users, error)))


@handles(
    AlterUserScramCredentialsRequest,
    needs=[Cluster(Operation.ALTER)],
    on_error=_failed,
    is_forwarded=True,
    is_audited=True,
)
async def alter_user_scram_credentials(
    users: UserControl,
    long_work: LongWork,
    context: RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    wanted: dict[str, list[CredentialChange]] = {}
    for gone in request.deletions:
        wanted.setdefault(gone.name, []).append(CredentialChange(gone.name, gone.mechanism))
    for new in request.upsertions:
        change = CredentialChange(new.name, new.mechanism, new.iterations, new.salt, new.salted_password)
        wanted.setdefault(new.name, []).append(change)
    names = iter(wanted)
    results: list[AlterUserScramCredentialsResult] = []
    async for some in long_work.slices(iter(lambda: list(islice(names, _USERS_A_STEP)), [])):
        try:
            errors = await users.alter([change for user in some for change in wanted[user]])
        except KafkaError as error:  # what the steps before have changed stays
            errors = dict.fromkeys(some, error)
        results += _results(some, errors)
    return AlterUserScramCredentialsResponse(results=results)


def _users(request: AlterUserScramCredentialsRequest) -> dict[str, None]:
    deleted = (each.name for each in request.deletions)
    return dict.fromkeys([*deleted, *(each.name for each in request.upsertions)])


def _results(users: Iterable[str], errors: Mapping[str, KafkaError]) -> list[AlterUserScramCredentialsResult]:
    results = []
    for user in users:
        result = AlterUserScramCredentialsResult(user=user)
        if user in errors:
            result.error_code, result.error_message = errors[user].code, errors[user].message
        results.append(result)
    return results
