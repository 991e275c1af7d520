"""An ephemeral node that a broker needs: the broker creates it, takes it over, waits for it, or fails."""

from __future__ import annotations

import asyncio

import pytest
from simulation.memory_store import MemoryServer, MemoryStore
from simulation.virtual_time import VirtualProcess, run_virtual

from barnabas.broker.metadata.reconnection import claim
from barnabas.broker.metadata.store import (
    NodeExistsError,
    SessionState,
    StoreUnavailableError,
    UnknownOutcomeError,
)

PATIENT = 60.0


def test_claimed_node_is_this_sessions_and_its_creation_number_is_told() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        node = await claim(store, "/a", lambda: b"x", timeout_s=0)
        assert node == await store.get("/a")
        assert (node.owner, node.data) == (store.session_id, b"x")

    asyncio.run(scenario())


def test_node_of_this_session_is_taken_over_and_holds_what_is_claimed() -> None:
    """KAFKA-7165, 14845: the node belongs to this broker's own session."""

    async def scenario() -> None:
        store = MemoryStore()
        await store.create("/a", b"before", ephemeral=True)
        created = (await store.get("/a")).created
        node = await claim(store, "/a", lambda: b"after", timeout_s=0)
        assert (node.created, node.data, node.version) == (created, b"after", 1)
        again = await claim(store, "/a", lambda: b"after", timeout_s=0)
        assert again == node

    asyncio.run(scenario())


def test_node_of_another_session_is_waited_out() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        store, earlier = MemoryStore(server), MemoryStore(server)
        await earlier.create("/a", ephemeral=True)
        claiming = asyncio.create_task(claim(store, "/a", lambda: b"x", timeout_s=PATIENT))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not claiming.done()
        await store.create("/other")
        server.end(earlier.session_id)
        assert (await claiming).owner == store.session_id

    asyncio.run(scenario())


@pytest.mark.parametrize("patience", [0, 0.01])
def test_node_of_a_session_that_lives_is_not_taken(patience: float) -> None:
    async def scenario() -> None:
        server = MemoryServer()
        store, stranger = MemoryStore(server), MemoryStore(server)
        await stranger.create("/a", b"x", ephemeral=True)
        with pytest.raises(NodeExistsError, match="/a belongs to another session"):
            await claim(store, "/a", lambda: b"y", timeout_s=patience)
        assert (await stranger.get("/a")).data == b"x"

    asyncio.run(scenario())


def test_a_claim_that_stands_still_does_not_give_up_before_the_other_session_ends() -> None:
    """A store that stood still too lets the other session live on for as long."""

    async def scenario() -> None:
        server = MemoryServer()
        store, earlier = MemoryStore(server), MemoryStore(server)
        await earlier.create("/a", ephemeral=True)
        owners: list[int] = []

        async def start() -> None:
            owners.append((await claim(store, "/a", lambda: b"x", timeout_s=4.0)).owner)

        process = VirtualProcess("broker")
        process.run(start())
        await asyncio.sleep(1.0)
        process.pause()
        await asyncio.sleep(20.0)
        process.resume()
        await asyncio.sleep(1.0)
        server.end(earlier.session_id)
        await asyncio.sleep(1.0)
        assert owners == [store.session_id]

    run_virtual(scenario())


class LossyStore(MemoryStore):
    """A store that breaks the connection at each of its first creations, before or after the execution."""

    def __init__(self, losses: list[bool]) -> None:
        super().__init__()
        self._losses = losses

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        if self.state is not SessionState.CONNECTED:
            raise StoreUnavailableError("away")
        if not self._losses:
            return await super().create(path, data, ephemeral=ephemeral)
        if self._losses.pop(0):
            await super().create(path, data, ephemeral=ephemeral)
        self.session.enter(SessionState.SUSPENDED)
        asyncio.get_running_loop().call_later(0.001, self.session.enter, SessionState.CONNECTED)
        raise UnknownOutcomeError("on purpose")


@pytest.mark.parametrize("losses", [[True], [False], [False, True], [False, False]], ids=str)
def test_lost_answer_is_followed_by_a_look_once_the_store_is_back(losses: list[bool]) -> None:
    """The node is created once, whether the first creation was executed or not."""

    async def scenario() -> None:
        store = LossyStore(losses)
        node = await claim(store, "/a", lambda: b"x", timeout_s=0)
        assert (node.owner, node.data, node.version) == (store.session_id, b"x", 0)
        assert losses == []

    asyncio.run(scenario())


def test_store_that_ends_meanwhile_ends_the_claim() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        store.session.enter(SessionState.SUSPENDED)
        await store.close()
        with pytest.raises(StoreUnavailableError):
            await claim(store, "/a", lambda: b"x", timeout_s=PATIENT)

    asyncio.run(scenario())
