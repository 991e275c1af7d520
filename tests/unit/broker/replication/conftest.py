"""A partition on a faulty disk, in a cluster of given brokers."""

from __future__ import annotations

import asyncio

import pytest
from simulation.clocks import ManualClock
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.metadata.image import BrokerImage
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.progress import LeaderContext
from barnabas.broker.storage import OpenFiles, Origin
from barnabas.kafka.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from barnabas.kafka.records import Record, encode_batch

ME = 1
BATCH = encode_batch([Record(None, b"v", timestamp=1_700_000_000_000)])


class Brokers:
    """The live brokers, and the time."""

    def __init__(self, *ids):
        self.alive = {}
        self.time = 0.0
        for broker in ids:
            self.start(broker)

    def start(self, broker, **fields):
        """Register a broker, or register it again."""
        epoch = self.alive[broker].epoch + 10 if broker in self.alive else 100 + broker
        self.alive[broker] = BrokerImage(broker, (), epoch=epoch, **fields)

    def epoch(self, broker):
        return self.alive[broker].epoch

    @property
    def context(self):
        return LeaderContext(lambda: self.alive, lambda: self.time)


@pytest.fixture
def brokers():
    return Brokers(1, 2, 3)


@pytest.fixture
def lead(brokers):
    """`lead(state, min_insync_replicas=2)`: return a partition in this state on broker 1."""

    def make(state, on_isr_change_due=lambda partition: None, index=0, **settings):
        directory = LogDirectory.open(
            OpenFiles(FaultyDisk()),
            "/data",
            simulated_environment(clock=ManualClock()),
            cluster_id="c",
            node_id=ME,
        )
        log = directory.create(TopicPartition("t", index), bytes(range(16)), TopicConfig(**settings))
        return Partition(
            log,
            state,
            ME,
            on_flush_due=lambda partition: None,
            on_isr_change_due=on_isr_change_due,
            on_leadership_end=make.ended.append,
            context=brokers.context,
        )

    #: the partitions whose leaderships have ended
    make.ended = []
    return make


@pytest.fixture
def append():
    def append(partition, acks=1, count=1):
        for _ in range(count):
            info = partition.append(BATCH, acks, Origin.CLIENT)
        return info

    return append


@pytest.fixture
def fetch(brokers):
    """Fetch as a follower from an offset on, with its present broker epoch."""

    def fetch(partition, broker, offset, **fields):
        partition.followed(broker, brokers.epoch(broker), offset, **fields)

    return fetch


class Controller:
    """A controller that answers AlterPartition as the test says, or executes it."""

    def __init__(self):
        self.requests = []
        #: what to answer next, first; an exception, an error of the request, or one for each partition
        self.answers = []
        self.states = {}
        #: whether no request gets an answer
        self.hangs = False

    async def send(self, request):
        self.requests.append(request)
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        await asyncio.sleep(0.01)
        topics = []
        for topic in request.topics:
            topics.append(TopicResult(topic_id=topic.topic_id))
            for wanted in topic.partitions:
                result = PartitionResult(
                    partition_index=wanted.partition_index,
                    error_code=answer,
                    leader_id=ME,
                    leader_epoch=wanted.leader_epoch,
                    isr=wanted.new_isr,
                    partition_epoch=wanted.partition_epoch + 1,
                )
                topics[-1].partitions.append(result)
        return AlterPartitionResponse(topics=topics)


@pytest.fixture
def controller():
    return Controller()
