"""DeleteRecords waits for the followers, so that the records stay deleted under another leader."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.server.handlers import delete_records as handler
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


class FakePartition:
    leader_epoch = 5

    def __init__(self, index=0):
        self.topic_partition = TopicPartition("t", index)
        self.watchers = {}
        #: where the follower's log starts
        self.follower_start = 0
        self.start = 0
        self.log = SimpleNamespace(
            config=TopicConfig(),
            high_watermark=10,
            check_log_start=lambda start: None,
            advance_log_start=self._advance,
        )

    @property
    def low_watermark(self):
        return min(self.start, self.follower_start)

    def check_leader(self, epoch=5):
        if epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    def _advance(self, start):
        self.start = start

    def follows(self, start):
        self.follower_start = start
        self.wake()

    def wake(self):
        for watcher in list(self.watchers):
            watcher.progressed(0)


@pytest.fixture
def partition():
    return FakePartition()


def delete(partition, offset, timeout_ms=1000):
    async def store(directory, starts):
        pass

    logs = SimpleNamespace(
        find_directory=lambda topic_partition: "/data", checkpoints=SimpleNamespace(store_log_starts=store)
    )
    replicas = SimpleNamespace(find=lambda topic, index: partition)
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        timeout_ms=timeout_ms, topics=[DeleteRecordsTopic(name="t", partitions=[wanted])]
    )

    async def ask():
        response = await handler.delete_records.handle(replicas, logs, None, request)
        result = response.topics[0].partitions[0]
        return result.error_code or result.low_watermark

    return asyncio.create_task(ask())


def test_it_is_answered_when_every_live_follower_has_deleted_too(partition):
    async def main():
        answer = delete(partition, 7)
        await asyncio.sleep(0.5)
        assert partition.start == 7
        partition.follows(4)
        await asyncio.sleep(0)
        assert not answer.done()
        partition.follows(8)
        assert await answer == 7
        assert partition.watchers == {}

    run_virtual(main())


def test_a_follower_that_takes_too_long_is_a_timeout(partition):
    async def main():
        assert await delete(partition, 7) == ErrorCode.REQUEST_TIMED_OUT
        assert asyncio.get_running_loop().time() == pytest.approx(1)

    run_virtual(main())


def test_a_leader_that_is_replaced_meanwhile_says_so(partition):
    async def main():
        answer = delete(partition, 7)
        await asyncio.sleep(0.5)
        partition.leader_epoch = 6
        partition.wake()
        assert await answer == ErrorCode.FENCED_LEADER_EPOCH

    run_virtual(main())


def test_what_the_followers_have_deleted_before_is_answered_at_once(partition):
    async def main():
        partition.follower_start = 7
        assert await delete(partition, 7, timeout_ms=0) == 7

    run_virtual(main())


def test_a_start_is_stored_in_the_directory_to_which_the_log_has_moved_meanwhile():
    """The deletions in another directory are stored first."""
    partitions = [FakePartition(0), FakePartition(1), FakePartition(2)]
    directories = {0: "/a", 1: "/b", 2: "/b"}
    stored = []

    async def store(directory, starts):
        stored.append((directory, [log for log, _ in starts]))
        await asyncio.sleep(1)
        directories[1] = "/c"

    logs = SimpleNamespace(
        find_directory=lambda name: directories.get(name.partition),
        checkpoints=SimpleNamespace(store_log_starts=store),
    )
    replicas = SimpleNamespace(find=lambda topic, index: partitions[index])
    wanted = [DeleteRecordsPartition(partition_index=index, offset=7) for index in range(3)]
    request = DeleteRecordsRequest(timeout_ms=0, topics=[DeleteRecordsTopic(name="t", partitions=wanted)])
    run_virtual(handler.delete_records.handle(replicas, logs, None, request))
    logs_of = [partition.log for partition in partitions]
    assert stored == [("/a", [logs_of[0]]), ("/c", [logs_of[1]]), ("/b", [logs_of[2]])]
    assert [partition.start for partition in partitions] == [7, 7, 7]


def test_a_partition_whose_log_is_deleted_meanwhile_is_unknown():
    partitions = [FakePartition(0), FakePartition(1)]
    directories = {0: "/a", 1: "/b"}

    async def store(directory, starts):
        directories.pop(1, None)

    logs = SimpleNamespace(
        find_directory=lambda name: directories.get(name.partition),
        checkpoints=SimpleNamespace(store_log_starts=store),
    )
    replicas = SimpleNamespace(find=lambda topic, index: partitions[index])
    wanted = [DeleteRecordsPartition(partition_index=index, offset=7) for index in range(2)]
    request = DeleteRecordsRequest(timeout_ms=0, topics=[DeleteRecordsTopic(name="t", partitions=wanted)])
    response = run_virtual(handler.delete_records.handle(replicas, logs, None, request))
    codes = [result.error_code for result in response.topics[0].partitions]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
