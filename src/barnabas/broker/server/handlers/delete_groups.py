"""DeleteGroups v0-2: deletes groups without members, and their committed offsets (KIP-229)."""

from __future__ import annotations

import asyncio

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import each_group
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.kafka.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.kafka.security.acls import Operation


@handles(
    DeleteGroupsRequest,
    needs=[each_group(Operation.DELETE, "groups_names", "results", name="")],
    pieces=[Pieces("groups_names", "results", size=64, unique=True)],
    is_heavy=True,
    confirmed_by=group_coordinator("groups_names"),
    is_audited=True,
)
async def delete_groups(
    groups: GroupCoordinator, _context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    results = await asyncio.gather(
        *(_delete(groups, group_id) for group_id in dict.fromkeys(request.groups_names))
    )
    return DeleteGroupsResponse(results=list(results))


async def _delete(groups: GroupCoordinator, group_id: str) -> DeletableGroupResult:
    error = ErrorCode.NONE
    try:
        await groups.delete_group(group_id)
    except KafkaError as failure:
        error = failure.code
    return DeletableGroupResult(group_id=group_id, error_code=error)
