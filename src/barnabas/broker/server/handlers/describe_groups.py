"""DescribeGroups v0-6: returns the state, protocol and members of classic groups, with their assignments.

From v4 on the response has static members' instance ids (KIP-345). A group that does not exist or is not
classic gets the state "Dead". From v6 on it also gets the error GROUP_ID_NOT_FOUND (KIP-1043).
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import ClassicGroup, GroupCoordinator, GroupState
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.leadership import group_coordinator
from barnabas.broker.server.requests.needs import each_group
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.acls import NOT_ASKED
from barnabas.kafka.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas.kafka.security.acls import Operation, ResourceType

_NOT_FOUND_FROM = 6


@handles(
    DescribeGroupsRequest,
    needs=[each_group(Operation.DESCRIBE, "groups", name="")],
    pieces=[Pieces("groups", size=64, unique=True)],
    is_heavy=True,
    listing="groups.members",
    confirmed_by=group_coordinator("groups"),
)
def describe_groups(
    groups: GroupCoordinator, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        try:
            group = groups.group(group_id)
            if not isinstance(group, ClassicGroup):
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
            described = _describe(group)
        except KafkaError as error:
            described = _failure(group_id, error)
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                described.group_state = GroupState.DEAD.value
                if context.api_version < _NOT_FOUND_FROM:
                    described.error_code = ErrorCode.NONE
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = context.access.operations(ResourceType.GROUP, group_id)
        response.groups.append(described)
    return response


def _describe(group: ClassicGroup) -> DescribedGroup:
    stable = group.has(GroupState.STABLE)
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                # Between generations the next protocol is unknown.
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=NOT_ASKED,
    )


def _failure(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id, error_code=error.code, error_message=error.message, authorized_operations=NOT_ASKED
    )
