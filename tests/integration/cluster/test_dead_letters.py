"""Dead letters in a cluster: their queue has another leader, and leaders of both partitions are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.integration.cluster.test_moves import run
from tests.integration.cluster.test_sasl import SaslCluster
from tests.integration.conftest import Wire
from tests.integration.test_dead_letters import EXPLICIT, GROUP_RESOURCE, MINE, configure
from tests.integration.test_share_consumer import PATIENCE

from barnabas.base.types import SHARE_GROUP_STATE_TOPIC
from barnabas.client import ClientError
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)

RECORDS = 120
EACH_ONCE = Counter(b"%d" % number for number in range(RECORDS))


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


def queue_apart(cluster) -> str:
    """Create a dead-letter queue. Another broker leads it than the topic "t"."""
    for number in range(1, 9):
        name = f"dlq.{number}"
        cluster.create_topic(name, 1, configs=MINE)
        cluster.wait_in_sync(name)
        if cluster.leader_of(name) != cluster.leader_of("t"):
            return name
    raise AssertionError("one broker leads all")


def explicit_consumer(cluster, records: int) -> ShareConsumer:
    """Write records to the topic "t", and return a member of the group "g" that acknowledges each of them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(records):
        producer.produce("t", b"%d" % number)
        producer.flush()
    consumer = ShareConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "max.poll.records": 5, **EXPLICIT}
    )
    consumer.subscribe(["t"])
    return consumer


def reject_all(cluster, dlq: str, meanwhile: Callable[[], object]) -> Counter[bytes]:
    """Reject all records of the topic "t", and return the values of the dead letters.

    After a third of the records, call `meanwhile`.
    """
    settings = {
        "share_auto_offset_reset": "earliest",
        "errors_deadletterqueue_topic_name": dlq,
        "errors_deadletterqueue_copy_record_enable": "true",
    }
    assert configure(cluster, GROUP_RESOURCE, "g", **settings) == 0
    consumer = explicit_consumer(cluster, RECORDS)
    rejected: set[bytes] = set()
    has_called = False
    for _ in range(PATIENCE * 10):
        for message in consumer.poll(0.1):
            if not message.error():
                rejected.add(message.value())
                consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync()
        if not has_called and len(rejected) >= RECORDS // 3:
            meanwhile()
            has_called = True
        if has_called and len(rejected) == RECORDS:
            break
    assert has_called
    letters = Counter(letter.value for letter in cluster.consume(dlq, RECORDS, timeout=PATIENCE))
    consumer.close()
    return letters


@pytest.mark.parametrize("victim", ["t", "dlq.t"])
def test_each_rejected_record_has_one_dead_letter_though_a_leader_is_killed(cluster, victim):
    cluster.create_topic("t", 1)
    dlq = queue_apart(cluster)
    cluster.wait_in_sync("t")

    def kill() -> None:
        cluster.wait_in_sync(SHARE_GROUP_STATE_TOPIC)
        cluster.kill(cluster.leader_of("t" if victim == "t" else dlq))

    assert reject_all(cluster, dlq, kill) == EACH_ONCE


def test_each_rejected_record_has_one_dead_letter_though_the_leader_of_the_queue_is_cut_off(cluster):
    """The other brokers elect another leader. The one that is cut off still has the last letters, and cannot
    commit them.
    """
    cluster.create_topic("t", 1)
    dlq = queue_apart(cluster)
    cluster.wait_in_sync("t")
    deposed = cluster.leader_of(dlq)

    def cut() -> None:
        cluster.wait_in_sync(SHARE_GROUP_STATE_TOPIC)
        cluster.partition(deposed, [each for each in cluster.brokers if each != deposed])

    assert reject_all(cluster, dlq, cut) == EACH_ONCE
    assert cluster.leader_of(dlq) != deposed
    cluster.heal()
    cluster.wait_in_sync(dlq)
    assert Counter(letter.value for letter in cluster.consume(dlq, RECORDS, timeout=PATIENCE)) == EACH_ONCE
    with pytest.raises(ClientError, match=f"only {RECORDS} "):
        cluster.consume(dlq, RECORDS + 1, timeout=2)


def test_each_rejected_record_has_one_dead_letter_though_the_queue_gets_more_partitions(cluster):
    cluster.create_topic("t", 4)
    cluster.create_topic("dlq.t", 1, configs=MINE)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def grow() -> None:
        admin.create_partitions([NewPartitions("dlq.t", 3)])["dlq.t"].result(PATIENCE)

    assert reject_all(cluster, "dlq.t", grow) == EACH_ONCE


def test_a_quota_of_all_clients_delays_dead_letters_and_costs_and_doubles_none(cluster):
    """In a cluster without logins, the quotas of clients apply to the requests of brokers, too."""
    cluster.create_topic("t", 1)
    dlq = queue_apart(cluster)

    def limit() -> None:
        wire = Wire(cluster.bootstrap_servers.partition(",")[0])
        rate = OpData(key="producer_byte_rate", value=1000.0, remove=False)
        everyone = [EntityData(entity_type="client-id", entity_name=None)]
        (result,) = wire(AlterClientQuotasRequest(entries=[EntryData(entity=everyone, ops=[rate])])).entries
        assert result.error_code == 0, result.error_message
        wire.close()

    assert reject_all(cluster, dlq, limit) == EACH_ONCE


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
