"""SyncGroup as raw requests: the rejected requests and their errors, in each version."""

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.sync_group import SyncGroupRequest


@pytest.fixture
def sync_request(group_id, join):
    """Return the member's own SyncGroup again."""
    member = join()

    def make(**fields):
        return SyncGroupRequest(
            **{
                "group_id": group_id,
                "generation_id": member.generation,
                "member_id": member.member_id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                **fields,
            }
        )

    return make


@pytest.mark.parametrize("version", range(6))
def test_assignment_is_told_again(wire, sync_request, version):
    synced = wire(sync_request(), version)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    known = ("consumer", "range") if version >= 5 else (None, None)
    assert (synced.protocol_type, synced.protocol_name) == known


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        pytest.param({"group_id": ""}, ErrorCode.INVALID_GROUP_ID, id="empty-group-id"),
        pytest.param({"group_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown-group"),
        pytest.param({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown-member"),
        pytest.param({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION, id="old-generation"),
    ],
)
def test_sync_of_a_stranger_is_refused(wire, sync_request, version, fields, error):
    assert wire(sync_request(**fields), version).error_code == error


@pytest.mark.parametrize("fields", [{"protocol_type": "x"}, {"protocol_name": "x"}], ids=["type", "name"])
@pytest.mark.parametrize("missing", [False, True], ids=["other", "none"])
def test_protocol_must_be_the_groups(wire, sync_request, fields, missing):
    given = dict.fromkeys(fields) if missing else fields
    assert wire(sync_request(**given), 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_unknown_instance_is_refused(wire, sync_request):
    refused = wire(sync_request(group_instance_id="i"), 5)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
