"""CreateAcls v1-3: adds ACLs (KIP-140), also for prefixes (KIP-290). An ACL that exists is no error."""

from __future__ import annotations

from barnabas.base.errors import KafkaError
from barnabas.broker.controller.acls import AclControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.acls import DISABLED, rule_of
from barnabas.broker.server.responses.mutations import limit_changes
from barnabas.kafka.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.kafka.security.acls import AclBinding, Authorizer, Operation


@handles(
    CreateAclsRequest,
    needs=[Cluster(Operation.ALTER)],
    pieces=[Pieces("creations", "results", size=64, check=limit_changes("creations"))],
    is_heavy=True,
    is_forwarded=True,
    is_audited=True,
)
async def create_acls(
    acls: AclControl, authorizer: Authorizer | None, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    if authorizer is None:
        raise DISABLED
    rules: list[AclBinding | KafkaError] = []
    for creation in request.creations:
        try:
            rules.append(rule_of(creation))
        except KafkaError as error:
            rules.append(error)
    errors = await acls.create([rule for rule in rules if isinstance(rule, AclBinding)])
    return CreateAclsResponse(
        results=[_result(rule if isinstance(rule, KafkaError) else errors.get(rule)) for rule in rules]
    )


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)
