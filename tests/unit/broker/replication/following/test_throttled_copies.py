"""Copies that the leader or the follower throttles (KIP-73)."""

from __future__ import annotations

import pytest

from barnabas.broker.config import BrokerConfig
from barnabas.broker.replication.throttles import UNLIMITED


def throttled(node, side, rate):
    """Throttle every replica on one side of a node."""
    throttle = node.throttle if side == "follower" else node.leader_throttle
    throttle.set_rate(rate)
    throttle.set_throttled("t", {0})


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_copy_takes_as_long_as_its_rate_says_and_goes_on_when_it_is_lifted(scenario, side):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        follower.config = BrokerConfig(node_id=2, replica_fetch_max_bytes=1000)
        throttled(leader if side == "leader" else follower, side, 10_000)
        cluster.elect(1, 0, isr=(1,), only=[leader])
        for _ in range(200):
            leader.produce(bytes(900))
        size = leader.log.size
        cluster.elect(1, 0, isr=(1,))
        await cluster.settle(10)
        copied = follower.log.size
        assert 90_000 < copied < 130_000 < size
        for node in (leader, follower):
            node.throttle.set_rate(UNLIMITED)
            node.leader_throttle.set_rate(UNLIMITED)
        await cluster.settle(3)
        assert follower.log.size == size

    scenario(story)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_in_sync_is_not_throttled(scenario, side):
    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        throttled(leader if side == "leader" else follower, side, 1)
        cluster.elect(1, 0, isr=(1, 2))
        for _ in range(20):
            leader.produce(bytes(900))
            await cluster.settle(0.1)
        assert follower.content() == leader.content()

    scenario(story)
