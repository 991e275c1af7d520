"""The cluster image follows the metadata store."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.metadata import ImageDelta, MetadataLoader, MetadataStore, znodes
from barnabas.metadata.image import BrokerEndpoint, BrokerImage, PartitionState
from barnabas.metadata.memory import MemoryServer, MemoryStore
from barnabas.metadata.opening import prepare
from barnabas.metadata.store import Create, Delete, Operation, Set, StoreUnavailableError
from barnabas.types import TopicPartition, new_topic_id

STATE = PartitionState((1, 2), isr=(1, 2), leader=1)
BROKER = BrokerImage(
    1, (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092), BrokerEndpoint("V6", "::1", 9093)), "r1"
)


def topic_nodes(name: str, topic_id: bytes, partitions: int = 1) -> list[Operation]:
    assignment = znodes.Assignment(topic_id, [STATE.replicas] * partitions)
    nodes: list[Operation] = [
        Create(znodes.topic(name), znodes.encode_topic(assignment)),
        Create(znodes.partitions(name)),
    ]
    for number in range(partitions):
        nodes.append(Create(znodes.partition(name, number)))
        nodes.append(Create(znodes.partition_state(name, number), znodes.encode_partition_state(STATE, 1)))
    return nodes


def topic_removal(name: str, partitions: int = 1) -> list[Operation]:
    return [Delete(node.path) for node in reversed(topic_nodes(name, bytes(16), partitions))]


Scenario = Callable[[MetadataStore, MetadataLoader, list[ImageDelta]], Awaitable[Any]]


def play(scenario: Scenario, before: list[Operation] | None = None) -> None:
    """Runs a scenario with a loader that has started on a store which holds `before`."""

    async def session() -> None:
        store = MemoryStore()
        await prepare(store)
        await store.multi(before or [])
        loader = MetadataLoader(store)
        deltas: list[ImageDelta] = []
        loader.subscribe(deltas.append)
        await loader.start()
        await scenario(store, loader, deltas)
        await loader.stop()

    asyncio.run(session())


def test_first_image_holds_what_the_store_holds() -> None:
    topic_id = new_topic_id()
    before = [
        *topic_nodes("t", topic_id, 2),
        Create(znodes.topic_config("t"), znodes.encode_config({"retention.ms": "5"})),
        Create(znodes.broker_config("<default>"), znodes.encode_config({"log.retention.ms": "6"})),
        Create(znodes.broker(1), znodes.encode_broker(BROKER, 0), ephemeral=True),
        Create(znodes.CONTROLLER, znodes.encode_controller(1, 0), ephemeral=True),
    ]

    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        image = loader.image
        assert image.cluster_id == znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID)).data)
        assert image.controller_id == 1
        assert image.brokers[1].endpoints == BROKER.endpoints
        assert image.brokers[1].rack == "r1"
        assert image.brokers[1].epoch == (await store.get(znodes.broker(1))).created
        assert image.topic_by_id(topic_id) is image.topics["t"]
        assert image.partition(TopicPartition("t", 1)) == STATE
        assert image.partition(TopicPartition("t", 2)) is None
        assert image.partition(TopicPartition("u", 0)) is None
        assert image.topic_config("t") == {"retention.ms": "5"}
        assert image.broker_config("<default>") == {"log.retention.ms": "6"}
        (delta,) = deltas
        assert (delta.topics, delta.topic_configs, delta.brokers) == ({"t"}, {"t"}, True)

    play(scenario, before)


def test_topic_is_in_the_image_when_its_creation_has_returned_and_settled() -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        await store.multi(topic_nodes("t", new_topic_id(), 3))
        assert len((await loader.settled()).topics["t"].partitions) == 3
        assert (deltas[-1].topics, deltas[-1].partitions) == ({"t"}, {})
        assert "t" not in deltas[-1].before.topics

    play(scenario)


def test_topic_deleted_and_made_again_has_another_id_in_one_delta() -> None:
    first, second = new_topic_id(), new_topic_id()

    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        await store.multi([*topic_removal("t"), *topic_nodes("t", second)])
        await loader.settled()
        delta = deltas[-1]
        assert delta.before.topics["t"].id == first
        assert delta.after.topics["t"].id == second
        assert loader.image.topic_by_id(first) is None

    play(scenario, topic_nodes("t", first))


def test_change_of_one_partition_leaves_the_images_of_other_topics_as_they_are() -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        before = loader.image
        moved = PartitionState((1, 2), isr=(2,), leader=2, leader_epoch=1)
        await store.set(znodes.partition_state("t", 1), znodes.encode_partition_state(moved, 1))
        image = await loader.settled()
        changed = image.topics["t"].partitions[1]
        assert (changed.leader, changed.isr, changed.leader_epoch, changed.partition_epoch) == (2, (2,), 1, 1)
        assert image.topics["t"].partitions[0] is before.topics["t"].partitions[0]
        assert image.topics["other"] is before.topics["other"]
        assert image.broker_configs is before.broker_configs
        assert before.topics["t"].partitions[1].leader == 1
        assert (deltas[-1].topics, deltas[-1].partitions) == ({"t"}, {"t": [1]})

    play(scenario, [*topic_nodes("t", new_topic_id(), 2), *topic_nodes("other", new_topic_id())])


def test_partitions_that_were_added_are_read() -> None:
    topic_id = new_topic_id()

    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        grown = znodes.encode_topic(znodes.Assignment(topic_id, [STATE.replicas] * 2))
        state = znodes.encode_partition_state(STATE, 1)
        await store.multi(
            [
                Set(znodes.topic("t"), grown),
                Create(znodes.partition("t", 1)),
                Create(znodes.partition_state("t", 1), state),
            ]
        )
        assert len((await loader.settled()).topics["t"].partitions) == 2

    play(scenario, topic_nodes("t", topic_id))


def test_broker_that_goes_is_gone_and_the_seat_is_empty() -> None:
    async def session() -> None:
        server = MemoryServer()
        staying, leaving = MemoryStore(server), MemoryStore(server)
        await prepare(staying)
        await leaving.create(znodes.broker(1), znodes.encode_broker(BROKER, 0), ephemeral=True)
        await leaving.create(znodes.CONTROLLER, znodes.encode_controller(1, 0), ephemeral=True)
        loader = MetadataLoader(staying)
        deltas: list[ImageDelta] = []
        await loader.start()
        loader.subscribe(deltas.append)
        await leaving.close()
        image = await loader.settled()
        assert (image.brokers, image.controller_id) == ({}, -1)
        assert any(delta.brokers for delta in deltas)

    asyncio.run(session())


def test_settings_that_are_set_changed_and_unset() -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        path = znodes.topic_config("t")
        await store.create(path, znodes.encode_config({"a": "1"}))
        assert (await loader.settled()).topic_config("t") == {"a": "1"}
        await store.set(path, znodes.encode_config({"a": "2"}))
        assert (await loader.settled()).topic_config("t") == {"a": "2"}
        await store.delete(path)
        assert (await loader.settled()).topic_config("t") == {}
        assert [delta.topic_configs for delta in deltas[1:]] == [{"t"}] * 3

    play(scenario)


def test_listener_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def session() -> None:
        store = MemoryStore()
        await prepare(store)
        loader = MetadataLoader(store)
        heard: list[ImageDelta] = []

        def broken(delta: ImageDelta) -> None:
            raise RuntimeError("on purpose")

        loader.subscribe(broken)
        loader.subscribe(heard.append)
        await loader.start()
        assert len(heard) == 1

    asyncio.run(session())
    assert "on purpose" in caplog.text


def test_store_that_cannot_be_read_leaves_the_image_and_is_read_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        async def unavailable(paths: object) -> Any:
            raise StoreUnavailableError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(store, "read", unavailable)
            await store.multi(topic_nodes("t", new_topic_id()))
            with pytest.raises(StoreUnavailableError):
                await loader.settled()
            assert "t" not in loader.image.topics
        assert "t" in (await loader.settled()).topics

    play(scenario)
    assert "on purpose" in caplog.text


def test_changes_from_all_sides_at_once_are_none_of_them_lost() -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        async def make(number: int) -> None:
            await store.multi(topic_nodes(f"t{number}", new_topic_id()))
            assert f"t{number}" in (await loader.settled()).topics

        await asyncio.gather(*(make(number) for number in range(50)))
        assert len(loader.image.topics) == len(loader.image.topic_names) == 50
        for delta, following in itertools.pairwise(deltas):
            assert following.before is delta.after

    play(scenario)
