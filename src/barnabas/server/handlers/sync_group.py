"""SyncGroup v0-5: the leader hands in the assignment, everyone gets their part when it is stored.

Static members (KIP-345); from v5 on protocol type and name are given and must be the group's (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

_PROTOCOL_REQUIRED_FROM = 5


@handles(SyncGroupRequest)
def sync_group(
    broker: Broker, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if context.api_version >= _PROTOCOL_REQUIRED_FROM and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return broker.groups.sync(request)
