"""A copy in transactions goes on through failovers: each record is in the target once, and soon."""

from __future__ import annotations

import pytest
from tests.integration.cluster.copying import Copy, committed_in

from barnabas.broker.coordinator.partitioning import partition_for

SOURCE, TARGET = "orders", "invoices"
RECORDS = 1500
#: of the fixture's internal topics
PARTITIONS = 4


@pytest.fixture
def copied(barnabas_cluster):
    """Start to copy a topic exactly once in a cluster of three brokers. Return the cluster and the copying
    client.
    """
    cluster = barnabas_cluster(brokers=3)
    for topic in (SOURCE, TARGET):
        cluster.create_topic(topic, 3)
    with cluster.producer() as producer:
        for number in range(RECORDS):
            producer.send(SOURCE, str(number), key=str(number % 8))
    return cluster, Copy(cluster.bootstrap_servers, SOURCE, TARGET)


@pytest.mark.parametrize(
    ("fault", "topic"),
    [("kill", "__transaction_state"), ("kill", TARGET), ("restart", "__consumer_offsets")],
)
def test_each_record_is_copied_once_though_a_leader_fails(copied, fault, topic):
    cluster, copy = copied
    copy.await_copied(200)
    leader = cluster.leader_of(topic, 0 if topic == TARGET else partition_for("copy", PARTITIONS))
    getattr(cluster, fault)(leader)
    copy.await_copied(RECORDS, 90)
    copy.finish()
    assert sorted(committed_in(cluster, TARGET)) == list(range(RECORDS))


def test_transactions_follow_one_another_without_the_pauses_of_their_client(copied):
    """librdkafka waits for 100 ms when it is told that the last transaction has not ended yet."""
    _, copy = copied
    copy.await_copied(RECORDS)
    copy.finish()
    # a pause would be in each but the first; a busy machine makes some of them slow, not all
    quick = [took for took in copy.durations[1:] if took < 0.1]
    assert len(quick) >= len(copy.durations) / 10, sorted(copy.durations)
