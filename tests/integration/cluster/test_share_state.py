"""The state of share groups when its coordinators fail, one after another."""

from __future__ import annotations

import pytest
from tests.integration.conftest import use_share_groups
from tests.integration.test_share_group_state import find_share_coordinator, initialize, read, summary, write

from barnabas.base.errors import ErrorCode
from barnabas.base.types import SHARE_GROUP_STATE_TOPIC

RETRIED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


@pytest.fixture
def cluster(barnabas_cluster):
    return barnabas_cluster(
        brokers=3,
        settings={
            "replica.lag.time.max.ms": "1000",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.snapshot.update.records.per.snapshot": "3",
        },
    )


def retried(ask, wire, *args, **fields):
    """Repeat a request until the coordinator answers it."""
    while (answer := ask(wire, *args, **fields)).error_code in RETRIED:
        pass
    return answer


def test_a_state_survives_its_coordinators(cluster, connect):
    cluster.create_topic("t", 1)
    cluster.wait_in_sync("t")
    wire = connect(cluster.address_of(cluster.controller()))
    use_share_groups(wire)
    find_share_coordinator(wire)
    cluster.wait_in_sync(SHARE_GROUP_STATE_TOPIC)
    written = 0
    for epoch in (4, 5):
        leader = cluster.leader_of(SHARE_GROUP_STATE_TOPIC)
        wire = connect(cluster.address_of(leader))
        if not written:
            assert retried(initialize, wire, state_epoch=1).error_code == 0
        for _ in range(5):
            done = retried(write, wire, (written, written, 2, 1), state_epoch=1, leader_epoch=epoch)
            assert done.error_code == 0
            written += 1
        assert read(wire, leader_epoch=epoch + 1).error_code == 0
        cluster.kill(leader)
        other = connect(cluster.address_of(cluster.leader_of(SHARE_GROUP_STATE_TOPIC)))
        found = retried(read, other, leader_epoch=epoch + 1)
        (batch,) = found.state_batches
        assert (batch.first_offset, batch.last_offset, found.state_epoch) == (0, written - 1, 1)
        assert summary(other).leader_epoch == epoch + 1
        fenced = write(other, state_epoch=1, leader_epoch=epoch)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        cluster.restart(leader)
        cluster.wait_in_sync(SHARE_GROUP_STATE_TOPIC)
