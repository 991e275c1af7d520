"""ListGroups v0-5: the groups coordinated here, by state from v4 on (KIP-518), by type from v5 on (KIP-848).

All groups are of type "classic". Filters do not mind the case; what no group can be matches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.server.context import RequestContext
from barnabas.server.handlers import handles

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

_TYPE = "classic"


@handles(ListGroupsRequest)
def list_groups(broker: Broker, _context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_TYPE,
            )
            for group in broker.groups.groups()
            if (not states or group.state.value.lower() in states) and (not types or _TYPE in types)
        ]
    )
