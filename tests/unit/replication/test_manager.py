"""New partitions are opened some at a time, and whoever needs one before gets it."""

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.errors import KafkaError
from barnabas.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicImage
from barnabas.replication.manager import ReplicaManager
from barnabas.types import TopicPartition

ME = 1
TOPIC_ID = b"t" * 16


class FakeLogs:
    """Knows which logs were made, and which are gone."""

    def __init__(self):
        self.made = {}
        self.is_closed = False

    def get(self, topic_partition):
        return self.made.get(topic_partition)

    def create(self, topic_partition, topic_id, config):
        log = SimpleNamespace(
            topic_partition=topic_partition,
            topic_id=topic_id,
            log_end_offset=0,
            recovery_point=0,
            advance_high_watermark=lambda offset: False,
        )
        self.made[topic_partition] = log
        return log

    def delete(self, topic_partition):
        self.made.pop(topic_partition, None)


@pytest.fixture
def logs():
    return FakeLogs()


@pytest.fixture
def replicas(logs):
    configs = SimpleNamespace(topic_config=lambda image, topic: None)
    return ReplicaManager(ME, logs, configs, on_flush_due=lambda partition: None)


def image_of(partitions):
    states = tuple(PartitionState((ME,), (ME,), ME) for _ in range(partitions))
    topics = {"t": TopicImage("t", TOPIC_ID, states)} if partitions else {}
    return ClusterImage(topics=topics, topic_names=dict.fromkeys([TOPIC_ID], "t") if topics else {})


def apply(replicas, before, after):
    replicas.apply(ImageDelta(before, after, topics=frozenset({"t"})))


async def turns():
    for _ in range(100):
        await asyncio.sleep(0)


def test_partitions_of_a_large_topic_are_opened_over_several_turns(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(500))
        await asyncio.sleep(0)
        assert 0 < len(logs.made) < 500
        await turns()
        assert len(logs.made) == 500
        assert [partition.topic_partition.partition for partition in replicas] == list(range(500))

    asyncio.run(scenario())


def test_partition_that_is_asked_for_before_its_turn_is_opened_at_once(logs, replicas):
    async def scenario():
        apply(replicas, ClusterImage(), image_of(500))
        assert replicas.find("t", 499).topic_partition == TopicPartition("t", 499)
        assert replicas.find(TOPIC_ID, 499) is replicas.find("t", 499)
        made = logs.made[TopicPartition("t", 499)]
        await turns()
        assert logs.made[TopicPartition("t", 499)] is made

    asyncio.run(scenario())


@pytest.mark.parametrize("is_closed", [False, True])
def test_partitions_that_are_no_longer_wanted_are_not_opened(logs, replicas, is_closed):
    async def scenario():
        now = image_of(500)
        apply(replicas, ClusterImage(), now)
        if is_closed:
            logs.is_closed = True
        else:
            apply(replicas, now, ClusterImage())
            with pytest.raises(KafkaError):
                replicas.find("t", 0)
        await turns()
        assert not logs.made

    asyncio.run(scenario())
