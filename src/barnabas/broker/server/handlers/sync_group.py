"""SyncGroup v0-5: the group's leader sends the assignment, and each member receives its part."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.kafka.security.acls import Operation

_PROTOCOL_REQUIRED_FROM = 5


@handles(SyncGroupRequest, needs=[Group(Operation.READ)], is_held_back=True, confirmed_by=group_coordinator())
def sync_group(
    groups: GroupCoordinator, context: RequestContext, request: SyncGroupRequest
) -> MaybeAwaitable[SyncGroupResponse]:
    if context.api_version >= _PROTOCOL_REQUIRED_FROM and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return groups.sync(request)
