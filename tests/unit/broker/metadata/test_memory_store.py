"""Several sessions on one tree, as several brokers have with one ensemble."""

from __future__ import annotations

import asyncio

from simulation.memory_store import MemoryServer, MemoryStore

from barnabas.broker.metadata.store import Event, SessionState


def test_ephemeral_nodes_go_with_their_session_and_others_hear_of_it() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        leaving, staying = MemoryStore(server), MemoryStore(server)
        heard: list[tuple[Event, str]] = []
        await staying.watch("/", lambda event, path: heard.append((event, path)))
        await leaving.create("/leaving", ephemeral=True)
        await staying.create("/staying", ephemeral=True)
        await leaving.create("/kept")
        await leaving.close()
        assert await staying.children("/") == ["kept", "staying"]
        assert heard[-1] == (Event.DELETED, "/leaving")

    asyncio.run(scenario())


def test_session_the_server_ended_hears_nothing_more() -> None:
    async def scenario() -> None:
        server = MemoryServer()
        expired, other = MemoryStore(server), MemoryStore(server)
        heard: list[str] = []
        await expired.watch("/", lambda event, path: heard.append(path))
        states: list[SessionState] = []
        expired.on_state(states.append)
        server.end(expired.session_id)
        await other.create("/a")
        assert heard == []
        assert states == [SessionState.LOST]

    asyncio.run(scenario())
