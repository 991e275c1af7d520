"""JoinGroup as raw requests: the answers of each version. Tests in virtual time cover
the end of rebalances.
"""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest

VERSIONS = range(10)


@pytest.mark.parametrize("version", VERSIONS)
def test_first_member_leads(wire, join_request, version):
    joined = wire(join_request(), version, client_id="app")
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = wire(join_request(member_id=joined.member_id), version, client_id="app")
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.member_id.startswith("app-")
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    (member,) = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, join_request().protocols[0].metadata)
    assert not joined.skip_assignment


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param({"group_id": ""}, ErrorCode.INVALID_GROUP_ID, id="empty-group-id"),
        pytest.param({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT, id="short-session"),
        pytest.param({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT, id="long-session"),
        pytest.param({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown-member"),
        pytest.param({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="no-protocols"),
        pytest.param({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="no-protocol-type"),
    ],
)
def test_bad_join_is_refused(wire, join_request, version, fields, error):
    refused = wire(join_request(**fields), version)
    assert (refused.error_code, refused.generation_id, refused.members) == (error, -1, [])
    assert refused.member_id == fields.get("member_id", "")


@pytest.mark.parametrize(
    "fields", [{"protocol_type": "connect"}, {"protocols": {"sticky": b""}}], ids=["type", "protocol"]
)
def test_member_that_fits_in_nowhere_is_refused(connect, join, join_request, fields):
    join()
    refused = connect()(join_request(**fields))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_two_members_share_a_round(connect, join, join_request, group_id):
    old = join()
    new = connect()
    given = new(join_request()).member_id
    parked = new.send(join_request(member_id=given))
    _await_rebalance(old, group_id)
    led = old.wire(join_request(member_id=old.member_id))
    followed = new.receive(parked)
    assert led.generation_id == followed.generation_id == old.generation + 1
    assert led.leader == followed.leader == old.member_id
    assert {member.member_id for member in led.members} == {old.member_id, given}
    assert followed.members == []


def test_parked_join_survives_a_lost_connection(connect, join, join_request, group_id):
    old = join()
    lost = connect()
    given = lost(join_request()).member_id
    lost.send(join_request(member_id=given))
    _await_rebalance(old, group_id)
    lost.close()
    again = connect()
    parked = again.send(join_request(member_id=given))
    led = old.wire(join_request(member_id=old.member_id))
    assert {member.member_id for member in led.members} == {old.member_id, given}
    assert again.receive(parked).generation_id == led.generation_id


@pytest.mark.parametrize("version", [8, 9])
def test_static_leader_comes_back_without_a_rebalance(wire, join, join_request, version):
    old = join(group_instance_id="i")
    back = wire(join_request(group_instance_id="i"), version)
    assert (back.error_code, back.generation_id) == (0, old.generation)
    assert back.member_id != old.member_id
    if version >= 9:
        assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 1)
    else:
        assert (back.leader, back.skip_assignment, back.members) == (old.member_id, False, [])
    kept = wire(
        SyncGroupRequest(
            group_id=join_request().group_id,
            generation_id=back.generation_id,
            member_id=back.member_id,
            group_instance_id="i",
        ),
        4,
    )
    assert kept.assignment == b"all"


def test_static_member_that_was_replaced_is_fenced(wire, join, join_request):
    old = join(group_instance_id="i")
    wire(join_request(group_instance_id="i"))
    refused = old.wire(join_request(member_id=old.member_id, group_instance_id="i"))
    assert refused.error_code == ErrorCode.FENCED_INSTANCE_ID


def _await_rebalance(member, group_id):
    beat = HeartbeatRequest(group_id=group_id, generation_id=member.generation, member_id=member.member_id)
    while member.wire(beat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
