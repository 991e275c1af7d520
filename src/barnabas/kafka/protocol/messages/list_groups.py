"""ListGroups (key 16): list the groups that this broker coordinates.

v4 can filter by the groups' state (KIP-518), v5 also by their type (KIP-848).
"""

from barnabas.kafka.protocol.schema import Int16, Int32, Request, Response, String, Struct, since


class ListGroupsRequest(Request, key=16, versions=(0, 5), flexible=3):
    # Empty means any.
    states_filter: list[String] = since(4, default=[])
    # Empty means any.
    types_filter: list[String] = since(5, default=[])


class ListedGroup(Struct):
    group_id: String = ""
    protocol_type: String = ""
    group_state: String = since(4, default="")
    group_type: String = since(5, default="")


class ListGroupsResponse(Response, to=ListGroupsRequest):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0
    groups: list[ListedGroup] = []
