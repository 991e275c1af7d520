"""Share groups while their partition moves to other brokers."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import AcknowledgeType
from tests.integration.cluster.test_dead_letters import explicit_consumer
from tests.integration.cluster.test_moves import _plan, run, wait_until
from tests.integration.test_dead_letters import GROUP_RESOURCE, MINE, configure
from tests.integration.test_share_consumer import PATIENCE

from barnabas.base.types import TopicPartition
from barnabas.client.moves import Moves

RECORDS = 150


@pytest.fixture
def cluster(barnabas_cluster):
    return barnabas_cluster(brokers=3, settings={"share.coordinator.state.topic.num.partitions": "1"})


def test_a_partition_moves_and_accepted_records_stay_so_and_rejected_ones_have_one_dead_letter(
    cluster, tmp_path
):
    run(cluster, "topics", "create", "t", "--replica-assignment", "1")
    cluster.create_topic("dlq.t", 1, configs=MINE)
    settings = {"errors_deadletterqueue_topic_name": "dlq.t", "share_auto_offset_reset": "earliest"}
    assert configure(cluster, GROUP_RESOURCE, "g", **settings) == 0
    consumer = explicit_consumer(cluster, RECORDS)
    settled: set[bytes] = set()
    has_moved = False
    moves = Moves(cluster.bootstrap_servers)
    for _ in range(PATIENCE * 10):
        taken = [message for message in consumer.poll(0.1) if not message.error()]
        for message in taken:
            assert message.value() not in settled
            is_bad = int(message.value()) % 5 == 0
            consumer.acknowledge(message, AcknowledgeType.REJECT if is_bad else AcknowledgeType.ACCEPT)
        if not any(consumer.commit_sync().values()):
            settled |= {message.value() for message in taken}
        if not has_moved and len(settled) >= RECORDS // 3:
            run(cluster, "topics", "reassign", "execute", _plan(tmp_path, (2,)), "--wait")
            has_moved = True
        if len(settled) == RECORDS:
            break
    consumer.close()
    assert has_moved
    wait_until(lambda: moves.replicas_of(["t"])[TopicPartition("t", 0)].leader == 2)
    assert settled == {b"%d" % number for number in range(RECORDS)}
    letters = cluster.consume("dlq.t", RECORDS // 5, timeout=PATIENCE)
    offsets = Counter(dict(letter.headers)["__dlq.errors.offset"] for letter in letters)
    assert offsets == Counter(b"%d" % number for number in range(0, RECORDS, 5))
