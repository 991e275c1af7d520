"""A read from the disk does not delay other clients."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.os_filesystem import OsFile, OsFileSystem
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import all_records

T0 = 1_700_000_000_000


class ColdDisk(OsFileSystem):
    """A disk whose page cache has no data of the topic in `cold`, until a thread reads the data.

    That thread waits for `let_go`. The disk notes reads by another thread.
    """

    def __init__(self) -> None:
        self.cold = ""
        self.warm: set[str] = set()
        self.asked = threading.Event()
        self.let_go = threading.Event()
        self.waited: list[str] = []

    def open(self, path: str, *, create: bool = False) -> ColdFile:
        file = super().open(path, create=create)
        descriptor, file._fd = file._fd, -1
        return ColdFile(descriptor, path, self)


class ColdFile(OsFile):
    __slots__ = ("_disk", "_path")

    def __init__(self, fd: int, path: str, disk: ColdDisk) -> None:
        super().__init__(fd)
        self._path = path
        self._disk = disk

    @property
    def _is_cold(self) -> bool:
        disk = self._disk
        return bool(disk.cold) and f"/{disk.cold}-" in self._path and self._path not in disk.warm

    def is_cached(self, size: int, position: int) -> bool:
        return not self._is_cold

    def read_at(self, size: int, position: int) -> bytes:
        if self._is_cold:
            disk = self._disk
            if threading.current_thread().name.startswith("cold reads"):
                disk.asked.set()
                assert disk.let_go.wait(60)
                disk.warm.add(self._path)
            else:
                disk.waited.append(self._path)
        return super().read_at(size, position)


@pytest.fixture
def disk():
    return ColdDisk()


@pytest.fixture
def broker(tmp_path, disk, connect, batch):
    """Start a broker with one record in each segment of the topic `old`, and one record in `new`."""
    config = BrokerConfig.from_text(
        {
            "log.dirs": str(tmp_path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.segment.bytes": "300",
            "log.index.interval.bytes": "1",
        }
    )
    with BrokerServer(config, replace(Environment.of_system(), filesystem=disk)) as server:
        wire = connect(server.bootstrap_servers)
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("old", "new")
        ]
        wire(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        for number in range(20):
            produce(wire, "old", batch(b"v" * 200, timestamp=T0 + number))
        produce(wire, "new", batch(b"new", timestamp=T0))
        disk.cold = "old"
        yield server.bootstrap_servers
        disk.let_go.set()
    assert not disk.waited


def produce(wire, topic, records):
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    response = wire(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data), 12)
    assert response.responses[0].partition_responses[0].error_code == 0


def fetch_request(topic, max_wait_ms=0, partition_max_bytes=1 << 20):
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def values(response):
    ((partition,),) = [topic.partitions for topic in response.responses]
    assert partition.error_code == 0
    return [record.value for record in all_records(bytes(partition.records))]


def time_request(topic, timestamp):
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


def test_a_fetch_from_the_disk_holds_nobody_else(broker, disk, connect):
    reader, other = connect(broker), connect(broker)
    header = reader.send(fetch_request("old"), 12)
    assert disk.asked.wait(60)
    assert values(other(fetch_request("new"), 12)) == [b"new"]
    disk.let_go.set()
    assert values(reader.receive(header)) == [b"v" * 200]


def test_a_look_up_by_time_on_the_disk_holds_nobody_else(broker, disk, connect):
    reader, other = connect(broker), connect(broker)
    header = reader.send(time_request("old", T0 + 7))
    assert disk.asked.wait(60)
    assert other(time_request("new", T0)).topics[0].partitions[0].offset == 0
    disk.let_go.set()
    found = reader.receive(header).topics[0].partitions[0]
    assert (found.error_code, found.offset, found.timestamp) == (0, 7, T0 + 7)


def test_requests_behind_a_fetch_from_the_disk_are_answered_in_order(broker, disk, connect):
    reader = connect(broker)
    headers = [reader.send(fetch_request(topic), 12) for topic in ("old", "new")]
    assert disk.asked.wait(60)
    disk.let_go.set()
    assert [values(reader.receive(header)) for header in headers] == [[b"v" * 200], [b"new"]]


def test_a_client_that_leaves_while_its_fetch_waits_for_the_disk_harms_nobody(broker, disk, connect):
    reader, other = connect(broker), connect(broker)
    reader.send(fetch_request("old"), 12)
    assert disk.asked.wait(60)
    reader.close()
    disk.let_go.set()
    assert values(other(fetch_request("old"), 12)) == [b"v" * 200]
