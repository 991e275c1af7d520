"""Heartbeat over the wire."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param({}, ErrorCode.NONE, id="member"),
        pytest.param({"group_id": ""}, ErrorCode.INVALID_GROUP_ID, id="empty-group-id"),
        pytest.param({"group_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown-group"),
        pytest.param({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown-member"),
        pytest.param({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID, id="empty-member-id"),
        pytest.param({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION, id="other-generation"),
    ],
)
def test_heartbeat(wire, join, group_id, version, fields, error):
    member = join()
    beat = {"group_id": group_id, "generation_id": member.generation, "member_id": member.member_id}
    assert wire(HeartbeatRequest(**{**beat, **fields}), version).error_code == error


def test_replaced_static_member_is_fenced(wire, join, join_request, group_id):
    old = join(group_instance_id="i")
    wire(join_request(group_instance_id="i"))
    beat = HeartbeatRequest(
        group_id=group_id, generation_id=old.generation, member_id=old.member_id, group_instance_id="i"
    )
    assert wire(beat).error_code == ErrorCode.FENCED_INSTANCE_ID
    # Below version 3 nobody can say that they are static: the old id is just unknown.
    assert wire(beat, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
