"""LeaveGroup v0-5: removes members from a classic group.

From v3 on a request can name several members, also static members (KIP-345). In v5 a request has a reason,
which the coordinator logs (KIP-800).
"""

from __future__ import annotations

from barnabas.broker.awaitables import MaybeAwaitable, then
from barnabas.broker.coordinator import GroupCoordinator
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import Group
from barnabas.kafka.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from barnabas.kafka.security.acls import Operation

#: the first version whose requests can have several members
_BATCHED_FROM = 3


@handles(LeaveGroupRequest, needs=[Group(Operation.READ)], confirmed_by=group_coordinator())
def leave_group(
    groups: GroupCoordinator, context: RequestContext, request: LeaveGroupRequest
) -> MaybeAwaitable[LeaveGroupResponse]:
    if context.api_version >= _BATCHED_FROM:
        return groups.leave(request.group_id, request.members)
    leaver = MemberIdentity(member_id=request.member_id)
    return then(groups.leave(request.group_id, [leaver]), _single)


def _single(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    """Convert a response to the form of versions below v3: the error of the only member is that of all."""
    return LeaveGroupResponse(error_code=answer.members[0].error_code)
