"""DeleteAcls v1-3: deletes the ACLs that match filters (KIP-140), also for prefixes (KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.base.errors import KafkaError
from barnabas.broker.controller.acls import AclControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.acls import DISABLED, filter_of
from barnabas.broker.server.responses.mutations import limit_changes
from barnabas.kafka.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.kafka.security.acls import AclBinding, AclFilter, Authorizer, Operation, ResourcePattern


@handles(
    DeleteAclsRequest,
    needs=[Cluster(Operation.ALTER)],
    pieces=[Pieces("filters", "filter_results", size=16, check=limit_changes("filters"))],
    is_heavy=True,
    listing="filter_results.matching_acls",
    is_forwarded=True,
    is_audited=True,
)
async def delete_acls(
    acls: AclControl,
    long_work: LongWork,
    authorizer: Authorizer | None,
    context: RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse:
    if authorizer is None:
        raise DISABLED
    filters: list[AclFilter | KafkaError] = []
    for each in request.filters:
        try:
            filters.append(filter_of(each))
        except KafkaError as error:
            filters.append(error)
    found, errors = await acls.delete([each for each in filters if isinstance(each, AclFilter)])
    selected = iter(found)
    return DeleteAclsResponse(
        filter_results=[
            _refused(each)
            if isinstance(each, KafkaError)
            else await _result(long_work, next(selected), errors)
            for each in filters
        ]
    )


def _refused(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message)


async def _result(
    long_work: LongWork, rules: Iterable[AclBinding], errors: Mapping[ResourcePattern, KafkaError]
) -> DeleteAclsFilterResult:
    matching = [_matching(rule, errors.get(rule.resource)) async for rule in long_work.slices(rules)]
    return DeleteAclsFilterResult(error_message=None, matching_acls=matching)


def _matching(rule: AclBinding, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    resource, entry = rule
    return DeleteAclsMatchingAcl(
        error_code=error.code if error is not None else 0,
        error_message=error.message if error is not None else None,
        resource_type=resource.type,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
