"""Transactions whose coordinator and whose partitions' leaders are different brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import resolve
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator import Marker
from barnabas.broker.interbroker import DisconnectedError
from barnabas.broker.metadata.image import ClusterImage, PartitionState, TopicImage
from barnabas.broker.metadata.store import StoreUnavailableError
from barnabas.broker.server.transactions.coordinators import TransactionCoordinators
from barnabas.broker.server.transactions.marker_sender import MarkerSender
from barnabas.broker.server.transactions.verification import (
    LastMarker,
    TransactionalWrite,
    TransactionVerifier,
    still_valid,
)
from barnabas.broker.storage.producers import Producers
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

ME = 1
OWN, THEIRS, OTHERS, HEADLESS = (TopicPartition("t", number) for number in range(4))
GONE = TopicPartition("gone", 0)
MARKER = Marker(producer_id=7, producer_epoch=3, commit=True, coordinator_epoch=5, transaction_version=2)
PRODUCER = ProducerIdentity(7, 3)
NONE = ErrorCode.NONE


def image(**topics):
    made = {
        name: TopicImage(
            name,
            name.encode().ljust(16),
            tuple(PartitionState((1, 2, 3), (1, 2), leader) for leader in leaders),
        )
        for name, leaders in topics.items()
    }
    return ClusterImage(topics=made)


class Peers:
    """The other brokers. Each test defines their answers."""

    def __init__(self):
        self.asked = []
        self.answer = None

    def channel(self, broker, purpose):
        async def send(request, *, timeout_s=None):
            self.asked.append((broker, purpose, request))
            await asyncio.sleep(0.1)
            answer = self.answer(broker, request)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return SimpleNamespace(send=send)


class World:
    def __init__(self):
        self.peers = Peers()
        self.view = view_of(image(t=[ME, 2, 3, -1], __transaction_state=[2]), config=BrokerConfig(node_id=ME))
        self.after_sync = None
        self.local = {}
        self.written = []
        #: the pending proof that this broker is still the coordinator; None if there is no doubt
        self.proof = None

    def write(self, marker, partitions):  # as a `MarkerAppender`
        self.written += partitions
        return {partition: self.local.get(partition, NONE) for partition in partitions}

    async def synced(self):
        if isinstance(self.after_sync, Exception):
            raise self.after_sync
        self.view.image = self.after_sync or self.view.image
        return self.view.image

    def sender(self):
        return MarkerSender(self.view, self.synced, self, self.peers)

    # --- as a `TransactionCoordinator` ---

    def partition_for(self, key):
        return 0

    def add_partitions(self, *arguments):
        return None

    def verify_partitions(self, transactional_id, producer, partitions):
        return dict.fromkeys(partitions, NONE)

    def coordinators(self):
        return TransactionCoordinators(self.view, self, self.peers, lambda _partition: self.proof)


def markers_answered(request, codes):
    (wanted,) = request.markers
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=wanted.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=number,
                                error_code=codes.get(TopicPartition(topic.name, number), 0),
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in wanted.topics
                ],
            )
        ]
    )


@pytest.fixture
def world():
    return World()


def test_markers_for_this_brokers_partitions_alone_need_no_other(world):
    assert world.sender().write(MARKER, [OWN]) == {OWN: NONE}
    assert world.peers.asked == []


def test_each_leader_gets_the_markers_of_its_partitions(world):
    async def scenario():
        world.peers.answer = lambda broker, request: markers_answered(request, {})
        outcomes = await world.sender().write(MARKER, [OWN, THEIRS, OTHERS, HEADLESS])
        assert outcomes == {
            OWN: NONE,
            THEIRS: NONE,
            OTHERS: NONE,
            HEADLESS: ErrorCode.LEADER_NOT_AVAILABLE,
        }
        assert [(broker, purpose) for broker, purpose, _ in world.peers.asked] == [
            (2, "markers"),
            (3, "markers"),
        ]
        (marker,) = world.peers.asked[0][2].markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (5, 2)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1])]

    run_virtual(scenario())


def test_a_leader_that_does_not_answer_is_to_be_asked_again(world):
    async def scenario():
        world.peers.answer = lambda broker, request: (
            DisconnectedError("killed") if broker == 2 else markers_answered(request, {})
        )
        outcomes = await world.sender().write(MARKER, [THEIRS, OTHERS])
        assert outcomes == {THEIRS: ErrorCode.NETWORK_EXCEPTION, OTHERS: NONE}

    run_virtual(scenario())


def test_a_leader_that_has_not_heard_of_a_topic_has_written_no_marker(world):
    async def scenario():
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.peers.answer = lambda broker, request: markers_answered(request, {THEIRS: unknown})
        world.local[OWN] = unknown
        outcomes = await world.sender().write(MARKER, [OWN, THEIRS])
        assert outcomes == dict.fromkeys([OWN, THEIRS], ErrorCode.LEADER_NOT_AVAILABLE)

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("after_sync", "code"),
    [
        (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (image(gone=[2]), ErrorCode.LEADER_NOT_AVAILABLE),
        (StoreUnavailableError("away"), ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_topic_counts_as_deleted_when_the_store_says_so_and_not_a_stale_image(world, after_sync, code):
    async def scenario():
        world.after_sync = after_sync
        assert await world.sender().write(MARKER, [OWN, GONE]) == {OWN: NONE, GONE: code}

    run_virtual(scenario())


def added(codes):
    def answer(broker, request):
        (transaction,) = request.transactions
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=number,
                                    partition_error_code=codes.get(TopicPartition(topic.name, number), 0),
                                )
                                for number in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
            ]
        )

    return answer


def test_the_coordinator_on_this_broker_is_asked_at_once(world):
    world.view.image = image(t=[ME], __transaction_state=[ME])
    coordinators = world.coordinators()
    assert coordinators.verify_partitions("x", PRODUCER, [OWN]) == {OWN: NONE}
    assert coordinators.add_partitions("x", PRODUCER, [OWN], 2) is None


@pytest.mark.parametrize("adds", [False, True])
def test_the_coordinator_on_this_broker_answers_when_it_has_proved_that_it_is_no_former_one(world, adds):
    async def scenario():
        world.proof = asyncio.get_running_loop().create_future()
        asked = asyncio.ensure_future(_admit(world, adds))
        await asyncio.sleep(1)
        assert not asked.done()
        world.proof.set_result(True)
        assert await asked == {OWN: NONE}

    run_virtual(scenario())


@pytest.mark.parametrize("adds", [False, True])
def test_a_former_coordinator_on_this_broker_admits_no_write(world, adds):
    """The broker is cut off from ZooKeeper, and its successor has ended the transaction."""

    async def scenario():
        world.proof = asyncio.get_running_loop().create_future()
        world.proof.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert await _admit(world, adds) == {OWN: ErrorCode.NOT_COORDINATOR}

    run_virtual(scenario())


async def _admit(world, adds):
    world.view.image = image(t=[ME], __transaction_state=[ME])
    verifier = TransactionVerifier(world.view, world.coordinators())
    return await resolve(verifier.admit(TransactionalWrite("x", PRODUCER, [OWN], adds)))


def test_another_brokers_coordinator_is_asked_by_add_partitions_to_txn(world):
    async def scenario():
        coordinators = world.coordinators()
        world.peers.answer = added({OWN: ErrorCode.TRANSACTION_ABORTABLE})
        verdicts = await coordinators.verify_partitions("x", PRODUCER, [OWN, THEIRS])
        assert verdicts == {OWN: ErrorCode.TRANSACTION_ABORTABLE, THEIRS: NONE}
        world.peers.answer = added({})
        await coordinators.add_partitions("x", PRODUCER, [OWN], 2)
        for (broker, purpose, request), verify_only in zip(world.peers.asked, (True, False), strict=True):
            assert (broker, purpose) == (2, "transactions")
            assert isinstance(request, AddPartitionsToTxnRequest)
            (transaction,) = request.transactions
            assert transaction.verify_only is verify_only
            assert (transaction.producer_id, transaction.producer_epoch) == PRODUCER
        world.peers.answer = added({OWN: ErrorCode.CONCURRENT_TRANSACTIONS})
        with pytest.raises(KafkaError, match="CONCURRENT_TRANSACTIONS"):
            await coordinators.add_partitions("x", PRODUCER, [OWN], 2)

    run_virtual(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        lambda broker, request: DisconnectedError("killed"),
        lambda broker, request: AddPartitionsToTxnResponse(),
        added({OWN: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        added({OWN: ErrorCode.OPERATION_NOT_ATTEMPTED}),
    ],
)
def test_what_the_coordinator_cannot_say_now_is_asked_again(world, answer):
    async def scenario():
        world.peers.answer = answer
        verdicts = await world.coordinators().verify_partitions("x", PRODUCER, [OWN])
        assert verdicts == {OWN: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    run_virtual(scenario())


def test_without_a_coordinator_the_producer_is_told_to_try_again(world):
    world.view.image = image(t=[ME], __transaction_state=[-1])
    with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
        world.coordinators().verify_partitions("x", PRODUCER, [OWN])


def test_a_verdict_is_void_when_the_transaction_has_ended_since():
    producers = Producers()
    partition = SimpleNamespace(log=SimpleNamespace(producers=producers))
    asked = LastMarker.of(partition, PRODUCER)
    verdicts = {OWN: NONE, THEIRS: ErrorCode.PRODUCER_FENCED}
    assert still_valid(verdicts, {OWN: asked}) == verdicts
    header = SimpleNamespace(producer_id=7, producer_epoch=3, max_timestamp=0)
    producers.end_transaction(header, SimpleNamespace(coordinator_epoch=5, commit=True), 11)
    assert still_valid(verdicts, {OWN: asked}) == verdicts | {OWN: ErrorCode.INVALID_TXN_STATE}
    assert still_valid(verdicts, {OWN: LastMarker.of(partition, PRODUCER)}) == verdicts
