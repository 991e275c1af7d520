"""LeaveGroup as raw requests: one member up to version 2, several from version 3 on."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3))
def test_member_leaves(wire, join, group_id, version):
    member = join()
    assert wire(LeaveGroupRequest(group_id=group_id, member_id="ghost"), version).error_code == UNKNOWN
    assert wire(LeaveGroupRequest(group_id=group_id, member_id=member.member_id), version).error_code == 0
    (group,) = wire(DescribeGroupsRequest(groups=[group_id])).groups
    assert (group.group_state, group.members) == ("Empty", [])


@pytest.mark.parametrize("version", range(3, 6))
def test_each_leaver_has_its_own_outcome(wire, join, group_id, version):
    member = join(group_instance_id="i")
    leavers = [
        (("ghost", None), UNKNOWN),
        (("", "other"), UNKNOWN),
        (("", None), UNKNOWN),
        (("ghost", "i"), ErrorCode.FENCED_INSTANCE_ID),
        ((member.member_id, "i"), ErrorCode.NONE),
        ((member.member_id, "i"), UNKNOWN),
    ]
    request = LeaveGroupRequest(
        group_id=group_id,
        members=[MemberIdentity(member_id=m, group_instance_id=i, reason="why not") for (m, i), _ in leavers],
    )
    response = wire(request, version)
    assert response.error_code == 0
    assert [((m.member_id, m.group_instance_id), m.error_code) for m in response.members] == leavers


def test_administrator_takes_out_a_static_member(wire, join, group_id):
    join(group_instance_id="i")
    leaver = MemberIdentity(member_id="", group_instance_id="i")
    (left,) = wire(LeaveGroupRequest(group_id=group_id, members=[leaver])).members
    assert (left.member_id, left.group_instance_id, left.error_code) == ("", "i", 0)
    (group,) = wire(DescribeGroupsRequest(groups=[group_id])).groups
    assert group.group_state == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_group_that_is_not_there(wire, group_id, version):
    leavers = [MemberIdentity(member_id="m")]
    response = wire(LeaveGroupRequest(group_id=group_id, member_id="m", members=leavers), version)
    if version < 3:
        assert response.error_code == UNKNOWN
    else:
        assert (response.error_code, [m.error_code for m in response.members]) == (0, [UNKNOWN])
        # Not an error, as in Kafka: no member is unknown.
        assert wire(LeaveGroupRequest(group_id=group_id), version) == type(response)()
    refused = wire(LeaveGroupRequest(group_id="", member_id="m", members=leavers), version)
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID
