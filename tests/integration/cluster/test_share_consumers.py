"""Members of a share group when the leader of their partition fails."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer, ShareConsumer
from tests.integration.conftest import use_share_groups
from tests.integration.test_share_consumer import GROUP_RESOURCE, PATIENCE

from barnabas.base.types import SHARE_GROUP_STATE_TOPIC
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

RECORDS = 200


@pytest.fixture
def cluster(barnabas_cluster):
    return barnabas_cluster(
        brokers=3,
        settings={
            "replica.lag.time.max.ms": "1000",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.share.record.lock.duration.ms": "15000",
        },
    )


def test_every_record_is_delivered_though_the_leader_is_killed(cluster, connect):
    cluster.create_topic("t", 1)
    cluster.wait_in_sync("t")
    wire = connect(cluster.address_of(cluster.controller()))
    use_share_groups(wire)
    earliest = AlterableConfig(name="share.auto.offset.reset", value="earliest")
    group = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[earliest])
    assert wire(IncrementalAlterConfigsRequest(resources=[group])).responses[0].error_code == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number)
        if number % 10 == 9:
            producer.flush()
    consumers = [
        ShareConsumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "max.poll.records": 20}
        )
        for _ in range(2)
    ]
    for consumer in consumers:
        consumer.subscribe(["t"])
    seen: Counter[bytes] = Counter()
    is_killed = False
    for _ in range(PATIENCE * 10):
        for consumer in consumers:
            for message in consumer.poll(0.1):
                if not message.error():
                    seen[message.value()] += 1
        if not is_killed and seen.total() >= RECORDS // 4:
            cluster.wait_in_sync(SHARE_GROUP_STATE_TOPIC)
            cluster.kill(cluster.leader_of("t"))
            is_killed = True
        if len(seen) == RECORDS:
            break
    for consumer in consumers:
        consumer.close()
    assert is_killed
    assert set(seen) == {b"%d" % number for number in range(RECORDS)}
