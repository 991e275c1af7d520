"""DescribeAcls v1-3: returns the ACLs that match a filter (KIP-140), also for prefixes (KIP-290)."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Cluster
from barnabas.broker.server.responses.acls import DISABLED, filter_of
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.kafka.security.acls import AclFilter, Acls, Authorizer, Operation, ResourcePattern


@handles(
    DescribeAclsRequest,
    needs=[Cluster(Operation.DESCRIBE)],
    listing="resources.acls",
    unconfirmed="it tells what the image shows",
)
def describe_acls(
    view: BrokerView,
    long_work: LongWork,
    authorizer: Authorizer | None,
    context: RequestContext,
    request: DescribeAclsRequest,
) -> MaybeAwaitable[DescribeAclsResponse]:
    if authorizer is None:
        raise DISABLED
    chosen = filter_of(request)
    acls = view.image.acls
    patterns: Collection[ResourcePattern] = acls.rules if chosen.exact is None else [chosen.exact]
    return long_work.listed(
        patterns,
        lambda resource: _description(acls, chosen, resource),
        lambda found: DescribeAclsResponse(error_message=None, resources=found),
    )


def _description(acls: Acls, chosen: AclFilter, resource: ResourcePattern) -> DescribeAclsResource | None:
    rules = acls.rules.get(resource)
    if rules is None or not chosen.selects_resource(resource):
        return None
    entries = [
        AclDescription(
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for entry in rules.entries
        if chosen.selects_entry(entry)
    ]
    if not entries:
        return None
    return DescribeAclsResource(
        resource_type=resource.type, resource_name=resource.name, pattern_type=resource.pattern, acls=entries
    )
