"""ListGroups v0-5: lists the groups that this broker coordinates."""

from __future__ import annotations

from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator import ClassicGroup, ConsumerGroup, GroupCoordinator, ShareGroup
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import checked_by_handler
from barnabas.kafka.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.kafka.security.acls import Operation


@handles(
    ListGroupsRequest,
    needs=[
        checked_by_handler("cluster DESCRIBE; without it, only the groups with DESCRIBE are in the response")
    ],
    listing="groups",
    unconfirmed="it only informs",
)
def list_groups(
    groups: GroupCoordinator, long_work: LongWork, context: RequestContext, request: ListGroupsRequest
) -> MaybeAwaitable[ListGroupsResponse]:
    states = {state.lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}

    access = context.access
    shows_all = access.on_cluster(Operation.DESCRIBE)

    def describe(group: ClassicGroup | ConsumerGroup | ShareGroup) -> ListedGroup | None:
        if not shows_all and not access.on_group(Operation.DESCRIBE, group.group_id):
            return None
        listed = _listed(group)
        passes = (not states or listed.group_state.lower() in states) and (
            not types or listed.group_type in types
        )
        return listed if passes else None

    return long_work.listed(groups.groups(), describe, lambda groups: ListGroupsResponse(groups=groups))


def _listed(group: ClassicGroup | ConsumerGroup | ShareGroup) -> ListedGroup:
    listed = ListedGroup(group_id=group.group_id, group_state=group.state.value)
    if isinstance(group, ClassicGroup):
        listed.group_type, listed.protocol_type = "classic", group.protocol_type or ""
    else:
        listed.group_type = listed.protocol_type = "consumer" if isinstance(group, ConsumerGroup) else "share"
    return listed
