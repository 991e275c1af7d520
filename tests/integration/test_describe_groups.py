"""DescribeGroups over the wire."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.leave_group import LeaveGroupRequest

NOT_ASKED = -(2**31)


@pytest.fixture
def describe(wire, group_id):
    def ask(version=6, **fields):
        (group,) = wire(DescribeGroupsRequest(groups=[group_id], **fields), version).groups
        assert group.group_id == group_id
        return group

    return ask


@pytest.mark.parametrize("version", range(7))
def test_stable_group(describe, join, join_request, version):
    member = join(group_instance_id="i")
    group = describe(version)
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (described,) = group.members
    assert (described.member_id, described.client_id) == (member.member_id, "wire")
    assert described.client_host == "/127.0.0.1"
    assert described.group_instance_id == ("i" if version >= 4 else None)
    assert described.member_metadata == join_request().protocols[0].metadata
    assert described.member_assignment == b"all"
    assert group.authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", range(7))
def test_group_that_is_not_there(describe, version):
    group = describe(version)
    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (group.error_code, group.group_state, group.members) == (missing, "Dead", [])
    if version >= 6:
        assert group.error_message == f"Group {group.group_id} not found."


def test_group_on_its_way(wire, describe, join_request, group_id):
    member_id = wire(join_request()).member_id
    assert (describe().group_state, describe().members) == ("Empty", [])
    wire(join_request(member_id=member_id))
    group = describe()
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [(m.member_id, m.member_metadata, m.member_assignment) for m in group.members] == [
        (member_id, b"", b"")
    ]
    wire(LeaveGroupRequest(group_id=group_id, member_id=member_id), 2)
    assert (describe().group_state, describe().protocol_type) == ("Empty", "consumer")


def test_operations_are_told_when_asked(describe, join):
    join()
    described = describe(include_authorized_operations=True)
    # READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
    assert described.authorized_operations == sum(1 << code for code in (3, 6, 8, 10, 11))
