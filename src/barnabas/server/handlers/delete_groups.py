"""DeleteGroups v0-2: delete groups without members, and the offsets they committed (KIP-229)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.pieces import Pieces

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


def _failed(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code)
            for group_id in request.groups_names
        ]
    )


@handles(
    DeleteGroupsRequest,
    on_error=_failed,
    pieces=[Pieces("groups_names", "results", size=64, unique=True)],
    is_heavy=True,
)
async def delete_groups(
    broker: Broker, _context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    results = await asyncio.gather(
        *(_delete(broker, group_id) for group_id in dict.fromkeys(request.groups_names))
    )
    return DeleteGroupsResponse(results=list(results))


async def _delete(broker: Broker, group_id: str) -> DeletableGroupResult:
    error = ErrorCode.NONE
    try:
        deleted = broker.groups.delete_group(group_id)
        if isinstance(deleted, Awaitable):
            await deleted
    except KafkaError as failure:
        error = failure.code
    return DeletableGroupResult(group_id=group_id, error_code=error)
