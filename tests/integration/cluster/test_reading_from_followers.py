"""Consumers of librdkafka that read from the replica in their rack (KIP-392)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from confluent_kafka import Consumer

from barnabas.testing import BarnabasCluster

RACKS = {1: "a", 2: "b", 3: "c"}
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class NearConsumer:
    """A consumer of partition 0 of a topic that knows from which broker it reads."""

    def __init__(self, cluster: BarnabasCluster, topic: str, rack: str) -> None:
        self.values: list[bytes] = []
        self.broker = -1
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "near",
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "statistics.interval.ms": 50,
                "stats_cb": self._told,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._consumer.subscribe([topic])

    def _told(self, statistics: str) -> None:
        topic = json.loads(statistics)["topics"].get(self._topic, {})
        self.broker = topic.get("partitions", {}).get("0", {}).get("broker", -1)

    def read_until(self, is_enough: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not is_enough():
            assert time.monotonic() < end, (len(self.values), self.broker)
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())

    def close(self) -> None:
        self._consumer.close()


def test_a_consumer_reads_from_its_rack_and_goes_on_when_that_broker_dies() -> None:
    settings = {"replica.selector.class": SELECTOR}
    with BarnabasCluster(3, settings, racks=list(RACKS.values())) as cluster:
        topic = cluster.create_topic("near")
        cluster.produce(topic, *(f"{number}" for number in range(50)))
        leader = cluster.leader_of(topic, 0)
        nearest = next(broker for broker in cluster.brokers if broker != leader)
        consumer = NearConsumer(cluster, topic, RACKS[nearest])
        try:
            consumer.read_until(lambda: len(consumer.values) >= 50 and consumer.broker == nearest)
            cluster.produce(topic, *(f"{number}" for number in range(50, 60)))
            consumer.read_until(lambda: len(consumer.values) >= 60)
            assert consumer.broker == nearest
            cluster.kill(nearest)
            cluster.produce(topic, *(f"{number}" for number in range(60, 70)))
            consumer.read_until(lambda: len(consumer.values) >= 70)
        finally:
            consumer.close()
        assert consumer.values == [b"%d" % number for number in range(70)]
