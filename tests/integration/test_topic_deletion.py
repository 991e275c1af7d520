"""Folders follow the metadata, whatever moment the broker is killed at."""

from __future__ import annotations

import asyncio
import errno
import select
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.config import BrokerConfig
from barnabas.controller import Controller, NewTopic
from barnabas.environment.clock import SystemClock
from barnabas.environment.filesystem import read_file
from barnabas.errors import ErrorCode
from barnabas.metadata import MetadataLoader, open_store
from barnabas.metadata.configs import ConfigResolver
from barnabas.metadata.image import BrokerEndpoint, BrokerImage
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.server.run import BrokerServer
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.testing import BarnabasBroker


@pytest.fixture
def broker():
    with BarnabasBroker(mode="thread") as broker:
        yield broker


def decide(data: Path, decision: Callable[[Controller, MetadataLoader], Awaitable[object]]) -> None:
    """Do to the metadata of a stopped broker what its controller would, and not what follows from it: as if
    the broker had been killed in between."""

    async def run() -> None:
        config = BrokerConfig(log_dirs=(str(data),))
        store = await open_store(config)
        loader = MetadataLoader(store)
        await loader.start()
        endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", 1)
        controller = Controller(
            store,
            loader,
            ConfigResolver(config, 1),
            BrokerImage(1, (endpoint,)),
            SystemClock(),
            Random(1),
        )
        await controller.start()
        await decision(controller, loader)
        await loader.stop()
        await store.close()

    asyncio.run(run())


def folders(data: Path) -> set[str]:
    return {entry.name for entry in data.iterdir() if entry.is_dir()}


def wait_for(condition: Callable[[], bool]) -> None:
    """For what a thread of the broker does after it is up: there is no event to wait for from outside."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


@pytest.mark.parametrize("values", [[], ["a", "b", "c"]])
def test_a_new_topic_is_not_taken_for_one_of_its_name_that_was_deleted_just_before_a_crash(values):
    with BarnabasBroker(mode="process") as broker:
        broker.stop()
        (broker.data / ".kafka_cleanshutdown").unlink()
        for name in CHECKPOINTS:
            (broker.data / name).write_text("0\n1\nt 0 100\n")
        broker.start()
        broker.create_topic("t", 1)
        if values:
            broker.produce("t", *values)
        broker.kill()
        broker.start()
        broker.produce("t", "last")
        assert [record.text for record in broker.consume("t", len(values) + 1)] == [*values, "last"]


def test_nothing_is_left_written_down_of_a_deleted_topic():
    never = {"replica.high.watermark.checkpoint.interval.ms": "3600000"}
    with BarnabasBroker(never, mode="process") as broker:
        broker.create_topic("t", 1)
        broker.produce("t", "a")
        broker.restart()
        checkpoint = broker.data / "replication-offset-checkpoint"
        assert "t 0 1" in checkpoint.read_text()
        broker.admin().delete_topic("t")
        wait_for(lambda: "t 0 1" not in checkpoint.read_text())


class GatedDisk(FaultyDisk):
    """A disk on which checkpoints are not written while the gate is closed."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def rename(self, source, target):
        if target.endswith("-checkpoint") and not self.gate.is_set():
            self.waiting.set()
            self.gate.wait(20)
        super().rename(source, target)


def test_a_topic_is_not_made_again_while_the_deleted_one_is_still_written_down(
    tmp_path, connect, make_topic, produce, batch
):
    disk = GatedDisk()
    settings = {"log_dirs": (str(tmp_path),), "listeners": ("PLAINTEXT://127.0.0.1:0",)}
    with BrokerServer(BrokerConfig(**settings), fs=disk) as broker:
        wire, other = connect(broker), connect(broker)
        topic = make_topic(by=wire)
        produce(topic, batch(b"v"), by=wire)
        disk.gate.clear()
        (deleted,) = wire(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)])).responses
        assert deleted.error_code == 0
        assert disk.waiting.wait(20)
        again = CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1)
        header = other.send(CreateTopicsRequest(topics=[again]))
        named = [MetadataRequestTopic(name=topic.name)]
        (known,) = wire(MetadataRequest(topics=named, allow_auto_topic_creation=False)).topics
        assert known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert select.select([other.socket], [], [], 0.5)[0] == []
        disk.gate.set()
        (made,) = other.receive(header).topics
        assert made.error_code == 0


class FullDisk(FaultyDisk):
    """A disk that has no room for checkpoints while it is full."""

    def __init__(self):
        super().__init__()
        self.is_full = False
        self.refused = threading.Event()

    def open(self, path, *, create=False):
        if self.is_full and create and "-checkpoint" in path:
            self.refused.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create=create)


def test_a_topic_that_was_deleted_on_a_full_disk_is_written_down_no_more_when_it_is_made_again(
    tmp_path, connect, make_topic, produce, batch
):
    disk = FullDisk()
    settings = {
        "log_dirs": (str(tmp_path),),
        "listeners": ("PLAINTEXT://127.0.0.1:0",),
        "replica_high_watermark_checkpoint_interval_ms": 3_600_000,
    }
    server = BrokerServer(BrokerConfig(**settings), fs=disk).start()
    wire = connect(server)
    topic = make_topic(by=wire)
    produce(topic, batch(b"v"), by=wire)
    server.stop()
    checkpoint = f"{tmp_path}/replication-offset-checkpoint"
    assert topic.name.encode() in read_file(disk, checkpoint)

    with BrokerServer(BrokerConfig(**settings), fs=disk) as server:
        wire = connect(server)
        disk.is_full = True
        wire(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)]))
        assert disk.refused.wait(20)
        disk.is_full = False
        again = CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1)
        (made,) = wire(CreateTopicsRequest(topics=[again])).topics
        assert made.error_code == 0
        assert topic.name.encode() not in read_file(disk, checkpoint)


def test_folders_of_a_topic_deleted_just_before_a_crash_are_deleted_at_the_restart(
    broker, connect, make_topic, produce, batch
):
    wire = connect(broker)
    gone, kept = make_topic(2, by=wire), make_topic(by=wire)
    produce(gone, batch(b"a"), by=wire)
    produce(kept, batch(b"b"), by=wire)
    broker.stop()

    async def delete(controller, loader):
        # the note that the folders may still be there outlives this process as it would a crash
        controller._topics._forget_deleted = _nothing
        assert await controller.delete_topics([gone.id]) == {}

    decide(broker.data, delete)
    assert f"{gone.name}-0" in folders(broker.data)
    broker.start()
    wait_for(lambda: not any(name.startswith(gone.name) for name in folders(broker.data)))
    assert f"{kept.name}-0" in folders(broker.data)


async def _nothing() -> None: ...


def test_topic_made_just_before_a_crash_is_there_after_it(broker, connect, produce, batch):
    broker.stop()
    made = []

    async def create(controller, loader):
        made.append((await controller.create_topics([NewTopic("t", 2, 1)]))["t"])

    decide(broker.data, create)
    assert "t-0" not in folders(broker.data)
    broker.start()
    wire = connect(broker)
    assert produce(made[0], batch(b"a"), partition=1, by=wire).error_code == 0


def test_folder_that_no_topic_accounts_for_stays_where_it_is(broker, connect, make_topic, produce, batch):
    wire = connect(broker)
    topic = make_topic(by=wire)
    produce(topic, batch(b"a"), by=wire)
    broker.stop()
    (broker.data / f"{topic.name}-0").rename(broker.data / "unheard-of-0")
    broker.start()
    assert "unheard-of-0" in folders(broker.data)


def test_topic_made_again_under_the_same_name_is_a_new_one(broker, connect, make_topic, produce, batch):
    wire = connect(broker)
    topic = make_topic(by=wire)
    for value in (b"a", b"b"):
        produce(topic, batch(value), by=wire)
    states = [DeleteTopicState(name=topic.name)]
    assert wire(DeleteTopicsRequest(topics=states, timeout_ms=5000)).responses[0].error_code == 0
    again = CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1)
    (made,) = wire(CreateTopicsRequest(topics=[again])).topics
    assert made.topic_id != topic.id
    assert produce(topic._replace(id=made.topic_id), batch(b"c"), by=wire).base_offset == 0
    assert produce(topic, batch(b"d"), by=wire).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.restart()
    wire = connect(broker)
    assert produce(topic._replace(id=made.topic_id), batch(b"e"), by=wire).base_offset == 1
