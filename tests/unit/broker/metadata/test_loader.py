"""The cluster image follows the metadata store."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from simulation.memory_store import MemoryServer, MemoryStore

from barnabas.base.environment.randomness import new_topic_id, system_random
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata import ImageDelta, MetadataLoader, MetadataStore, znodes
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage, PartitionState
from barnabas.broker.metadata.opening import prepare
from barnabas.broker.metadata.session import Watches
from barnabas.broker.metadata.store import (
    Create,
    DamagedNodeError,
    Delete,
    Event,
    Operation,
    SessionState,
    Set,
    StoreNode,
    StoreUnavailableError,
)

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
    """Run a scenario with a loader that has started on a store with the nodes of `before`."""

    async def session() -> None:
        store = MemoryStore()
        await prepare(store, system_random())
        await store.multi(before or [])
        loader = MetadataLoader(store)
        deltas: list[ImageDelta] = []
        loader.subscribe(deltas.append)
        await loader.start()
        await scenario(store, loader, deltas)
        await loader.stop()

    asyncio.run(session())


def test_first_image_holds_what_the_store_holds() -> None:
    topic_id = new_topic_id(system_random())
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
        await store.multi(topic_nodes("t", new_topic_id(system_random()), 3))
        assert len((await loader.settled()).topics["t"].partitions) == 3
        assert (deltas[-1].topics, deltas[-1].partitions) == ({"t"}, {})
        assert "t" not in deltas[-1].before.topics

    play(scenario)


def test_topic_deleted_and_made_again_has_another_id_in_one_delta() -> None:
    first, second = new_topic_id(system_random()), new_topic_id(system_random())

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

    play(
        scenario,
        [
            *topic_nodes("t", new_topic_id(system_random()), 2),
            *topic_nodes("other", new_topic_id(system_random())),
        ],
    )


def test_partitions_that_were_added_are_read() -> None:
    topic_id = new_topic_id(system_random())

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
        await prepare(staying, system_random())
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


def test_listener_that_fails_ends_the_applying_and_the_owner_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, system_random())
        failures: list[Exception] = []
        loader = MetadataLoader(store, failures.append)
        heard: list[ImageDelta] = []
        await loader.start()

        def broken(delta: ImageDelta) -> None:
            raise RuntimeError("on purpose")

        loader.subscribe(broken)
        loader.subscribe(heard.append)
        await store.multi(topic_nodes("t", new_topic_id(system_random())))
        with pytest.raises(StoreUnavailableError, match="could not be applied: on purpose"):
            await loader.settled()
        with pytest.raises(StoreUnavailableError, match="could not be applied: on purpose"):
            await loader.settled()  # when nothing is new, too
        await store.multi(topic_nodes("u", new_topic_id(system_random())))
        with pytest.raises(StoreUnavailableError, match="could not be applied: on purpose"):
            await loader.settled()
        assert "u" not in loader.image.topics
        assert heard == []
        assert [str(failure) for failure in failures] == ["on purpose"]
        await loader.stop()

    asyncio.run(scenario())
    assert "on purpose" in caplog.text


def test_read_that_fails_is_tried_again_without_any_news() -> None:
    async def session() -> None:
        store = AwayStore()
        await prepare(store, system_random())
        loader = MetadataLoader(store)
        applied = asyncio.Event()
        await loader.start()
        loader.subscribe(lambda delta: applied.set() if "t" in delta.topics else None)
        store.failing_reads = 3
        await store.multi(topic_nodes("t", new_topic_id(system_random())))
        await asyncio.wait_for(applied.wait(), 60)
        assert store.failing_reads == 0
        await loader.stop()

    asyncio.run(session())


class AwayStore(MemoryStore):
    """A store that is away for some time: reads fail, and changes are not reported."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        super().__init__(server)
        self.failing_reads = 0
        self.watches = _DeafWatches(self)

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        if self.failing_reads:
            self.failing_reads -= 1
            raise StoreUnavailableError("on purpose")
        await asyncio.sleep(0)
        return await super().read(paths)

    def leave(self) -> None:
        self.session.enter(SessionState.SUSPENDED)

    def come_back(self) -> None:
        self.session.enter(SessionState.CONNECTED)

    def _check_lives(self) -> None:
        if self.state is not SessionState.CONNECTED:
            raise StoreUnavailableError("away")


class _DeafWatches(Watches):
    def __init__(self, store: AwayStore) -> None:
        super().__init__()
        self._store = store

    def report(self, event: Event, changed: str) -> None:
        if self._store.state is SessionState.CONNECTED:
            super().report(event, changed)


def test_everything_is_read_again_after_a_reconnection_and_only_what_changed_is_told() -> None:
    """The loader must also find changes without an event, and a broker that was away for a moment."""

    async def session() -> None:
        server = MemoryServer()
        store, other, bouncing = AwayStore(server), MemoryStore(server), MemoryStore(server)
        await prepare(store, system_random())
        for name in ("kept", "deleted", "changed"):
            await other.multi(topic_nodes(name, new_topic_id(system_random()), 2))
        await other.create(znodes.topic_config("kept"), znodes.encode_config({"a": "1"}))
        await other.create(znodes.group_config("g"), znodes.encode_config({"a": "1"}))
        await bouncing.create(znodes.broker(1), znodes.encode_broker(BROKER, 0), ephemeral=True)
        loader = MetadataLoader(store)
        deltas: list[ImageDelta] = []
        await loader.start()
        loader.subscribe(deltas.append)
        before = loader.image
        store.leave()
        with pytest.raises(StoreUnavailableError):
            await loader.settled()
        await other.multi([*topic_removal("deleted", 2), *topic_nodes("made", new_topic_id(system_random()))])
        state = znodes.encode_partition_state(STATE._replace(leader=2, leader_epoch=1), 1)
        await other.set(znodes.partition_state("changed", 1), state)
        await other.delete(znodes.topic_config("kept"))
        await other.delete(znodes.group_config("g"))
        await bouncing.close()
        await other.create(znodes.broker(1), znodes.encode_broker(BROKER, 0), ephemeral=True)
        assert loader.image is before
        store.come_back()
        image = await loader.settled()
        assert set(image.topics) == {"kept", "changed", "made"}
        assert image.topics["changed"].partitions[1].leader == 2
        assert (image.topic_config("kept"), image.group_config("g")) == ({}, {})
        assert image.brokers[1].epoch > before.brokers[1].epoch
        (delta,) = deltas
        assert delta.topics == {"deleted", "changed", "made"}
        assert (delta.topic_configs, delta.brokers, delta.broker_configs) == ({"kept"}, True, False)
        store.leave()
        store.come_back()
        await loader.settled()
        assert (deltas[-1].topics, deltas[-1].topic_configs, deltas[-1].brokers) == (set(), set(), False)
        await loader.stop()

    asyncio.run(session())


@pytest.mark.parametrize("turns", range(12))
def test_second_break_while_everything_is_read_again_loses_nothing(turns: int) -> None:
    """KAFKA-9307: the loader must not treat the nodes that it read before the second break as all nodes."""

    async def session() -> None:
        server = MemoryServer()
        store, other = AwayStore(server), MemoryStore(server)
        await prepare(store, system_random())
        for number in range(3):
            await other.multi(topic_nodes(f"t{number}", new_topic_id(system_random())))
        loader = MetadataLoader(store)
        await loader.start()
        store.leave()
        await other.multi(topic_nodes("first", new_topic_id(system_random())))
        store.come_back()
        for _ in range(turns):
            await asyncio.sleep(0)
        store.leave()
        await other.multi(topic_nodes("second", new_topic_id(system_random())))
        await other.multi(topic_removal("t1"))
        store.come_back()
        assert set((await loader.settled()).topics) == {"t0", "t2", "first", "second"}
        await loader.stop()

    asyncio.run(session())


def test_store_that_cannot_be_read_leaves_the_image_and_is_read_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        async def unavailable(paths: object) -> Any:
            raise StoreUnavailableError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(store, "read", unavailable)
            await store.multi(topic_nodes("t", new_topic_id(system_random())))
            with pytest.raises(StoreUnavailableError):
                await loader.settled()
            assert "t" not in loader.image.topics
        assert "t" in (await loader.settled()).topics

    play(scenario)
    assert "on purpose" in caplog.text


def test_changes_from_all_sides_at_once_are_none_of_them_lost() -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        async def make(number: int) -> None:
            await store.multi(topic_nodes(f"t{number}", new_topic_id(system_random())))
            assert f"t{number}" in (await loader.settled()).topics

        await asyncio.gather(*(make(number) for number in range(50)))
        assert len(loader.image.topics) == len(loader.image.topic_names) == 50
        for delta, following in itertools.pairwise(deltas):
            assert following.before is delta.after

    play(scenario)


def test_topic_that_lost_states_stays_without_leaders(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is deleted because it is absent."""

    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        await store.delete(znodes.partition_state("t", 1))
        topic = (await loader.settled()).topics["t"]
        assert topic.id == b"t" * 16
        assert [state.leader for state in topic.partitions] == [1, -1, 1]
        assert topic.partitions[1].is_missing
        assert topic.partitions[1].replicas == (1, 2)
        assert "no state of 1 partitions of topic t (1)" in caplog.text
        newcomer = MetadataLoader(store)
        await newcomer.start()
        assert newcomer.image.topics == loader.image.topics
        await newcomer.stop()
        await store.create(znodes.partition_state("t", 1), znodes.encode_partition_state(STATE, 1))
        assert (await loader.settled()).topics["t"].partitions == (STATE,) * 3

    play(scenario, topic_nodes("t", b"t" * 16, 3))


def test_topic_that_is_deleted_while_it_is_read_is_gone_without_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: MemoryStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        read = store.read
        paths_of_topic = [znodes.topic("t")]

        async def read_slowly(paths: Sequence[str]) -> list[StoreNode | None]:
            nodes = await read(paths)
            if list(paths) == paths_of_topic and nodes[0] is not None:
                await store.multi(topic_removal("t", 2))
            return nodes

        monkeypatch.setattr(store, "read", read_slowly)
        await store.multi(topic_nodes("t", b"t" * 16, 2))
        assert "t" not in (await loader.settled()).topics
        assert not caplog.records

    play(scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize("at_once", [1, 2, 200])
def test_topic_whose_note_has_come_and_gone_was_deleted(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is true however the changes are divided over images. The next image has
    nothing left of the topic.
    """
    monkeypatch.setattr("barnabas.broker.metadata.loader._AT_ONCE", at_once)
    topic_id, other = new_topic_id(system_random()), new_topic_id(system_random())

    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        note = znodes.deleted_topic(topic_id)
        await store.multi([Create(note, znodes.encode_deleted_topic([2])), *topic_removal("t")])
        await store.delete(note)
        await store.multi(topic_removal("absent"))
        deltas.clear()
        await loader.settled()
        went = {
            topic.id: delta.is_deleted(topic.id)
            for delta in deltas
            for topic in delta.before.topics.values()
            if delta.after.topics.get(topic.name) is None
        }
        assert went == {topic_id: True, other: False}
        await store.create(znodes.topic_config("u"), znodes.encode_config({}))
        assert not (await loader.settled()).deleted_topics

    play(scenario, [*topic_nodes("t", topic_id), *topic_nodes("absent", other)])


def test_others_go_on_while_a_topic_of_many_partitions_becomes_an_image() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryServer())
        await prepare(store, system_random())
        loader = MetadataLoader(store)
        await loader.start()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        await store.multi(topic_nodes("large", new_topic_id(system_random()), 3000))
        counting = asyncio.create_task(count())
        image = await loader.settled()
        counting.cancel()
        assert len(image.topics["large"].partitions) == 3000
        assert turns > 30
        await loader.stop()

    asyncio.run(scenario())


DAMAGED_DATA = [b"{", b"\xff", b"[]", b"{}", b"null", b"7"]
NODES = [
    *topic_nodes("t", b"t" * 16, 2),
    Create(znodes.topic_config("t"), znodes.encode_config({})),
    Create(znodes.broker(1), znodes.encode_broker(BROKER, 0), ephemeral=True),
    Create(znodes.deleted_topic(b"d" * 16), znodes.encode_deleted_topic([1])),
    Create(znodes.user_config("u"), znodes.encode_config({"SCRAM-SHA-256": "x", "producer_byte_rate": "1"})),
]


@pytest.mark.parametrize("data", DAMAGED_DATA, ids=repr)
@pytest.mark.parametrize(
    "path",
    [
        znodes.CLUSTER_ID,
        znodes.FEATURES,
        znodes.BROKER_EPOCHS,
        znodes.broker(1),
        znodes.topic("t"),
        znodes.partition_state("t", 1),
        znodes.topic_config("t"),
        znodes.user_config("u"),
        znodes.deleted_topic(b"d" * 16),
    ],
)
def test_damaged_node_keeps_its_last_known_value_and_does_not_delay_other_changes(
    caplog: pytest.LogCaptureFixture, path: str, data: bytes
) -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        before = loader.image
        good = (await store.get(path)).data
        await store.set(path, data)
        await store.create(znodes.topic_config("other"), znodes.encode_config({"retention.ms": "5"}))
        during = await loader.settled()
        assert during.topic_config("other") == {"retention.ms": "5"}
        changed = {"topics", "topic_configs"}
        for name in set(before._fields) - changed:
            assert getattr(during, name) == getattr(before, name), name
        assert during.topic_config("t") == before.topic_config("t")
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        damaged = {znodes.topic("t"): partitions, znodes.partition_state("t", 1): partitions[1:]}.get(
            path, []
        )
        states = zip(partitions, during.topics["t"].partitions, strict=True)
        assert [partition for partition, state in states if state.is_damaged] == damaged
        assert [s._replace(is_damaged=False) for s in during.topics["t"].partitions] == [STATE, STATE]
        assert caplog.text.count(f"the data of {path} is damaged") == 1
        assert loader.is_certain, "the damage says nothing about the session"
        assert loader.has_damage
        assert loader.in_doubt(partitions) == damaged, "another broker may have seen a later leader"
        await store.set(path, good)
        after = await loader.settled()
        assert not loader.has_damage
        assert not any(state.is_damaged for state in after.topics["t"].partitions)

    play(scenario, NODES)
    assert "cannot read the metadata" not in caplog.text


@pytest.mark.parametrize("path", [znodes.topic("t"), znodes.partition_state("t", 1), znodes.broker(1)])
def test_broker_does_not_start_with_a_damaged_node_and_names_it(path: str) -> None:
    with pytest.raises(DamagedNodeError, match=f"the data of {path} is damaged"):
        play(lambda *_: pytest.fail("it started"), [*NODES, Set(path, b"{")])


@pytest.mark.parametrize("path", [znodes.broker(1)[:-1] + "x", f"{znodes.DELETED_TOPICS}/x"])
def test_node_with_a_name_that_cannot_be_is_ignored_and_logged(
    caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        before = loader.image
        await store.create(path, znodes.encode_broker(BROKER, 0) if "ids" in path else b"{}")
        await store.set(znodes.topic_config("t"), znodes.encode_config({"retention.ms": "5"}))
        image = await loader.settled()
        assert image.topic_config("t") == {"retention.ms": "5"}
        assert (image.brokers, image.deleted_topics) == (before.brokers, before.deleted_topics)
        assert loader.has_damage
        await store.delete(path)
        await loader.settled()
        assert not loader.has_damage

    play(scenario, NODES)
    assert path in caplog.text


@pytest.mark.parametrize("is_away", [False, True])
def test_damage_of_a_deleted_topic_is_forgotten(is_away: bool) -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        assert isinstance(store, MemoryStore)
        other = MemoryStore(store._server)
        await store.set(znodes.partition_state("t", 1), b"{")
        await loader.settled()
        assert loader.has_damage
        if is_away:
            store.expire()
        await other.multi(topic_removal("t", 2))
        if is_away:
            store.begin_again()
        assert "t" not in (await loader.settled()).topics
        assert not loader.has_damage

    play(scenario, NODES)


def test_topic_that_is_created_with_a_damaged_node_appears_when_it_is_mended() -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        node, *others = topic_nodes("new", b"n" * 16)
        assert isinstance(node, Create)
        await store.multi([Create(node.path, b"{"), *others])
        assert "new" not in (await loader.settled()).topics
        await store.set(node.path, node.data)
        assert (await loader.settled()).topics["new"].partitions == (STATE,)

    play(scenario, NODES)


@pytest.mark.parametrize("is_read_between", [False, True])
def test_topic_that_is_created_again_with_a_damaged_node_lends_no_states_to_the_old_topic(
    is_read_between: bool,
) -> None:
    old, new = b"t" * 16, b"n" * 16
    other = STATE._replace(leader=2, leader_epoch=9)

    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        async def has_the_old_topic() -> None:
            topic = (await loader.settled()).topics["t"]
            assert (topic.id, topic.partitions) == (old, (STATE._replace(is_damaged=True),) * 2)

        node, *others = topic_nodes("t", new, 2)
        assert isinstance(node, Create)
        if is_read_between:  # the damage of the old topic's node is known first
            await store.set(node.path, b"{")
            await has_the_old_topic()
        await store.multi([*topic_removal("t", 2), Create(node.path, b"{"), *others])
        await has_the_old_topic()
        await store.set(znodes.partition_state("t", 1), znodes.encode_partition_state(other, 1))
        await has_the_old_topic()
        await store.delete(znodes.partition_state("t", 0))
        await has_the_old_topic()
        await store.create(znodes.partition_state("t", 0), znodes.encode_partition_state(STATE, 1))
        deltas.clear()
        await store.set(node.path, node.data)
        topic = (await loader.settled()).topics["t"]
        assert topic.id == new
        assert topic.partitions == (STATE, other._replace(partition_epoch=1))
        changed = {partition for delta in deltas for partition in delta.changed_partitions()}
        assert changed == {TopicPartition("t", 0), TopicPartition("t", 1)}

    play(scenario, NODES)


def test_topic_that_is_mended_before_its_states_are_read_changes_as_a_whole() -> None:
    async def scenario(store: MetadataStore, loader: MetadataLoader, deltas: list[ImageDelta]) -> None:
        node = topic_nodes("t", b"t" * 16, 2)[0]
        assert isinstance(node, Create)
        await store.set(node.path, b"{")
        await loader.settled()
        await store.set(node.path, node.data)
        loader._changed = {znodes.partition_state("t", 0): None}  # the event of the topic is still to come
        deltas.clear()
        image = await loader.settled()
        assert image.topics["t"].partitions == (STATE, STATE)
        assert {TopicPartition("t", 0), TopicPartition("t", 1)} == set(deltas[0].changed_partitions())

    play(scenario, NODES)
