"""JoinGroup v0-9: makes the client a member of a classic group, or a participant of its rebalance.

A dynamic member first gets a member id (KIP-394). Static members are supported (KIP-345). The coordinator
logs the client's reason (KIP-800). A static leader that has restarted must not assign partitions (KIP-814).
The response waits until the join phase completes.
"""

from __future__ import annotations

from barnabas.base.errors import KafkaError
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator import Caller, GroupCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group
from barnabas.broker.server.requests.new_names import NewGroups
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.kafka.security.acls import Operation


def _failed(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)


@handles(
    JoinGroupRequest,
    needs=[Group(Operation.READ)],
    on_error=_failed,
    is_held_back=True,
    confirmed_by=group_coordinator(),
    new_names=NewGroups,
)
def join_group(
    groups: GroupCoordinator, context: RequestContext, request: JoinGroupRequest
) -> MaybeAwaitable[JoinGroupResponse]:
    caller = Caller(context.api_version, context.client_id or "", context.client_host)
    return groups.join(request, caller)
