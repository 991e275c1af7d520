"""Limits of the groups and transactional ids of a principal, with ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.acl_broker import AclBroker
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MAX_NAMES = 3
REFUSED = ErrorCode.POLICY_VIOLATION
#: until the coordinator has loaded its partition
LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AclBroker]:
    settings = {
        "barnabas.groups.per.principal": str(MAX_NAMES),
        "barnabas.transactional.ids.per.principal": str(MAX_NAMES),
    }
    with AclBroker(tmp_path, **settings) as broker:
        broker.add("alice", "bob")
        wire = Wire(broker.open_address)
        wire(
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=kind,
                        resource_name="*",
                        resource_pattern_type=3,
                        principal=f"User:{user}",
                        host="*",
                        operation=2,  # ALL
                        permission_type=3,
                    )
                    for kind in (2, 3, 5)
                    for user in ("alice", "bob")
                ]
            )
        )
        for kind in (0, 1):
            wire(FindCoordinatorRequest(key_type=kind, coordinator_keys=["warm"]))
        wire.close()
        yield broker


def settled(wire: Wire, request: Any) -> int:
    """Return the error of the answer, when the coordinator is available."""
    while (code := wire(request).error_code) in LOADING:
        pass
    return int(code)


def join(wire: Wire, group: str) -> int:
    return settled(
        wire,
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
    )


def test_more_groups_and_ids_than_a_principal_may_have_are_refused(broker: AclBroker) -> None:
    alice, bob, open_wire = broker.connect("alice"), broker.connect("bob"), Wire(broker.open_address)
    asked = ErrorCode.MEMBER_ID_REQUIRED
    assert [join(alice, f"a{number}") for number in range(MAX_NAMES + 2)] == [asked] * MAX_NAMES + [
        REFUSED
    ] * 2
    assert join(alice, "a0") == asked
    assert join(bob, "b0") == asked
    assert [join(open_wire, f"o{number}") for number in range(2 * MAX_NAMES)] == [asked] * 2 * MAX_NAMES

    def begin(wire: Wire, name: str | None) -> int:
        return settled(wire, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))

    assert [begin(alice, f"a{number}") for number in range(MAX_NAMES + 1)] == [0] * MAX_NAMES + [REFUSED]
    assert begin(alice, "a1") == 0
    assert begin(bob, "a2") == 0
    assert [begin(open_wire, f"o{number}") for number in range(2 * MAX_NAMES)] == [0] * 2 * MAX_NAMES
    # one that exists is for everybody who may use it
    assert begin(alice, "o1") == 0
    for wire in (alice, bob, open_wire):
        wire.close()


def test_commits_of_new_groups_count_too(broker: AclBroker) -> None:
    alice = broker.connect("alice")
    for number in range(MAX_NAMES):
        join(alice, f"a{number}")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    (answer,) = alice(OffsetCommitRequest(group_id="by a commit", topics=[topic]), 8).topics
    assert [each.error_code for each in answer.partitions] == [REFUSED]
    alice.close()
