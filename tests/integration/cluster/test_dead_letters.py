"""Dead letters in a cluster: their queue has another leader, and leaders of both partitions are killed."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from tests.integration.test_dead_letters import EXPLICIT, GROUP_RESOURCE, MINE, configure
from tests.integration.test_share_consumer import PATIENCE

from barnabas.base.types import SHARE_GROUP_STATE_TOPIC

RECORDS = 120


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


@pytest.mark.parametrize("victim", ["t", "dlq.t"])
def test_each_rejected_record_has_one_dead_letter_though_a_leader_is_killed(cluster, victim):
    cluster.create_topic("t", 1)
    for partitions in range(1, 9):  # until another broker leads the queue than the source
        cluster.create_topic(f"dlq.{partitions}", 1, configs=MINE)
        cluster.wait_in_sync(f"dlq.{partitions}")
        dlq = f"dlq.{partitions}"
        if cluster.leader_of(dlq) != cluster.leader_of("t"):
            break
    assert cluster.leader_of(dlq) != cluster.leader_of("t")
    cluster.wait_in_sync("t")
    settings = {
        "share_auto_offset_reset": "earliest",
        "errors_deadletterqueue_topic_name": dlq,
        "errors_deadletterqueue_copy_record_enable": "true",
    }
    assert configure(cluster, GROUP_RESOURCE, "g", **settings) == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number)
        producer.flush()
    consumer = ShareConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "max.poll.records": 5, **EXPLICIT}
    )
    consumer.subscribe(["t"])
    rejected: set[bytes] = set()
    is_killed = False
    for _ in range(PATIENCE * 10):
        for message in consumer.poll(0.1):
            if not message.error():
                rejected.add(message.value())
                consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync()
        if not is_killed and len(rejected) >= RECORDS // 3:
            cluster.wait_in_sync(SHARE_GROUP_STATE_TOPIC)
            cluster.kill(cluster.leader_of("t" if victim == "t" else dlq))
            is_killed = True
        if is_killed and len(rejected) == RECORDS:
            break
    assert is_killed
    letters = Counter(letter.value for letter in cluster.consume(dlq, RECORDS, timeout=PATIENCE))
    consumer.close()
    assert letters == Counter(b"%d" % number for number in range(RECORDS))
