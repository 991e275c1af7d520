"""DeleteGroups over the wire."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest


@pytest.mark.parametrize("version", range(3))
def test_group_is_deleted_when_its_members_have_left(
    wire, topic, join, group_id, commit_request, committed, version
):
    member = join()
    wire(
        commit_request(
            topic, {0: 7}, member_id=member.member_id, generation_id_or_member_epoch=member.generation
        )
    )

    def delete():
        response = wire(DeleteGroupsRequest(groups_names=[group_id, "nobody"]), version)
        return {result.group_id: result.error_code for result in response.results}

    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert delete() == {group_id: ErrorCode.NON_EMPTY_GROUP, "nobody": missing}
    wire(LeaveGroupRequest(group_id=group_id, member_id=member.member_id), 2)
    assert delete() == {group_id: 0, "nobody": missing}
    assert delete() == {group_id: missing, "nobody": missing}
    assert committed(topic) == {}
    assert wire(DescribeGroupsRequest(groups=[group_id]), 5).groups[0].group_state == "Dead"


def test_nothing_to_delete(wire):
    assert wire(DeleteGroupsRequest()).results == []
