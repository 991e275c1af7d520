"""An `Admin` continues after the controller dies: each call waits at most until there
is another controller.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client import Admin
from barnabas.client.transactions import Transactions
from barnabas.testing import BarnabasCluster

TOPIC = "orders"
#: seconds that a call has; a dead controller is noticed after 2 s
PATIENCE = 60.0


def test_every_call_is_answered_after_the_controller_has_died() -> None:
    with BarnabasCluster(brokers=3) as cluster:
        admin = Admin(cluster.bootstrap_servers, timeout=PATIENCE)
        admin.create_topic(TOPIC, 3, replication_factor=3)
        cluster.produce(TOPIC, "one", "two")
        cluster.wait_in_sync(TOPIC)
        before = admin.cluster()
        assert before.controller == cluster.controller()
        cluster.kill(before.controller)
        began = time.monotonic()

        admin.alter_configs("topic", TOPIC, set={"retention.ms": "123456"})
        values = {value.name: value.value for value in admin.configs("topic", TOPIC)}
        assert values["retention.ms"] == "123456"
        after = admin.cluster()
        assert after.controller in {node.id for node in after.nodes} - {before.controller}
        admin.create_topic("payments", 1, replication_factor=2)
        assert admin.topics() == [TOPIC, "payments"]
        (described,) = admin.describe_topics([TOPIC])
        assert all(partition.leader != before.controller for partition in described.partitions)
        partitions = [TopicPartition(TOPIC, each.partition) for each in described.partitions]
        ends = admin.offsets(partitions, "latest")
        assert sum(ends.values()) == 2
        assert admin.delete_records(dict.fromkeys(partitions, -1)) == ends
        admin.set_password("alice", "secret")
        assert list(admin.users()) == ["alice"]
        assert admin.groups() == []
        assert {value.name for value in admin.configs("broker", str(after.controller))} >= {"log.dirs"}
        admin.delete_topic("payments")
        assert admin.topics() == [TOPIC]
        assert time.monotonic() - began < PATIENCE, "they share the wait for one election"


def test_what_the_controller_refuses_is_told_at_once() -> None:
    with BarnabasCluster(brokers=2) as cluster:
        admin = Admin(cluster.bootstrap_servers)
        admin.create_topic(TOPIC, 1)
        with pytest.raises(KafkaError) as refused:
            admin.create_topic(TOPIC, 1)
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaError, match="there is no topic nowhere"):
            admin.delete_topic("nowhere")
        with pytest.raises(KafkaError, match="there is no partition orders-7"):
            admin.offsets([TopicPartition(TOPIC, 7)], "latest")
        assert admin.offsets([TopicPartition(TOPIC, 7)], "latest", skip_failed=True) == {}
        with pytest.raises(Exception, match="the cluster has no broker 9; its brokers are 1, 2"):
            admin.configs("broker", "9")


def test_a_kept_list_of_transactions_is_answered_after_its_broker_has_died() -> None:
    """The broker that dies is the one that answered before: as first server, as coordinator, or as leader."""
    with BarnabasCluster(brokers=3) as cluster:
        admin = Admin(cluster.bootstrap_servers, timeout=PATIENCE)
        admin.create_topic(TOPIC, 1, replication_factor=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "payer"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce(TOPIC, b"one")
        producer.commit_transaction(PATIENCE)
        partition = TopicPartition(TOPIC, 0)
        with Transactions(cluster.bootstrap_servers, timeout=PATIENCE) as transactions:
            for _ in range(2):  # one after another, until but one is left that was not asked first
                before = transactions.describe("payer")
                assert [each.transactional_id for each in transactions.listings()] == ["payer"]
                assert transactions.partitions([TOPIC]) == [partition]
                assert [each.producer_id for each in transactions.producers([partition])] == [
                    before.producer_id
                ]
                cluster.kill(before.coordinator)
                after = transactions.describe("payer")
                assert after.coordinator != before.coordinator
                assert after.producer_id == before.producer_id
                cluster.restart(before.coordinator)
                cluster.wait_in_sync(TOPIC)
