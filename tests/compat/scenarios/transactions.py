"""Transactions: producers and their epochs, additions, writes, ends, and the records that readers see."""

from __future__ import annotations

import time

from barnabas.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.kafka.records import Record, encode_batch

T0 = 1_700_000_000_000
NOBODY = (987_654_321, 0)


def init(name: str | None, held: tuple[int, int] = (-1, -1), timeout: int = 60_000) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout, producer_id=held[0], producer_epoch=held[1]
    )


def add(name: str, producer, topic: str, *partitions: int, verify: bool = False) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify,
                topics=topics,
            )
        ],
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics,
    )


def end(name: str, producer, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
    )


def produce(wire, name: str | None, producer, topic: str, sequence: int, transactional: bool = True, index=0):
    batch = encode_batch(
        [Record(b"k", b"v", T0 + sequence)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=transactional,
    )
    data = [PartitionProduceData(index=index, records=batch)]
    topics = [TopicProduceData(name=topic, topic_id=wire.topic_id(topic), partition_data=data)]
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=topics)


def fetch(wire, topic: str, isolation: int, offset: int = 0) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic=topic, topic_id=wire.topic_id(topic), partitions=partitions)]
    return FetchRequest(replica_id=-1, max_bytes=1 << 20, isolation_level=isolation, topics=topics)


def latest(topic: str, isolation: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions)],
    )


def describe(name: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=[name])


def listed(name: str, **filters) -> ListTransactionsRequest:
    return ListTransactionsRequest(**{"transactional_id_pattern": f"{name}.*", **filters})


def offsets(wire, name: str, producer, topic: str, offset: int, **more) -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    ]
    topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return TxnOffsetCommitRequest(**{
        "transactional_id": name, "group_id": wire.name("g"), "producer_id": producer[0],
        "producer_epoch": producer[1], "topics": topics, **more,
    })  # fmt: skip


def committed(wire, topic: str, require_stable: bool = True) -> OffsetFetchRequest:
    topic_id, group = wire.topic_id(topic), wire.name("g")
    wanted = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0])
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])],
        require_stable=require_stable,
    )


def settled(wire, name: str) -> None:
    """Wait until the transaction's markers are written: Apache Kafka answers before."""
    while "Prepare" in wire.ask(describe(name), 0).transaction_states[0].transaction_state:
        time.sleep(0.01)


def coordinated(wire, name: str) -> None:
    """Wait until the transaction coordinator answers."""
    wire.ask(FindCoordinatorRequest(key=name, key_type=1), 1)
    while wire.ask(describe(name), 0).transaction_states[0].error_code not in (0, 105):
        time.sleep(0.01)


def started(wire):
    """Return a transactional id, a topic of two partitions, and the id's first producer."""
    name, topic = wire.name("x"), wire.topic("t", 2)
    coordinated(wire, name)
    answer = yield init(name)
    return name, topic, (answer.producer_id, answer.producer_epoch)


def ended(wire, name: str, producer, commit: bool):
    """End a transaction, and return the producer for the next one."""
    answer = yield end(name, producer, commit)
    settled(wire, name)
    current = wire.ask(describe(name), 0).transaction_states[0]
    assert answer.producer_epoch in (-1, current.producer_epoch)
    return current.producer_id, current.producer_epoch


def producers_introduce_themselves(wire):
    name = wire.name("x")
    coordinated(wire, name)
    yield init(None)
    yield init(None, (5, 7))
    yield init("")
    yield init(name, timeout=0)
    yield init(name, timeout=-1)
    yield init(name, timeout=900_001)
    yield init(name, NOBODY, 900_000)
    first = yield init(wire.name("y"))
    held = (first.producer_id, first.producer_epoch)
    yield init(wire.name("y"), held)
    yield init(wire.name("y"), held)
    yield init(wire.name("y"))
    yield init(wire.name("y"), held)
    yield init(wire.name("y"), (held[0], 9))
    yield init(wire.name("y"), NOBODY)
    yield init(wire.name("y"), (held[0], -1))
    yield init(wire.name("y"), (-1, 0))


def a_transaction_commits(wire):
    name, topic, producer = yield from started(wire)
    yield describe(name)
    yield add(name, producer, topic, 0, 1)
    yield add(name, producer, topic, 0)
    yield add(name, producer, topic, 0, verify=True)
    yield produce(wire, name, producer, topic, 0)
    yield produce(wire, name, producer, topic, 1)
    yield describe(name)
    for isolation in (0, 1):
        yield latest(topic, isolation)
        yield fetch(wire, topic, isolation)
    following = yield from ended(wire, name, producer, commit=True)
    for isolation in (0, 1):
        yield latest(topic, isolation)
        yield fetch(wire, topic, isolation)
    yield describe(name)
    yield end(name, producer, True)
    yield end(name, producer, False)
    yield add(name, following, topic, 1)
    yield describe(name)


def a_transaction_aborts(wire):
    name, topic, producer = yield from started(wire)
    sequence = 0
    for commit in (False, True, False):
        yield add(name, producer, topic, 0)
        yield produce(wire, name, producer, topic, sequence)
        yield produce(wire, name, producer, topic, sequence + 1)
        before = producer
        producer = yield from ended(wire, name, producer, commit)
        sequence = sequence + 2 if producer == before else 0
    yield produce(wire, None, (-1, -1), topic, -1, transactional=False)
    for offset in range(11):
        yield fetch(wire, topic, 1, offset)
    yield latest(topic, 1)


def successor_fences_its_predecessor(wire):
    name, topic, producer = yield from started(wire)
    yield add(name, producer, topic, 0)
    yield produce(wire, name, producer, topic, 0)
    yield init(name)
    settled(wire, name)
    yield describe(name)
    answer = yield init(name)
    yield add(name, producer, topic, 0)
    yield AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=wire.name("g")
    )
    yield produce(wire, name, producer, topic, 1)
    yield end(name, producer, True)
    yield end(name, producer, False)
    yield init(name, producer)
    yield fetch(wire, topic, 1)
    producer = (answer.producer_id, answer.producer_epoch)
    yield init(name, producer)


def what_does_not_belong_is_refused(wire):
    name, topic, producer = yield from started(wire)
    strange = (producer[0], producer[1] + 5)
    for who in (NOBODY, strange):
        yield add(name, who, topic, 0)
        yield add(name, who, topic, 0, verify=True)
        yield end(name, who, True)
    yield add(wire.name("nobody"), producer, topic, 0)
    yield add("", producer, topic, 0)
    yield end(wire.name("nobody"), producer, True)
    yield end("", producer, True)
    yield end(name, producer, True)
    yield add(name, producer, topic, 0, 7)
    yield add(name, producer, "nowhere", 0)
    yield produce(wire, None, producer, topic, 0)
    yield add(name, producer, topic, 1)
    yield produce(wire, name, producer, topic, 0, transactional=False, index=1)
    yield produce(wire, name, producer, topic, 1, index=1)
    yield describe(wire.name("nobody"))
    yield describe("")


def a_write_that_was_not_added(wire):
    name, topic, producer = yield from started(wire)
    yield add(name, producer, topic, 1)
    yield produce(wire, name, producer, topic, 0)
    yield describe(name)


def abort_of_nothing(wire):
    name, _, producer = yield from started(wire)
    yield end(name, producer, False)
    settled(wire, name)
    yield describe(name)


def offsets_wait_for_the_transaction(wire):
    name, topic, producer = yield from started(wire)
    yield AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=wire.name("g")
    )
    yield AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=""
    )
    yield offsets(wire, name, producer, topic, 5)
    yield offsets(wire, name, producer, "nowhere", 5)
    yield offsets(wire, name, producer, topic, 5, generation_id=3, member_id="m")
    yield offsets(wire, name, (producer[0], producer[1] + 4), topic, 6)
    yield committed(wire, topic)
    yield committed(wire, topic, require_stable=False)
    producer = yield from ended(wire, name, producer, commit=True)
    yield committed(wire, topic)
    yield AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id=wire.name("g")
    )
    yield offsets(wire, name, producer, topic, 9)
    yield committed(wire, topic)
    yield from ended(wire, name, producer, commit=False)
    yield committed(wire, topic)


def offsets_of_a_group_that_was_not_added(wire):
    name, topic, producer = yield from started(wire)
    yield offsets(wire, name, producer, topic, 5)
    yield offsets(wire, wire.name("nobody"), NOBODY, topic, 5)
    yield offsets(wire, name, producer, topic, 5, group_id="")


def transactions_are_listed(wire):
    name, topic, producer = yield from started(wire)
    yield add(name, producer, topic, 0)
    mine = {"producer_id_filters": [producer[0]]}
    yield listed(name, **mine)
    yield listed(name, producer_id_filters=[NOBODY[0]])
    yield listed(name, state_filters=["Ongoing", "Empty"], **mine)
    yield listed(name, state_filters=["CompleteCommit"], **mine)
    yield listed(name, state_filters=["Ongoing", "nonsense", "Dead"], **mine)
    yield listed(name, duration_filter=3_600_000, **mine)
    if wire.level >= 2:
        yield listed(name, transactional_id_pattern="(")
        yield listed(name, transactional_id_pattern=name[:-1])


def markers_by_hand(wire):
    name, topic, producer = yield from started(wire)
    yield add(name, producer, topic, 0)
    yield produce(wire, name, producer, topic, 0)

    def marker(who, coordinator_epoch=0, where=topic, index=0, version=0):
        topics = [WritableTxnMarkerTopic(name=where, partition_indexes=[index])]
        return WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=who[0],
                    producer_epoch=who[1],
                    transaction_result=False,
                    topics=topics,
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=version,
                )
            ]
        )

    yield marker(producer, where="nowhere")
    yield marker(producer, index=9)
    yield marker(producer, version=2)
    yield latest(topic, 1)
    yield marker((producer[0], producer[1] + 1), version=2)
    yield latest(topic, 1)
    yield marker((producer[0], producer[1] + 1), version=2)
    yield marker(producer)
    yield marker((producer[0], producer[1] + 1), coordinator_epoch=5)
    yield marker((producer[0], producer[1] + 1), coordinator_epoch=4)
    yield fetch(wire, topic, 1)


def features_are_updated(wire):
    def update(name: str, level: int, kind: int = 1, downgrade: bool = False, **more):
        key = FeatureUpdateKey(
            feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=downgrade
        )
        return UpdateFeaturesRequest(feature_updates=[key], validate_only=wire.level > 0, **more)

    yield update("transaction.version", 2)
    yield update("transaction.version", 3)
    yield update("transaction.version", -1)
    yield update("transaction.version", 1)
    yield update("no.such.feature", 1)
    if wire.level:
        yield update("transaction.version", 1, 2)
        yield update("transaction.version", 1, 3)
        yield update("transaction.version", 1, 9)
