"""Dead letters in a cluster: their queue has another leader, and leaders of both partitions are killed."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from tests.integration.cluster.test_moves import run
from tests.integration.cluster.test_sasl import SaslCluster
from tests.integration.test_dead_letters import EXPLICIT, GROUP_RESOURCE, MINE, configure
from tests.integration.test_share_consumer import PATIENCE

from barnabas.base.types import SHARE_GROUP_STATE_TOPIC
from barnabas.client import ClientError

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


def test_a_broker_that_may_not_write_to_the_queue_of_another_one_waits_for_a_rule(certificates):
    settings = {
        "super_users": "User:ANONYMOUS",
        "allow_everyone_if_no_acl_found": "true",
        "share_coordinator_state_topic_num_partitions": "1",
    }
    with SaslCluster(certificates, brokers=2, **settings) as cluster:
        run(cluster, "topics", "create", "t", "--replica-assignment", "1")
        enable = "errors.deadletterqueue.group.enable=true"
        run(cluster, "topics", "create", "dlq.t", "--replica-assignment", "2", "--config", enable)
        group = {"share_auto_offset_reset": "earliest", "errors_deadletterqueue_topic_name": "dlq.t"}
        assert configure(cluster, GROUP_RESOURCE, "g", **group) == 0
        run(cluster, "acls", "grant", "alice", "read", "--topic", "dlq.t")
        cluster.produce("t", "poison")
        consumer = ShareConsumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", **EXPLICIT}
        )
        consumer.subscribe(["t"])
        while not (messages := consumer.poll(0.1)):
            pass
        consumer.acknowledge(messages[0], AcknowledgeType.REJECT)
        assert not any(consumer.commit_sync().values())
        with pytest.raises(ClientError, match="only 0"):
            cluster.consume("dlq.t", 1, timeout=2)
        run(cluster, "acls", "grant", "broker", "read,write", "--topic", "dlq.t")
        (letter,) = cluster.consume("dlq.t", 1, timeout=PATIENCE)
        assert dict(letter.headers)["__dlq.errors.offset"] == b"0"
        consumer.close()
