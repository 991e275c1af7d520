"""What `log discard` and `log repair` meet in a cluster: last replicas, disks, transactions, moves, kills."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.cluster.test_coordinators import PATIENCE, transactional
from tests.integration.cluster.test_damaged_replicas import (
    COUNT,
    SETTINGS,
    TOPIC,
    VALUES,
    barnabas,
    filled,
    flip_a_bit,
    lead_alone,
    stored,
)
from tests.integration.cluster.test_fixture import wait_until

from barnabas.base.types import TopicPartition
from barnabas.client import Consumer
from barnabas.client.moves import Moves
from barnabas.testing import BarnabasCluster

MARK = "barnabas-incomplete"


def leader_and_isr(cluster: BarnabasCluster, topic: str = TOPIC) -> tuple[int, set[int]]:
    leader, _, isr = cluster._partitions([topic])[topic, 0]
    return leader, set(isr)


def elect_uncleanly(cluster: BarnabasCluster, topic: str = TOPIC) -> None:
    barnabas("topics", "elect", f"{topic}:0", "--unclean", "--bootstrap-server", cluster.bootstrap_servers)


def lead(cluster: BarnabasCluster, broker: int, topic: str = TOPIC) -> None:
    """Have a broker that is in sync lead, and the others follow it."""
    cluster.wait_in_sync(topic)
    stopped = []
    while (leader := cluster.leader_of(topic)) != broker:
        cluster.stop(leader)
        stopped.append(leader)
    for other in stopped:
        cluster.restart(other)
    cluster.wait_in_sync(topic)
    assert cluster.leader_of(topic) == broker


def test_the_last_replica_in_sync_that_is_discarded_leads_only_by_an_unclean_election(barnabas_cluster):
    cluster = barnabas_cluster(brokers=2, settings=SETTINGS | {"min.insync.replicas": "1"})
    follower, _ = filled(cluster)
    last = cluster.leader_of(TOPIC)
    cluster.produce(TOPIC, "only the last one has it")
    cluster.stop(last)
    data = cluster.data / f"broker-{last}"
    barnabas("log", "discard", f"{TOPIC}-0", data)
    cluster.restart(follower)
    cluster.restart(last)
    assert leader_and_isr(cluster) == (-1, set()), "the loss is not silent"
    elect_uncleanly(cluster)
    assert cluster.leader_of(TOPIC) == follower
    cluster.wait_in_sync(TOPIC)
    assert stored(cluster) == VALUES
    assert not (data / f"{TOPIC}-0" / MARK).exists()


def test_a_discarded_replica_that_is_put_back_keeps_its_records_when_it_is_elected(barnabas_cluster):
    """The way back for an operator who has discarded the last one."""
    cluster = barnabas_cluster(brokers=2, settings=SETTINGS | {"min.insync.replicas": "1"})
    follower, _ = filled(cluster)
    last = cluster.leader_of(TOPIC)
    cluster.produce(TOPIC, "only the last one has it")
    cluster.stop(last)
    data = cluster.data / f"broker-{last}"
    barnabas("log", "discard", f"{TOPIC}-0", data)
    (aside,) = data.glob("damaged.*")
    for file in (aside / f"{TOPIC}-0").iterdir():
        file.rename(data / f"{TOPIC}-0" / file.name)
    cluster.restart(last)
    assert leader_and_isr(cluster) == (-1, set())
    elect_uncleanly(cluster)
    assert cluster.leader_of(TOPIC) == last
    cluster.restart(follower)
    cluster.wait_in_sync(TOPIC)
    lead_alone(cluster, follower)
    values = [record.value for record in cluster.consume(TOPIC, COUNT + 1)]
    assert values == [*VALUES, b"only the last one has it"]


def test_the_only_replica_is_repaired_and_serves_what_is_whole_once_somebody_accepts_the_loss(
    barnabas_cluster,
):
    cluster = barnabas_cluster(brokers=2, settings=SETTINGS)
    cluster.admin().create_topic(TOPIC, 1, replication_factor=1)
    only = cluster.leader_of(TOPIC)
    with cluster.producer(batch_num_messages=1) as producer:
        for value in VALUES[:300]:
            producer.send(TOPIC, value)
    cluster.stop(only)
    data = cluster.data / f"broker-{only}"
    flip_a_bit(data / f"{TOPIC}-0")
    barnabas("log", "repair", data)
    for _ in range(2):  # a restart changes nothing
        cluster.restart(only)
        assert leader_and_isr(cluster) == (-1, set())
    elect_uncleanly(cluster)
    assert cluster.leader_of(TOPIC) == only
    values = [record.value for record in cluster.consume(TOPIC, 299)]
    assert len(set(values)) == 299
    assert set(values) < set(VALUES[:300])
    cluster.produce(TOPIC, "new")
    cluster.restart(only)
    assert cluster.leader_of(TOPIC) == only, "it is complete by decision, and stays so"
    with Consumer(cluster.bootstrap_servers, TOPIC) as consumer:
        assert [record.offset for record in consumer.take(300)][-1] == 300


@pytest.mark.parametrize("how", ["discarded", "repaired", "gone"])
def test_a_broker_that_is_killed_while_it_copies_a_lost_replica_is_not_in_sync_before_it_has_it(
    barnabas_cluster, how
):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    follower, data = filled(cluster)
    if how == "discarded":
        barnabas("log", "discard", f"{TOPIC}-0", data)
    elif how == "repaired":
        flip_a_bit(data / f"{TOPIC}-0")
        barnabas("log", "repair", data)
    else:
        shutil.rmtree(data / f"{TOPIC}-0")
    others = [broker for broker in cluster.brokers if broker != follower]
    cluster.partition(follower, others)  # it registers, and cannot copy anything
    cluster.restart(follower)
    assert follower not in leader_and_isr(cluster)[1]
    cluster.kill(follower)
    cluster.heal()
    cluster.restart(follower)
    lead_alone(cluster, follower)
    assert stored(cluster) == VALUES


def test_a_replica_on_the_second_of_two_disks_is_discarded_there_and_copied_again(barnabas_cluster, tmp_path):
    cluster = TwoDisks(brokers=3, settings=SETTINGS, data=tmp_path)
    with cluster:
        cluster.create_topic("other", 3)
        follower, data = filled(cluster)
        disks = [data, Path(f"{data}-b")]
        (disk,) = [disk for disk in disks if (disk / f"{TOPIC}-0").is_dir()]
        flip_a_bit(disk / f"{TOPIC}-0")
        barnabas("log", "check", *disks, code=1)
        barnabas("log", "discard", f"{TOPIC}-0", *disks)
        barnabas("log", "check", *disks)
        cluster.restart(follower)
        lead_alone(cluster, follower)
        assert stored(cluster) == VALUES


class TwoDisks(BarnabasCluster):
    """Each broker has two log directories."""

    def _settings_of(self, broker):
        node = super()._settings_of(broker)
        first = node.settings["log.dirs"]
        return replace(node, settings={**node.settings, "log.dirs": f"{first},{first}-b"})


@pytest.mark.parametrize("how", ["discard", "repair"])
def test_a_lost_replica_of_the_offsets_topic_costs_no_committed_offset(barnabas_cluster, how):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS | {"offsets.topic.num.partitions": "1"})
    cluster.create_topic(TOPIC)
    cluster.produce(TOPIC, *VALUES[:20])
    with cluster.consumer(TOPIC, group="billing") as consumer:
        consumer.take(7)
    offsets = "__consumer_offsets"
    cluster.wait_in_sync(offsets)
    follower = next(broker for broker in cluster.brokers if broker != cluster.leader_of(offsets))
    cluster.stop(follower)
    data = cluster.data / f"broker-{follower}"
    if how == "repair":
        (segment,) = (data / f"{offsets}-0").glob("*.log")
        content = bytearray(segment.read_bytes())
        content[70] ^= 1
        segment.write_bytes(content)
        barnabas("log", "repair", data)
    else:
        barnabas("log", "discard", f"{offsets}-0", data)
    cluster.restart(follower)
    lead(cluster, follower, offsets)
    with cluster.consumer(TOPIC, group="billing") as consumer:
        assert consumer.take(1)[0].offset == 7


def test_transactions_and_producers_survive_a_discarded_replica_that_leads(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    cluster.create_topic(TOPIC)
    producer = transactional(cluster, "till")
    idempotent = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    follower = next(broker for broker in cluster.brokers if broker != cluster.leader_of(TOPIC))
    expected = []
    for number in range(20):
        producer.begin_transaction()
        producer.produce(TOPIC, f"in a transaction {number}")
        if number == 10:  # the transaction is open
            cluster.stop(follower)
            barnabas("log", "discard", f"{TOPIC}-0", cluster.data / f"broker-{follower}")
            cluster.restart(follower)
            lead(cluster, follower)
        if number % 3:
            producer.commit_transaction(PATIENCE)
            expected.append(f"in a transaction {number}".encode())
        else:
            producer.abort_transaction(PATIENCE)
        idempotent.produce(TOPIC, f"idempotent {number}")
        assert idempotent.flush(PATIENCE) == 0
        expected.append(f"idempotent {number}".encode())
    with cluster.consumer(TOPIC, isolation_level="read_committed") as consumer:
        assert [record.value for record in consumer.take(len(expected))] == expected


def test_a_compacted_replica_that_is_discarded_comes_back_compacted_and_whole(barnabas_cluster):
    cluster = barnabas_cluster(
        brokers=3, settings={"log.segment.bytes": "5000", "log.cleaner.backoff.ms": "100"}
    )
    cluster.create_topic(TOPIC, 1, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    latest = {}
    with cluster.producer() as producer:
        for number in range(400):
            key, value = f"k{number % 20}", f"{number} " + "x" * 50
            producer.send(TOPIC, value, key=key)
            latest[key.encode()] = value.encode()
            if number % 40 == 39:
                producer.flush()
    cluster.wait_in_sync(TOPIC)
    follower = next(broker for broker in cluster.brokers if broker != cluster.leader_of(TOPIC))
    data = cluster.data / f"broker-{follower}"
    cleaned = data / "cleaner-offset-checkpoint"
    wait_until(lambda: cleaned.exists() and TOPIC in cleaned.read_text(), PATIENCE)
    cluster.stop(follower)
    barnabas("log", "check", data)
    barnabas("log", "discard", f"{TOPIC}-0", data)
    cluster.restart(follower)
    lead_alone(cluster, follower)
    found = {}
    with cluster.consumer(TOPIC) as consumer:
        while (record := consumer.poll(2.0)) is not None:
            found[record.key] = record.value
    assert found == latest


def test_a_replica_that_moves_to_another_broker_meanwhile_is_neither_missed_nor_found_again(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3, settings=SETTINGS)
    cluster.admin().create_topic(TOPIC, assignments=[[1, 2]], configs={"min.insync.replicas": "1"})
    cluster.wait_in_sync(TOPIC)
    with cluster.producer(batch_num_messages=50) as producer:
        for value in VALUES:
            producer.send(TOPIC, value)
    cluster.wait_in_sync(TOPIC)
    cluster.stop(2)
    data = cluster.data / "broker-2"
    barnabas("log", "discard", f"{TOPIC}-0", data)
    moves, partition = Moves(cluster.bootstrap_servers), TopicPartition(TOPIC, 0)
    assert moves.reassign({partition: [1, 3]}) == {}
    cluster.wait_in_sync(TOPIC)
    cluster.restart(2)
    cluster._wait("the folder is gone", 60.0, lambda: not (data / f"{TOPIC}-0").exists())
    assert moves.reassign({partition: [1, 2]}) == {}
    cluster._wait("it has moved back", 60.0, lambda: leader_and_isr(cluster) == (1, {1, 2}))
    cluster.stop(1)
    assert cluster.leader_of(TOPIC) == 2
    assert stored(cluster) == VALUES
