"""A broker process that cannot reach ZooKeeper, while its clients and the other brokers can reach it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from tests.relay import Relay

from barnabas.base.errors import ErrorCode
from barnabas.broker.metadata.zookeeper.address import parse_address
from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.testing import process_broker
from barnabas.testing.barnabas_cluster import BarnabasCluster
from barnabas.testing.running_broker import BrokerSettings

PATIENT = 90.0
GROUP = "copies"


class Cuts:
    """A relay to ZooKeeper for each broker, in their own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._relays: dict[int, Relay] = {}

    def routed(self, node: BrokerSettings) -> BrokerSettings:
        """Return the settings of a broker that reaches ZooKeeper through its relay."""
        address = parse_address(node.settings["zookeeper.connect"])
        if node.broker_id not in self._relays:
            relay = self._relays[node.broker_id] = Relay(int(address.servers[0].rpartition(":")[2]))
            asyncio.run_coroutine_threadsafe(relay.start(), self._loop).result()
        through = f"{self._relays[node.broker_id].address}{address.chroot}"
        return BrokerSettings(node.broker_id, {**node.settings, "zookeeper.connect": through}, node.routes)

    def cut(self, broker: int) -> None:
        self._loop.call_soon_threadsafe(self._relays[broker].cut)

    def heal(self, broker: int) -> None:
        self._loop.call_soon_threadsafe(self._relays[broker].heal)

    def close(self) -> None:
        for relay in self._relays.values():
            asyncio.run_coroutine_threadsafe(relay.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuts]:
    made = Cuts()
    begin = process_broker.ProcessBroker.__init__

    def through_a_relay(self, settings, *more):
        begin(self, made.routed(settings), *more)

    monkeypatch.setattr(process_broker.ProcessBroker, "__init__", through_a_relay)
    yield made
    made.close()


def ask(cluster, broker, request):
    host, _, port = cluster.address_of(broker).rpartition(":")
    with BrokerConnection(host, int(port), PATIENT) as connection:
        return connection.ask(request)


def coordinator(cluster, broker):
    """Return the coordinator of the group, as a broker knows it."""
    while True:
        answer = ask(cluster, broker, FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
        if answer.coordinators[0].error_code == ErrorCode.NONE:
            return answer.coordinators[0].node_id
        time.sleep(0.1)


def commit(cluster, broker, offset):
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    request.topics[0].topic_id = cluster_topic_id(cluster, broker)
    return ask(cluster, broker, request).topics[0].partitions[0].error_code


def cluster_topic_id(cluster, broker):
    return cluster._metadata(["t"], broker).topics[0].topic_id


def committed(cluster, broker):
    """Return the committed offset from a broker, or its error."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    group = ask(cluster, broker, request).groups[0]
    if group.error_code:
        return ErrorCode(group.error_code)
    return group.topics[0].partitions[0].committed_offset


def test_deposed_coordinator_answers_no_old_offset_and_comes_back_when_the_cut_heals(cuts, tmp_path):
    settings = {"zookeeper.session.timeout.ms": "8000"}
    with BarnabasCluster(3, settings, store="zookeeper", data=tmp_path) as cluster:
        cluster.create_topic("t", 1)
        deposed = coordinator(cluster, 1)
        deadline = time.monotonic() + PATIENT
        while commit(cluster, deposed, 5) != ErrorCode.NONE:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert committed(cluster, deposed) == 5
        cuts.cut(deposed)
        other = next(broker for broker in cluster.brokers if broker != deposed)
        while (successor := coordinator(cluster, other)) == deposed or commit(cluster, successor, 9):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert committed(cluster, successor) == 9
        for _ in range(3):
            assert committed(cluster, deposed) is ErrorCode.NOT_COORDINATOR
        cuts.heal(deposed)
        cluster.wait_in_sync("t", timeout=PATIENT)
        assert committed(cluster, successor) == 9
