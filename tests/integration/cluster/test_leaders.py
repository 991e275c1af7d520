"""The guarantees of a partition's leader, with brokers that are killed, cut off, stopped or replaced as
leaders.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

from barnabas.base.errors import ErrorCode
from barnabas.cli.app import app
from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch
from barnabas.testing import BarnabasCluster

PATIENT = 60.0
#: followers leave the ISR soon
IMPATIENT = {"replica.lag.time.max.ms": "2000"}


def ask(cluster, broker, request, timeout=90):
    host, _, port = cluster.address_of(broker).rpartition(":")
    with BrokerConnection(host, int(port), timeout) as connection:
        return connection.ask(request)


def topic_of(cluster, broker):
    response = ask(cluster, broker, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    return response.topics[0]


def acknowledged(cluster, broker, value):
    """Call `produce` again while a follower is slow, or while a new leader does not
    know of its leadership yet.
    """
    not_now = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    deadline = time.monotonic() + PATIENT
    while True:
        result = produce(cluster, broker, value, timeout_ms=60_000)
        if not any(result is error for error in not_now) or time.monotonic() > deadline:
            return result
        time.sleep(0.1)


def produce(cluster, broker, value, *, acks=-1, timeout_ms=30_000, **producer):
    """Send one record to a broker, whether it leads or not. Return the error, or the record's offset."""
    batch = encode_batch([Record(None, value, timestamp=1_700_000_000_000)], **producer)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name="t",
                topic_id=topic_of(cluster, broker).topic_id,
                partition_data=[PartitionProduceData(index=0, records=batch)],
            )
        ],
    )
    result = ask(cluster, broker, request).responses[0].partition_responses[0]
    return ErrorCode(result.error_code) if result.error_code else result.base_offset


def isr(cluster, broker):
    return sorted(topic_of(cluster, broker).partitions[0].isr_nodes)


def latest(cluster, broker, timestamp=-1):
    """Return the end of the partition for a client, or with -2 the start."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    return ask(cluster, broker, request).topics[0].partitions[0].offset


def values(cluster, count):
    return [bytes(record.value or b"") for record in cluster.consume("t", count, timeout=PATIENT)]


def wait_until(condition, timeout=PATIENT):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def others_than(cluster, leader):
    return [broker for broker in cluster.brokers if broker != leader]


@pytest.fixture
def cluster(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3, settings=IMPATIENT)
    cluster.create_topic("t", 1, configs={"min.insync.replicas": "2"})
    cluster.wait_in_sync("t")
    return cluster


def test_a_follower_that_is_cut_off_leaves_the_isr_and_joins_again(cluster):
    leader = cluster.leader_of("t")
    # the controller last: the leader has to reach it
    cut_off, other = sorted(others_than(cluster, leader), key=cluster.controller().__eq__)
    cluster.partition(cut_off, [leader, other])
    assert acknowledged(cluster, leader, b"a") == 0
    assert isr(cluster, leader) == sorted([leader, other])
    cluster.heal()
    cluster.wait_in_sync("t")
    assert acknowledged(cluster, leader, b"b") == 1
    assert values(cluster, 2) == [b"a", b"b"]


class Differing(BarnabasCluster):
    """Brokers that start with different values of min.insync.replicas."""

    minimum = 2

    def _settings_of(self, broker):
        node = super()._settings_of(broker)
        return replace(node, settings={**node.settings, "min.insync.replicas": str(self.minimum)})


@pytest.mark.parametrize("minimum", [1, 3])
def test_leader_that_was_started_with_another_minimum_than_the_cluster_has_goes_by_the_clusters(minimum):
    with Differing(brokers=3, settings=IMPATIENT) as cluster:
        cluster.minimum = minimum
        cluster.restart(1)
        cluster.admin().create_topic("t", assignments=[[1, 2, 3]])
        cluster.wait_in_sync("t")
        cluster.kill(3)
        assert acknowledged(cluster, 1, b"two in sync") == 0
        cluster.kill(2)
        wait_until(lambda: isr(cluster, 1) == [1])
        assert produce(cluster, 1, b"one in sync") is ErrorCode.NOT_ENOUGH_REPLICAS


def test_what_the_last_replica_standing_has_alone_is_not_committed(cluster):
    """KIP-966: replicas that left the ISR earlier have all acknowledged records, and can lead."""
    leader = cluster.leader_of("t")
    others = others_than(cluster, leader)
    assert acknowledged(cluster, leader, b"committed") == 0
    cluster.partition(leader, others)
    assert produce(cluster, leader, b"alone", acks=1) == 1
    assert produce(cluster, leader, b"waits", timeout_ms=3_000) in (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,  # the controller is among those that it cannot reach
    )
    assert latest(cluster, leader) == 1
    cluster.kill(leader)
    cluster.heal()
    successor = cluster.leader_of("t")
    assert successor in others
    end = acknowledged(cluster, successor, b"acknowledged")
    assert not isinstance(end, ErrorCode)
    cluster.restart(leader)
    cluster.wait_in_sync("t")
    # what was under way when the line was cut may have come through
    unacknowledged = {b"alone", b"waits"}
    kept = [value for value in values(cluster, end + 1) if value not in unacknowledged]
    assert kept == [b"committed", b"acknowledged"]


def test_a_leader_whose_session_ends_acknowledges_nothing_any_more(cluster):
    leader = cluster.leader_of("t")
    others = others_than(cluster, leader)
    cluster.partition(leader, others)
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(produce(cluster, leader, b"lost", timeout_ms=15_000))
    )
    waiting.start()
    wait_until(lambda: latest(cluster, leader, timestamp=-1) == 0)
    cluster.expire_session(leader)
    waiting.join(PATIENT)
    assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    wait_until(lambda: cluster.leader_of("t") != leader)
    successor = cluster.leader_of("t")
    assert acknowledged(cluster, successor, b"kept") == 0
    cluster.heal()
    cluster.wait_in_sync("t")
    assert values(cluster, 1) == [b"kept"]


def test_deleted_records_stay_deleted_under_the_next_leader(cluster):
    leader = cluster.leader_of("t")
    for number in range(4):
        assert acknowledged(cluster, leader, b"%d" % number) == number
    wanted = DeleteRecordsPartition(partition_index=0, offset=3)
    request = DeleteRecordsRequest(
        timeout_ms=60_000, topics=[DeleteRecordsTopic(name="t", partitions=[wanted])]
    )
    result = ask(cluster, leader, request).topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (0, 3)
    cluster.kill(leader)
    assert latest(cluster, cluster.leader_of("t"), timestamp=-2) == 3


def test_a_batch_that_came_before_a_brokers_leadership_is_not_overtaken_by_the_next_one(barnabas_cluster):
    """The log has no state of the producer, and would accept any of its batches as the first."""
    cluster = barnabas_cluster(brokers=2, settings={"min.insync.replicas": "1"})
    cluster.create_topic("t")
    cluster.wait_in_sync("t")
    former = cluster.leader_of("t")
    heir = 3 - former

    def send(sequence):
        producer = {"producer_id": 70_000, "producer_epoch": 0, "base_sequence": sequence}
        return produce(cluster, heir, b"v", **producer)

    assert send(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.stop(former)
    assert cluster.leader_of("t") == heir
    assert send(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [send(0), send(1)] == [0, 1]


def test_after_a_kill_of_all_two_of_three_wait_for_the_third_until_its_loss_is_accepted(
    barnabas_cluster, caplog
):
    """The test runs the command that the log prints."""
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic("t", 2)
    cluster.create_topic("u")
    cluster.wait_in_sync("t", "u")
    cluster.produce("t", "a", "b", "c")
    for broker in (1, 2, 3):
        cluster.kill(broker)
    cluster.restart(1)
    cluster.restart(2)
    pattern = r"3 partitions have no leader and wait for broker 3, .* `barnabas (topics elect [^`]*)`"
    deadline = time.monotonic() + 60
    while not (said := re.search(pattern, caplog.text)):
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.05)
    server = ["--bootstrap-server", cluster.bootstrap_servers]
    done = CliRunner().invoke(app, [*said[1].split(), *server])
    assert (done.exit_code, done.output) == (0, "elected leaders of 3 partitions\n")
    assert sorted(record.value for record in cluster.consume("t", 3)) == [b"a", b"b", b"c"]
    cluster.produce("t", "d")
    contradiction = CliRunner().invoke(app, ["topics", "elect", "t", "--unclean", "--all", *server])
    assert contradiction.exit_code == 2
    cluster.restart(3)
    cluster.wait_in_sync()
