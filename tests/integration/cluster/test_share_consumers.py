"""Members of a share group when the leader of their partition fails."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer, ShareConsumer
from tests.integration.conftest import use_share_groups
from tests.integration.test_share_consumer import GROUP_RESOURCE, PATIENCE

from barnabas.base.types import SHARE_GROUP_STATE_TOPIC, TopicPartition
from barnabas.client import Admin, work
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


def test_the_lag_of_a_group_without_members_leaves_out_deleted_records(cluster, connect):
    partitions = [TopicPartition("t", number) for number in range(3)]  # each leader has one of them
    cluster.create_topic("t", len(partitions))
    cluster.wait_in_sync("t")
    wire = connect(cluster.address_of(cluster.controller()))
    use_share_groups(wire)
    admin = Admin(cluster.bootstrap_servers)
    admin.alter_configs("group", "g", set={"share.auto.offset.reset": "earliest"})

    def write(records: int) -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for _ in range(records):
            for _, number in partitions:
                producer.produce("t", b"job", partition=number)
        producer.flush()

    def lags() -> list[int | None]:
        return [offset.lag for offset in admin.share_offsets("g").values()]

    write(10)
    with work(cluster.bootstrap_servers, "t", group="g") as jobs:
        jobs.take(30, PATIENCE)
    assert lags() == [0, 0, 0]
    write(10)
    assert lags() == [10, 10, 10]
    admin.delete_records(dict.fromkeys(partitions, 15))
    assert lags() == [5, 5, 5]
    admin.close()
