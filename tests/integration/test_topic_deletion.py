"""Folders agree with the metadata, at whatever moment the broker is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.base.environment.clock import SystemClock
from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import Controller, NewTopic
from barnabas.broker.metadata import MetadataLoader, open_store, znodes
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage
from barnabas.broker.metadata.store import Set
from barnabas.broker.view import MutableView
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.testing import BarnabasBroker


@pytest.fixture
def broker():
    with BarnabasBroker(mode="thread") as broker:
        yield broker


def decide(data: Path, decision: Callable[[Controller, MetadataLoader], Awaitable[object]]) -> None:
    """Make a decision of the controller in the metadata of a stopped broker, without its consequences.

    The result is as if the broker had been killed in between.
    """

    async def run() -> None:
        config = BrokerConfig(log_dirs=(str(data),))
        store = await open_store(config, Environment.of_system())
        loader = MetadataLoader(store)
        await loader.start()
        endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", 1)
        view = MutableView(config, SystemClock())
        view.follow(loader)
        controller = Controller(
            store,
            loader,
            view,
            BrokerImage(1, (endpoint,)),
            Random(1),
            ask_nobody,
        )
        await controller.start()
        await decision(controller, loader)
        await loader.stop()
        await store.close()

    asyncio.run(run())


async def ask_nobody(broker: int, request: object) -> object:
    raise AssertionError("there is nobody to ask")


def folders(data: Path) -> set[str]:
    return {entry.name for entry in data.iterdir() if entry.is_dir()}


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for work that a thread of the broker does after the start. No event announces its end."""
    deadline = time.monotonic() + 60
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


def test_what_is_written_down_of_a_deleted_topic_does_not_hold_for_a_new_one_of_its_name():
    hour = "3600000"
    rarely = {
        "replica.high.watermark.checkpoint.interval.ms": hour,
        "log.flush.offset.checkpoint.interval.ms": hour,
        "log.flush.start.offset.checkpoint.interval.ms": hour,
    }
    with BarnabasBroker(rarely, mode="process") as broker:
        broker.create_topic("t", 1)
        broker.produce("t", "a", "b", "c")
        broker.restart()
        broker.admin().delete_topic("t")
        broker.create_topic("t", 1)
        assert all("t 0 3" in (broker.data / name).read_text() for name in CHECKPOINTS[::2])
        broker.kill()
        broker.start()
        broker.produce("t", "new")
        assert [record.text for record in broker.consume("t", 1)] == ["new"]


def test_folders_of_a_topic_deleted_just_before_a_crash_are_deleted_at_the_restart(
    broker, connect, make_topic, produce, batch
):
    wire = connect(broker)
    gone, kept = make_topic(2, by=wire), make_topic(by=wire)
    produce(gone, batch(b"a"), by=wire)
    produce(kept, batch(b"b"), by=wire)
    broker.stop()

    async def delete(controller, loader):
        # no broker is there that could take its name off the note
        assert await controller.topics.delete([gone.id]) == {}

    decide(broker.data, delete)
    assert f"{gone.name}-0" in folders(broker.data)
    broker.start()
    wait_for(lambda: not any(name.startswith(gone.name) for name in folders(broker.data)))
    assert f"{kept.name}-0" in folders(broker.data)


def test_topic_made_just_before_a_crash_is_there_after_it(broker, connect, produce, batch):
    broker.stop()
    made = []

    async def create(controller, loader):
        made.append((await controller.topics.create([NewTopic("t", 2, 1)]))["t"])

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
    assert wire(DeleteTopicsRequest(topics=states, timeout_ms=60_000)).responses[0].error_code == 0
    again = CreatableTopic(name=topic.name, num_partitions=1, replication_factor=1)
    (made,) = wire(CreateTopicsRequest(topics=[again])).topics
    assert made.topic_id != topic.id
    assert produce(topic._replace(id=made.topic_id), batch(b"c"), by=wire).base_offset == 0
    assert produce(topic, batch(b"d"), by=wire).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.restart()
    wire = connect(broker)
    assert produce(topic._replace(id=made.topic_id), batch(b"e"), by=wire).base_offset == 1


async def _place(controller, loader, name, broker):
    """Move the only replica of partition 0 to another broker, as a complete reassignment does."""
    topic = loader.image.topics[name]
    state = topic.partitions[0]._replace(replicas=(broker,), isr=(broker,), leader=broker)
    assignment = znodes.assignment_of(topic._replace(partitions=(state,)))
    await controller.topics._writes.write(
        [
            Set(znodes.topic(name), znodes.encode_topic(assignment)),
            Set(znodes.partition_state(name, 0), znodes.encode_partition_state(state, 1)),
        ]
    )
    await loader.settled()


def test_a_partition_that_moved_away_while_the_broker_was_down_is_deleted_at_the_restart(
    broker, connect, make_topic, produce, batch
):
    wire = connect(broker)
    moved, kept = make_topic(by=wire), make_topic(by=wire)
    produce(moved, batch(b"a"), by=wire)
    produce(kept, batch(b"b"), by=wire)
    broker.stop()
    decide(broker.data, lambda controller, loader: _place(controller, loader, moved.name, 2))
    assert f"{moved.name}-0" in folders(broker.data)
    broker.start()
    wait_for(lambda: f"{moved.name}-0" not in folders(broker.data))
    assert f"{kept.name}-0" in folders(broker.data)


def test_a_partition_that_moved_away_and_came_back_before_a_crash_is_empty_and_not_damaged():
    hour = "3600000"
    rarely = {
        "replica.high.watermark.checkpoint.interval.ms": hour,
        "log.flush.offset.checkpoint.interval.ms": hour,
    }
    with BarnabasBroker(rarely, mode="process") as broker:
        broker.create_topic("t", 1)
        broker.produce("t", "a", "b", "c")
        broker.stop()
        assert "t 0 3" in (broker.data / CHECKPOINTS[0]).read_text()
        for holder in (2, 1):
            decide(broker.data, lambda controller, loader, b=holder: _place(controller, loader, "t", b))
            broker.start()
            if holder == 1:
                broker.produce("t", "new")
                broker.kill()
                broker.start()
                assert [record.text for record in broker.consume("t", 1)] == ["new"]
            broker.stop()
