"""Nodes that an operator has deleted, or another client of an open ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from simulation.clocks import ManualClock
from simulation.memory_store import MemoryServer, MemoryStore
from simulation.virtual_time import run_virtual
from tests.unit.broker.controller.conftest import Member, join, until

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import NewTopic
from barnabas.broker.controller.controller_election import ControllerElection
from barnabas.broker.controller.features import FeatureUpdate, UpgradeType
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import ClusterImage, znodes
from barnabas.broker.metadata.features import SUPPORTED, TRANSACTION_VERSION
from barnabas.broker.metadata.image import BrokerState
from barnabas.broker.metadata.lost_nodes import ClusterGoneError, put_back
from barnabas.broker.metadata.store import Create, MetadataStore, Set


async def brokers(server: MemoryServer, *ids: int) -> list[Member]:
    features = {name: (each.lowest, each.highest) for name, each in SUPPORTED.items()}
    members = [await join(server, BrokerConfig(node_id=each), features=features) for each in ids]
    for member in members:
        await member.controller.registration.update(state=BrokerState.RUNNING)
    await until(lambda: all(member.image.admitted.keys() == {*ids} for member in members))
    return members


async def epoch_of(store: MetadataStore) -> int:
    return znodes.decode_controller_epoch((await store.get(znodes.CONTROLLER_EPOCH)).data)


async def wait_for_one_controller(members: Sequence[Member]) -> Member:
    def is_settled() -> bool:
        active = [member for member in members if member.controller.active]
        seen = {member.image.controller_id for member in members}
        return len(active) == 1 and seen == {_id(active[0])}

    async with asyncio.timeout(60):
        while not is_settled():
            await asyncio.sleep(0.01)
    return next(member for member in members if member.controller.active)


def _id(member: Member) -> int:
    return member.controller._broker.id  # type: ignore[no-any-return]


async def make_topic(members: Sequence[Member], name: str) -> None:
    """Create a topic through the present controller, as a client does that retries."""
    async with asyncio.timeout(60):
        while True:
            member = await wait_for_one_controller(members)
            made = (await member.controller.topics.create([NewTopic(name, 1, len(members))]))[name]
            if not isinstance(made, KafkaError):
                return
            assert made.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR), made
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("count", [1, 3])
def test_there_is_a_controller_again_each_time_its_node_is_deleted(count: int) -> None:
    """Earlier, a former controller continued to act as the controller, and a cluster
    of one broker had none.
    """

    async def scenario() -> None:
        server = MemoryServer()
        members = await brokers(server, *range(1, count + 1))
        operator = MemoryStore(server)
        for round_ in range(5):
            before = await epoch_of(operator)
            await operator.delete(znodes.CONTROLLER)
            async with asyncio.timeout(60):
                while await epoch_of(operator) == before:
                    await asyncio.sleep(0.01)
            await wait_for_one_controller(members)
            assert await epoch_of(operator) > before
            await make_topic(members, f"t{round_}")

    run_virtual(scenario())


def test_registration_that_is_deleted_is_made_again_and_the_broker_admitted() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        members = await brokers(server, 1, 2, 3)
        await make_topic(members, "t")
        operator = MemoryStore(server)
        for victim in (1, 2):  # the controller, and another
            before = members[0].image.brokers[victim].epoch
            await operator.delete(znodes.broker(victim))
            async with asyncio.timeout(60):
                while (image := members[2].image).admitted[victim].epoch <= before:
                    await asyncio.sleep(0.01)
            assert image.brokers[victim].state is BrokerState.RUNNING
            assert image.topics["t"].partitions[0].leader != -1

    run_virtual(scenario())


def test_broker_sees_its_admission_even_if_its_registration_is_gone_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its next registration names the last admission that it saw. An older one means that it has crashed."""

    async def scenario() -> None:
        server = MemoryServer()
        members = await brokers(server, 1, 2, 3)
        registration = members[2].controller.registration
        epoch, seen = registration.epoch, []
        monkeypatch.setattr(registration, "admitted", seen.append)
        await MemoryStore(server).delete(znodes.broker(3))
        await until(lambda: registration.epoch != epoch)
        assert epoch in seen

    run_virtual(scenario())


@pytest.mark.parametrize("path", [znodes.CONTROLLER_EPOCH, znodes.BROKER_EPOCHS, znodes.CLUSTER_ID])
@pytest.mark.parametrize("count", [1, 3])
def test_node_that_brokers_know_is_put_back(path: str, count: int) -> None:
    async def scenario() -> None:
        server = MemoryServer()
        members = await brokers(server, *range(1, count + 1))
        await make_topic(members, "before")
        operator = MemoryStore(server)
        epoch, known = await epoch_of(operator), await operator.get(path)
        await operator.delete(path)
        await make_topic(members, "meanwhile")
        async with asyncio.timeout(60):
            while await operator.exists(path) is None:
                await asyncio.sleep(0.01)
        await make_topic(members, "after")
        assert await epoch_of(operator) >= epoch
        if path != znodes.CONTROLLER_EPOCH:
            assert (await operator.get(path)).data == known.data
        # nobody is taken for restarted
        assert all(
            (state.leader_epoch, len(state.isr)) == (0, count)
            for topic in members[0].image.topics.values()
            for state in topic.partitions
        )

    run_virtual(scenario())


@pytest.mark.parametrize(
    "path", ["/admin/delete_topics", "/config/ips", "/kafka-acl-extended/prefixed/Topic"]
)
def test_folder_that_is_deleted_is_made_again(path: str) -> None:
    async def scenario() -> None:
        server = MemoryServer()
        await brokers(server, 1, 2)
        operator = MemoryStore(server)
        await operator.delete(path)
        async with asyncio.timeout(60):
            while await operator.exists(path) is None:
                await asyncio.sleep(0.01)

    run_virtual(scenario())


def test_feature_levels_are_put_back_in_a_later_epoch() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        (member,) = await brokers(server, 1)
        for level, way in ((2, UpgradeType.UPGRADE), (1, UpgradeType.SAFE_DOWNGRADE)):
            await member.controller.features.update([FeatureUpdate(TRANSACTION_VERSION, level, way)])
        before = member.image.features
        operator = MemoryStore(server)
        await operator.delete(znodes.FEATURES)
        await asyncio.sleep(5)
        late = await join(server, BrokerConfig(node_id=2))
        for image in (member.image, late.image):
            assert image.features.levels == before.levels
            assert image.features.epoch >= before.epoch

    run_virtual(scenario())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_producer_ids_are_never_handed_out_twice(is_restarted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two producers had the same id, the broker would drop one's records as duplicates."""
    monkeypatch.setattr(MemoryStore, "session_timeout", 6.0)

    async def scenario() -> None:
        server = MemoryServer()
        (member,) = await brokers(server, 1)
        blocks = [await member.controller.producer_ids.allocate(1) for _ in range(3)]
        operator = MemoryStore(server)
        await operator.delete(znodes.PRODUCER_ID_BLOCK)
        if is_restarted:
            await member.controller.stop()
            await member.store.close()
            (member,) = await brokers(server, 1)
        else:
            await asyncio.sleep(5)
        blocks += [await member.controller.producer_ids.allocate(1) for _ in range(3)]
        ids = [each for block in blocks for each in block]
        assert len(set(ids)) == len(ids)

    run_virtual(scenario())


def test_epoch_does_not_fall_when_its_node_is_gone_at_a_start() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        for _ in range(3):
            (member,) = await brokers(server, 1)
            await make_topic([member], f"t{member.controller._writes.epoch}")
            await member.controller.stop()
            await member.store.close()
        operator = MemoryStore(server)
        assert await epoch_of(operator) == 3
        await operator.delete(znodes.CONTROLLER_EPOCH)
        (member,) = await brokers(server, 1)
        assert member.controller.active
        assert await epoch_of(operator) == 4

    run_virtual(scenario())


def test_brokers_that_know_nothing_of_a_node_wait_for_those_that_may_and_not_for_ever() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        (member,) = await brokers(server, 1)
        await make_topic([member], "t")
        await member.controller.stop()
        await member.store.close()
        operator = MemoryStore(server)
        await operator.delete(znodes.CONTROLLER_EPOCH)
        stale = znodes.encode_broker(member.image.brokers[1]._replace(id=9), 0)
        await operator.create(znodes.broker(9), stale, ephemeral=True)
        again = await join(server, BrokerConfig(node_id=1))
        assert not again.controller.active
        async with asyncio.timeout(60):
            while not again.controller.active:
                await asyncio.sleep(0.1)
        assert await epoch_of(operator) == 2

    run_virtual(scenario())


def test_controller_that_has_not_heard_of_the_deletion_changes_nothing() -> None:
    """The node that was created again has another version than the one of that broker's election."""

    async def scenario() -> None:
        server = MemoryServer()
        (member,) = await brokers(server, 1)
        old = ControllerWrites(member.store)
        for _ in range(7):
            old.resign()
            assert await ControllerElection(member.store, 1, ManualClock(), old).run()
        await until(lambda: member.image.controller_epoch == old.epoch)
        image = member.image
        operator = MemoryStore(server)
        await operator.delete(znodes.CONTROLLER)
        await operator.delete(znodes.CONTROLLER_EPOCH)
        assert await put_back(operator, image, is_final=False) == []
        new = ControllerWrites(operator)
        assert await ControllerElection(operator, 2, ManualClock(), new).run()
        assert new.epoch > old.epoch
        for operation in (Create("/x"), Set(znodes.BROKER_EPOCHS, b"{}")):
            with pytest.raises(KafkaError) as refused:
                await old.write([operation])
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            assert not old.is_controller

    run_virtual(scenario())


def test_nothing_is_put_back_where_the_whole_cluster_was_removed() -> None:
    async def scenario() -> None:
        store = MemoryStore(MemoryServer())
        image = ClusterImage(cluster_id="c", controller_epoch=3)
        with pytest.raises(ClusterGoneError, match="barnabas cluster restore"):
            await put_back(store, image, is_final=True)
        assert await store.exists(znodes.CLUSTER_ID) is None
        assert await store.exists("/brokers") is None

    run_virtual(scenario())
