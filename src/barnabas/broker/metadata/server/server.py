"""Serves the embedded store to the brokers of one machine, over a Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeAlias

from barnabas.base.environment.environment import Environment
from barnabas.base.text import logger_of
from barnabas.broker.metadata.durable_tree import DurableTree
from barnabas.broker.metadata.server.connection import ServerConnection
from barnabas.broker.metadata.server.sessions import SessionTracker
from barnabas.broker.metadata.session import Watches
from barnabas.broker.metadata.tree import Change

log = logger_of(__name__)

#: seconds between two looks at the sessions
TICK = 0.5
#: a broker has one; tools come on top
MAX_CONNECTIONS = 1000


class Listener(Protocol):
    """An address that accepts connections until `close`. After that, open connections stay open."""

    def close(self) -> None: ...


#: Function that listens at an address, and makes a protocol for each connection with the function it gets.
Listen: TypeAlias = Callable[[Callable[[], asyncio.Protocol]], Awaitable[Listener]]


def listening_at(socket_path: str) -> Listen:
    """Return a function that listens at the Unix socket `socket_path`.

    The function is called with a function that makes the protocol of a new connection; it returns the
    listener. The socket's folder should be one that only this user can enter, because the server trusts every
    client.
    """

    async def listen(protocol_factory: Callable[[], asyncio.Protocol]) -> Listener:
        return await asyncio.get_running_loop().create_unix_server(protocol_factory, socket_path)

    return listen


class StoreServer:
    """Serves a metadata store, whose files are in folders of this machine, to clients that connect.

    Only one event loop may use the object. `open` creates it.
    """

    def __init__(self, environment: Environment, tick: float) -> None:
        self.watches = Watches()
        self.tree: DurableTree
        self.sessions: SessionTracker
        self._environment = environment
        self._tick = tick
        self._connections: dict[ServerConnection, None] = {}
        #: connections with events to send
        self._with_events: dict[ServerConnection, None] = {}
        self._listener: Listener | None = None

    @classmethod
    async def open(
        cls,
        environment: Environment,
        folders: Sequence[str | Path],
        listen: Listen,
        *,
        tick: float = TICK,
        before_new: Callable[[], None] | None = None,
    ) -> Self:
        """Open the store in `folders`, and listen.

        Args:
            environment: environment of this process.
            folders: folders of the store's files, as in `EmbeddedStore.open`.
            listen: listens for connections, such as the result of `listening_at`.
            tick: seconds between two checks of the sessions; a session timeout has at least two ticks.
            before_new: called before a new store is created, as in `EmbeddedStore.open`.

        Raises:
            StoreUnavailableError: another process has the store, or it is damaged beyond repair.
            OSError: `listen` failed.
        """
        server = cls(environment, tick)
        server.tree = await DurableTree.open(environment, folders, server._report, before_new)
        server.sessions = SessionTracker(server.tree, environment.random, tick)
        try:
            server._listener = await listen(lambda: ServerConnection(server))
        except BaseException:
            await server.close()
            raise
        return server

    async def close(self) -> None:
        """Disconnect all clients, end all sessions, and close the files."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.abort()
        await self.sessions.close()
        await self.tree.close()

    # -- what connections call

    def opened(self, connection: ServerConnection) -> bool:
        if len(self._connections) >= MAX_CONNECTIONS:
            log.error("the metadata store has %d connections: it accepts no more", MAX_CONNECTIONS)
            return False
        self._connections[connection] = None
        return True

    def closed(self, connection: ServerConnection) -> None:
        self._connections.pop(connection, None)
        self._with_events.pop(connection, None)

    def has_pending_events(self, connection: ServerConnection) -> None:
        self._with_events[connection] = None

    def _report(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.watches.report(change.event, change.path)
        connections, self._with_events = self._with_events, {}
        for connection in connections:
            connection.send_events()
