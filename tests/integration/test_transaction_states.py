"""A broker that died in any state of a transaction finishes the transaction after its restart.

On one broker, the states between a decision and its last marker last only microseconds. So the test stops the
broker, changes its logs to the state in which it would have died, and starts it again.
"""

from __future__ import annotations

import pytest

from barnabas.base.environment.clock import SystemClock
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.coordinator.transactions.codec import transaction_record
from barnabas.broker.coordinator.transactions.transaction import Transaction, TransactionState
from barnabas.broker.logs import LogDirectory
from barnabas.broker.storage import OpenFiles, Origin
from barnabas.broker.storage.checkpoints import META_PROPERTIES, decode_properties
from barnabas.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
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
from barnabas.kafka.records import Record, all_records, encode_batch
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction
from barnabas.testing import BarnabasBroker

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
NAME, GROUP = "x", "g"
#: markers bear the present time: records of long ago would lie in a segment of their own
NOW = SystemClock().now_ms()
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("__consumer_offsets", 0)]
LOAD_IN_PROGRESS, OUT_OF_ORDER, INVALID_PRODUCER_EPOCH, UNSTABLE_OFFSET_COMMIT = 14, 45, 47, 88


@pytest.fixture
def broker(tmp_path):
    with BarnabasBroker(SETTINGS, data=tmp_path) as broker:
        broker.create_topic("t", 2)
        yield broker


def begin(wire):
    """Begin a transaction that writes to two partitions and commits an offset. Return its producer."""
    wire(FindCoordinatorRequest(coordinator_keys=[GROUP]))
    wire(FindCoordinatorRequest(coordinator_keys=[NAME], key_type=1))
    answer = wire(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000))
    producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    wire(
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=NAME,
                    topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
                    **producer,
                )
            ]
        )
    )
    wire(AddOffsetsToTxnRequest(transactional_id=NAME, group_id=GROUP, **producer))
    batch = encode_batch([Record(None, b"v", NOW)], base_sequence=0, transactional=True, **producer)
    data = [PartitionProduceData(index=index, records=batch) for index in (0, 1)]
    produced = wire(
        ProduceRequest(
            transactional_id=NAME,
            acks=-1,
            timeout_ms=60_000,
            topic_data=[TopicProduceData(name="t", partition_data=data)],
        ),
        11,
    )
    assert [p.error_code for p in produced.responses[0].partition_responses] == [0, 0]
    offsets = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    committed = wire(
        TxnOffsetCommitRequest(
            transactional_id=NAME,
            group_id=GROUP,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=offsets)],
            **producer,
        )
    )
    assert committed.topics[0].partitions[0].error_code == 0
    return producer


def decided(producer, *, commit):
    """Return the record of the coordinator's decision about the transaction, with transactions v2."""
    return Transaction(
        producer_id=producer["producer_id"],
        epoch=producer["producer_epoch"] + 1,
        timeout_ms=60_000,
        updated_ms=NOW,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        partitions=frozenset(PARTITIONS),
        started_ms=NOW,
        previous_producer_id=producer["producer_id"],
        client_version=2,
    )


def write(data, batches):
    """Append to the logs of a stopped broker, as the broker would have."""
    fs = OsFileSystem()
    properties = decode_properties((data / META_PROPERTIES).read_bytes())
    directory = LogDirectory.open(
        OpenFiles(fs),
        str(data),
        Environment.of_system(),
        cluster_id=properties["cluster.id"],
        node_id=int(properties["node.id"]),
    )
    found = directory.found()
    for partition, batch in batches:
        log = directory.logs.get(partition) or directory.adopt(
            directory.load(partition, found[partition], TopicConfig())
        )
        log.append_as_leader(batch, 0, origin=Origin.COORDINATOR)
    for partition in found.keys() - directory.logs.keys():
        directory.adopt(directory.load(partition, found[partition], TopicConfig()))
    directory.close()


def committed_values(wire, partition):
    wanted = [FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)]
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=wanted)], isolation_level=1)
    (found,) = wire(request, 12).responses[0].partitions
    if found.aborted_transactions:
        return []
    return [record.value for record in all_records(found.records or b"")]


def loaded(ask):
    """Return the answer of a coordinator when it has read its log."""
    while (answer := ask()).error_code == LOAD_IN_PROGRESS:
        pass
    return answer


def committed_offset(wire):
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)], require_stable=True
    )
    (found,) = loaded(lambda: wire(request, 9).groups[0]).topics[0].partitions
    return found.error_code or found.committed_offset


def state(wire):
    request = DescribeTransactionsRequest(transactional_ids=[NAME])
    return loaded(lambda: wire(request).transaction_states[0]).transaction_state


def wait_for_end(wire):
    while state(wire) not in ("CompleteCommit", "CompleteAbort"):
        pass


@pytest.mark.parametrize("markers", [0, 1, 2, 3])
@pytest.mark.parametrize("commit", [True, False])
def test_broker_that_died_between_decision_and_end_finishes_the_transaction(
    broker, connect, tmp_path, commit, markers
):
    producer = begin(connect(broker))
    broker.stop()
    prepared = decided(producer, commit=commit)
    decision = Record(*transaction_record(NAME, prepared, 2).encode())
    marker = encode_end_transaction(
        EndTransaction(commit, 0),
        producer_id=prepared.producer_id,
        producer_epoch=prepared.epoch,
        timestamp=NOW,
    )
    write(
        tmp_path,
        [
            (TopicPartition("__transaction_state", 0), encode_batch([decision])),
            *((partition, marker) for partition in PARTITIONS[:markers]),
        ],
    )
    broker.start()
    wire = connect(broker)
    wait_for_end(wire)
    assert state(wire) == ("CompleteCommit" if commit else "CompleteAbort")
    for partition in (0, 1):
        assert committed_values(wire, partition) == ([b"v"] if commit else [])
    assert committed_offset(wire) == (7 if commit else -1)
    described = wire(DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])]))
    for partition in described.topics[0].partitions:
        (known,) = partition.active_producers
        assert (known.current_txn_start_offset, known.producer_epoch) == (-1, prepared.epoch)
    repeated = wire(EndTxnRequest(transactional_id=NAME, committed=commit, **producer), 5)
    assert (repeated.error_code, repeated.producer_epoch) == (0, prepared.epoch)


@pytest.mark.parametrize("commit", [True, False])
def test_open_transaction_waits_through_a_restart_for_its_producer(broker, connect, commit):
    wire = connect(broker)
    producer = begin(wire)
    assert committed_offset(wire) == UNSTABLE_OFFSET_COMMIT
    broker.restart()
    wire = connect(broker)
    assert state(wire) == "Ongoing"
    assert committed_offset(wire) == UNSTABLE_OFFSET_COMMIT
    assert committed_values(wire, 0) == []
    ended = wire(EndTxnRequest(transactional_id=NAME, committed=commit, **producer), 5)
    assert (ended.error_code, ended.producer_epoch) == (0, 1)
    assert committed_values(wire, 0) == ([b"v"] if commit else [])
    assert committed_offset(wire) == (7 if commit else -1)


def test_producer_of_v2_needs_to_add_nothing(broker, connect):
    wire = connect(broker)
    wire(FindCoordinatorRequest(coordinator_keys=[NAME], key_type=1))
    answer = wire(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000))
    for epoch in range(3):
        batch = encode_batch(
            [Record(None, b"%d" % epoch, NOW)],
            producer_id=answer.producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        data = [PartitionProduceData(index=0, records=batch)]
        topics = [TopicProduceData(name="t", partition_data=data)]
        produced = wire(
            ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=60_000, topic_data=topics), 12
        )
        assert produced.responses[0].partition_responses[0].error_code == 0
        ended = wire(
            EndTxnRequest(
                transactional_id=NAME,
                producer_id=answer.producer_id,
                producer_epoch=epoch,
                committed=True,
            ),
            5,
        )
        assert (ended.error_code, ended.producer_epoch) == (0, epoch + 1)
    assert committed_values(wire, 0) == [b"0", b"1", b"2"]
    # What comes late of a transaction that has ended is fenced by its epoch.
    late = encode_batch(
        [Record(None, b"late", NOW)],
        producer_id=answer.producer_id,
        producer_epoch=0,
        base_sequence=1,
        transactional=True,
    )
    topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=late)])]
    refused = wire(ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=60_000, topic_data=topics), 12)
    assert refused.responses[0].partition_responses[0].error_code == INVALID_PRODUCER_EPOCH


def test_a_transaction_of_v2_begins_with_the_first_sequence_in_each_partition(broker, connect):
    wire = connect(broker)
    wire(FindCoordinatorRequest(coordinator_keys=[NAME], key_type=1))
    answer = wire(InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000))

    def produced(sequence: int) -> int:
        batch = encode_batch(
            [Record(None, b"%d" % sequence, NOW)],
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        topics = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])]
        request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=60_000, topic_data=topics)
        return wire(request, 12).responses[0].partition_responses[0].error_code

    assert produced(1) == OUT_OF_ORDER, "the batch before it was lost"
    assert [produced(sequence) for sequence in (0, 1)] == [0, 0]
    end = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    assert wire(EndTxnRequest(transactional_id=NAME, committed=True, **end), 5).error_code == 0
    assert committed_values(wire, 0) == [b"0", b"1"]
