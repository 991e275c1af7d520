"""The fields of a broker's registration, and the time of the registration."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest
from simulation.memory_store import MemoryServer, MemoryStore
from tests.unit.broker.controller.conftest import broker_image
from tests.views import view_of

from barnabas.broker.controller.registration import Registration
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import BrokerImage, BrokerState
from barnabas.broker.metadata.opening import prepare
from barnabas.broker.metadata.store import NodeExistsError, SessionState, StoreNode, StoreUnavailableError

STARTING = broker_image(1)._replace(state=BrokerState.STARTING, features={"f": (0, 2)}, previous_epoch=7)


async def shown(store: MemoryStore) -> BrokerImage:
    return znodes.decode_broker(1, await store.get(znodes.broker(1)))


def test_registration_shows_all_of_the_broker_and_its_epoch_is_the_nodes() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        registration = Registration(store, STARTING, view_of())
        assert await registration.register()
        assert not await registration.register()
        assert await shown(store) == STARTING._replace(epoch=registration.epoch)
        await registration.update(state=BrokerState.RUNNING)
        registration.announce(failed_log_dirs=("d1",))
        await asyncio.sleep(0)
        await registration.stop()
        seen = await shown(store)
        assert (seen.state, seen.failed_log_dirs) == (BrokerState.RUNNING, ("d1",))
        assert seen.epoch == registration.epoch

    asyncio.run(scenario())


def test_change_while_the_store_is_away_is_shown_by_the_next_registration() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        registration = Registration(store, STARTING, view_of())
        await registration.update(failed_log_dirs=("d0",))
        await registration.register()
        epoch = registration.epoch
        store.expire()
        with pytest.raises(StoreUnavailableError):
            await store.get("/")
        await registration.update(state=BrokerState.RUNNING)
        store.begin_again()
        await registration.update(failed_log_dirs=("d0", "d1"))
        assert await registration.register()
        assert registration.epoch > epoch
        seen = await shown(store)
        assert (seen.state, seen.failed_log_dirs) == (BrokerState.RUNNING, ("d0", "d1"))
        assert store.state is SessionState.CONNECTED

    asyncio.run(scenario())


class PausingStore(MemoryStore):
    """Waits once before it answers a call of the method `pauses_in`; raises in `exists` while `is_away`."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_in = ""
        self.is_away = False
        self.paused, self.goes_on = asyncio.Event(), asyncio.Event()

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await super().create(path, data, ephemeral=ephemeral)
        await self._pause("create")

    async def exists(self, path: str) -> StoreNode | None:
        if self.is_away:
            raise StoreUnavailableError("the connection broke")
        node = await super().exists(path)
        await self._pause("exists")
        return node

    async def _pause(self, method: str) -> None:
        if method == self.pauses_in:
            self.pauses_in = ""
            self.paused.set()
            await self.goes_on.wait()


def test_change_while_the_node_is_being_created_is_not_lost() -> None:
    async def scenario() -> None:
        store = PausingStore()
        await prepare(store, Random(1))
        registration = Registration(store, STARTING, view_of())
        store.pauses_in = "create"
        registering = asyncio.create_task(registration.register())
        await store.paused.wait()  # the node is there, its epoch is not known yet
        await registration.update(state=BrokerState.RUNNING)
        store.goes_on.set()
        assert await registering
        seen = await shown(store)
        assert (seen.state, seen.epoch) == (BrokerState.RUNNING, registration.epoch)

    asyncio.run(scenario())


def test_two_changes_of_the_node_at_once_do_not_end_the_registration() -> None:
    async def scenario() -> None:
        store = PausingStore()
        await prepare(store, Random(1))
        registration = Registration(store, STARTING, view_of())
        await registration.register()
        store.is_away = True
        await registration.update(state=BrokerState.RUNNING)
        store.is_away = False
        store.pauses_in = "exists"
        registering = asyncio.create_task(registration.register())
        await store.paused.wait()  # it is about to write what `update` could not
        await registration.update(failed_log_dirs=("d1",))
        store.goes_on.set()
        assert not await registering
        seen = await shown(store)
        assert (seen.state, seen.failed_log_dirs) == (BrokerState.RUNNING, ("d1",))

    asyncio.run(scenario())


def test_registration_that_has_passed_to_another_broker_is_not_touched() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        store, stranger = MemoryStore(server), MemoryStore(server)
        await prepare(store, Random(1))
        registration = Registration(store, STARTING, view_of())
        await registration.register()
        store.expire()
        await Registration(stranger, broker_image(1), view_of()).register()
        store.begin_again()
        await registration.update(state=BrokerState.SHUTTING_DOWN)
        assert (await shown(stranger)).state is BrokerState.RUNNING
        with pytest.raises(NodeExistsError):
            await registration.register()

    asyncio.run(scenario())


def test_registration_of_apache_kafka_is_read() -> None:
    node = {
        "version": 5,
        "endpoints": ["PLAINTEXT://h:1"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "rack": None,
        "features": {"x": {"min_version": 1, "max_version": 3}},
    }

    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        await store.create(znodes.broker(1), json.dumps(node).encode())
        seen = await shown(store)
        assert (seen.state, seen.features, seen.previous_epoch) == (BrokerState.RUNNING, {"x": (1, 3)}, -1)

    asyncio.run(scenario())


def test_registration_that_is_given_up_is_followed_by_another_that_has_lost_nothing() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        registration = Registration(store, STARTING, view_of())
        await registration.register()
        first = registration.epoch
        registration.admitted(first)
        registration.request_new_epoch()
        assert registration.needs_new_epoch
        assert await registration.register()
        seen = await shown(store)
        assert seen.epoch == registration.epoch > first
        assert seen.previous_epoch == first
        assert not registration.needs_new_epoch
        assert not await registration.register()

    asyncio.run(scenario())


def test_registration_of_a_lost_session_that_was_given_up_is_left_to_the_store() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        registration = Registration(store, STARTING, view_of())
        await registration.register()
        first = registration.epoch
        registration.request_new_epoch()
        store.expire()
        store.begin_again()
        assert await registration.register()
        assert registration.epoch > first

    asyncio.run(scenario())


def test_incomplete_replicas_are_told_and_an_earlier_versions_node_has_none() -> None:
    lacking = frozenset({(b"t" * 16, 3), (b"t" * 16, 0), (b"u" * 16, 1)})
    broker = STARTING._replace(incomplete_replicas=lacking)
    node = StoreNode(znodes.encode_broker(broker, 0), 0, 1)
    assert znodes.decode_broker(broker.id, node).incomplete_replicas == lacking
    value = json.loads(node.data)
    del value["incomplete_replicas"]
    earlier = StoreNode(json.dumps(value).encode(), 0, 1)
    assert znodes.decode_broker(broker.id, earlier).incomplete_replicas == frozenset()
