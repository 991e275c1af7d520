"""Consumers that read from followers (KIP-392)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from tests.unit.broker.replication.following.conftest import TOPIC_ID

from barnabas.base.errors import ErrorCode
from barnabas.broker.metadata.image import BrokerEndpoint
from barnabas.broker.server.fetching.preferred import RACK_AWARE
from barnabas.broker.server.handlers import fetch as handler
from barnabas.broker.server.requests.context import NoConnection
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.security.acls import UNRESTRICTED

LISTENER = "PLAINTEXT"


def place(cluster, **racks):
    for name, rack in racks.items():
        broker = cluster.brokers[int(name[1:])]
        endpoint = BrokerEndpoint(LISTENER, "h", 9092)
        cluster.brokers[broker.id] = broker._replace(rack=rack, endpoints=(endpoint,))


def consume(node, offset=0, *, rack="", wait_ms=500, epoch=-1, version=17, session=(0, -1)):
    """Return a future of a consumer's fetch of the partition: its result or its error."""
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        rack_id=rack,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])],
    )
    context = SimpleNamespace(
        api_version=version,
        listener=LISTENER,
        access=UNRESTRICTED,
        usage=None,
        connection=NoConnection(LISTENER),
    )
    answer = handler.fetch.handle(node.ports, context, request)

    async def wait():
        response = await answer if asyncio.isfuture(answer) else answer
        return response.responses[0].partitions[0]

    return asyncio.ensure_future(wait())


def test_a_consumer_is_sent_to_the_follower_in_its_rack_at_once(scenario):
    async def story(cluster):
        leader, *_ = cluster.add(1, 2, 3, replica_selector_class=RACK_AWARE)
        place(cluster, b1="a", b2="b", b3="c")
        cluster.elect(1, 0)
        await cluster.settle()
        began = asyncio.get_running_loop().time()
        assert (await consume(leader, rack="b")).preferred_read_replica == 2
        assert (await consume(leader, rack="c", session=(0, 0))).preferred_read_replica == 3
        assert asyncio.get_running_loop().time() == began  # KAFKA-13767
        for rack in ("a", "elsewhere", ""):
            assert (await consume(leader, rack=rack, wait_ms=0)).preferred_read_replica == -1
        assert (await consume(cluster.nodes[2], rack="c", wait_ms=0)).preferred_read_replica == -1

    scenario(story)


def test_nobody_is_sent_away_without_the_rack_aware_selector(scenario):
    async def story(cluster):
        leader, _ = cluster.add(1, 2)
        place(cluster, b1="a", b2="b")
        cluster.elect(1, 0)
        await cluster.settle()
        assert (await consume(leader, rack="b", wait_ms=0)).preferred_read_replica == -1

    scenario(story)


def test_a_follower_that_is_out_of_sync_or_lacks_the_offset_is_not_preferred(scenario):
    async def story(cluster):
        leader, *_ = cluster.add(1, 2, 3, replica_selector_class=RACK_AWARE)
        place(cluster, b1="a", b2="b", b3="c")
        cluster.elect(1, 0, isr=(1, 2))
        await cluster.settle()
        assert (await consume(leader, rack="c", wait_ms=0)).preferred_read_replica == -1
        cluster.cut.add((2, 1))
        leader.produce(b"a")
        leader.produce(b"b")
        assert (await consume(leader, 1, rack="b", wait_ms=0)).preferred_read_replica == -1
        assert (await consume(leader, 0, rack="b", wait_ms=0)).preferred_read_replica == 2
        cluster.cut.clear()
        await cluster.settle()
        assert (await consume(leader, 0, rack="b", wait_ms=0)).preferred_read_replica == 2

    scenario(story)


def test_a_consumer_that_waits_at_a_follower_is_woken_as_its_watermark_moves(scenario):
    """KAFKA-14334."""

    async def story(cluster):
        leader, follower = cluster.add(1, 2)
        cluster.elect(1, 0)
        await cluster.settle()
        waits = consume(follower, 0, wait_ms=10_000)
        await asyncio.sleep(0.1)
        leader.produce(b"a")
        data = await waits
        assert data.records
        assert data.high_watermark == 1
        assert asyncio.get_running_loop().time() < 3

    scenario(story)


def test_a_follower_serves_nothing_above_its_watermark(scenario):
    async def story(cluster):
        leader, follower, _ = cluster.add(1, 2, 3)
        cluster.cut.add((3, 1))
        cluster.elect(1, 0)
        leader.produce(b"a")
        await cluster.settle()
        assert follower.log.log_end_offset == 1
        data = await consume(follower, 0, wait_ms=0)
        assert (data.error_code, data.high_watermark, bool(data.records)) == (0, 0, False)
        assert (await consume(follower, 5, wait_ms=0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    scenario(story)


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (10, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (11, -1, ErrorCode.NONE),
        (12, 2, ErrorCode.FENCED_LEADER_EPOCH),
        (12, 4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (12, 3, ErrorCode.NONE),
    ],
)
def test_which_consumers_a_follower_serves(scenario, version, epoch, code):
    async def story(cluster):
        _, follower = cluster.add(1, 2)
        cluster.elect(1, 3)
        await cluster.settle()
        assert (await consume(follower, wait_ms=0, epoch=epoch, version=version)).error_code == code

    scenario(story)
