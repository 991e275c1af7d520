"""A partition's leader asks the coordinator on another broker whether a producer may
write, with all versions.
"""

from __future__ import annotations

import time

import pytest

from barnabas.base.environment.clock import SystemClock
from barnabas.base.errors import ErrorCode
from barnabas.broker.coordinator.partitioning import partition_for
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.kafka.records import Record, encode_batch

PARTITIONS = 4
#: the last versions of a producer that adds partitions itself
EXPLICIT_PRODUCE, EXPLICIT_ADD, EXPLICIT_END = 11, 3, 4
_READ_COMMITTED = 1
_LATEST = -1


class Apart:
    """A transactional id and a group whose coordinators are on other brokers than the leaders of a topic."""

    def __init__(self, cluster, connect):
        self.cluster = cluster
        self.wires = {broker: connect(cluster.address_of(broker)) for broker in cluster.brokers}
        cluster.create_topic("t", 3)
        any_wire = self.wires[1]
        for key_type in (0, 1):
            any_wire(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]))
        cluster.wait_in_sync()
        self.leader = self.wires[cluster.leader_of("t", 0)]
        others = [broker for broker in cluster.brokers if broker != cluster.leader_of("t", 0)]
        self.coordinator = self.wires[others[0]]
        self.group_coordinator = self.wires[others[1]]
        self.name = self._key("__transaction_state", others[0])
        self.group = self._key("__consumer_offsets", others[1])
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        self.topic_id = any_wire(asked).topics[0].topic_id
        answer = self.coordinator(
            InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        )
        assert answer.error_code == 0
        self.producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    def _key(self, topic, broker):
        return next(
            key
            for key in (f"key-{number}" for number in range(1000))
            if self.cluster.leader_of(topic, partition_for(key, PARTITIONS)) == broker
        )

    def produce(self, version, sequence=0):
        record = Record(None, b"v", SystemClock().now_ms())
        batch = encode_batch([record], base_sequence=sequence, transactional=True, **self.producer)
        data = TopicProduceData(
            name="t",
            topic_id=self.topic_id,
            partition_data=[PartitionProduceData(index=0, records=batch)],
        )
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=10_000, topic_data=[data])
        return self.leader(request, version).responses[0].partition_responses[0].error_code

    def commit_offset(self, offset, version=None):
        wanted = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[wanted])],
            **self.producer,
        )
        return self.group_coordinator(request, version).topics[0].partitions[0].error_code

    def end(self, version=None, *, commit=True):
        """End the transaction as clients do: repeat the request while the coordinator writes the previous
        markers.
        """
        request = EndTxnRequest(transactional_id=self.name, committed=commit, **self.producer)
        deadline = time.monotonic() + 60
        answer = self.coordinator(request, version)
        while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            assert time.monotonic() < deadline
            answer = self.coordinator(request, version)
        assert answer.error_code == 0
        if answer.producer_epoch >= 0 and version is None:
            self.producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    def last_stable_offset(self):
        wanted = ListOffsetsPartition(partition_index=0, timestamp=_LATEST)
        topic = ListOffsetsTopic(name="t", partitions=[wanted])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=_READ_COMMITTED, topics=[topic])
        return self.leader(request).topics[0].partitions[0].offset

    def committed_offset(self):
        topic = OffsetFetchRequestTopics(name="t", topic_id=self.topic_id, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        return self.group_coordinator(request, 9).groups[0].topics[0].partitions[0].committed_offset


@pytest.fixture
def apart(barnabas_cluster, connect):
    return Apart(barnabas_cluster(brokers=3), connect)


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_producer_of_v2_adds_nothing_itself(apart):
    for number in range(3):
        assert apart.produce(12) == 0
        assert apart.commit_offset(number + 7) == 0
        assert apart.last_stable_offset() == 2 * number
        apart.end()
        eventually(lambda number=number: apart.last_stable_offset() == 2 * number + 2)
        eventually(lambda number=number: apart.committed_offset() == number + 7)


def test_a_producer_that_aborts_an_empty_transaction_after_each_commit_is_not_fenced(apart):
    for number in range(20):
        assert apart.produce(12) == 0
        apart.end()
        apart.end(commit=False)
        eventually(lambda number=number: apart.last_stable_offset() == 2 * number + 2)


def test_an_older_producer_must_have_added_what_it_writes_to(apart):
    assert apart.produce(EXPLICIT_PRODUCE) == ErrorCode.TRANSACTION_ABORTABLE
    assert apart.commit_offset(7, 4) == ErrorCode.TRANSACTION_ABORTABLE
    added = apart.coordinator(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=apart.name,
            v3_and_below_producer_id=apart.producer["producer_id"],
            v3_and_below_producer_epoch=apart.producer["producer_epoch"],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        EXPLICIT_ADD,
    )
    results = added.results_by_topic_v3_and_below[0].results_by_partition
    assert [result.partition_error_code for result in results] == [0]
    assert apart.produce(EXPLICIT_PRODUCE) == 0
    apart.end(EXPLICIT_END)
    eventually(lambda: apart.last_stable_offset() == 2)
    assert apart.produce(EXPLICIT_PRODUCE, sequence=1) == ErrorCode.TRANSACTION_ABORTABLE


def test_a_producer_that_was_fenced_writes_nothing(apart):
    again = apart.coordinator(
        InitProducerIdRequest(transactional_id=apart.name, transaction_timeout_ms=60_000)
    )
    assert again.producer_epoch == apart.producer["producer_epoch"] + 1
    assert apart.produce(12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert apart.commit_offset(7) == ErrorCode.INVALID_PRODUCER_EPOCH
