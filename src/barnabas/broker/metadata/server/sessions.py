"""Sessions of the store's clients.

A session without messages ends after its timeout, with its ephemeral nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Protocol

from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.broker.metadata.durable_tree import DurableTree
from barnabas.broker.metadata.store import Delete, StoreUnavailableError
from barnabas.broker.metadata.tree import Tree

log = logger_of(__name__)

_PASSWORD_BYTES = 16
#: the shortest session timeout, in ticks, and the longest one, in seconds
_MIN_TICKS = 2
_MAX_TIMEOUT = 60.0
#: the most sessions, with or without a connection, so that no client fills the memory with sessions
MAX_SESSIONS = 1000
#: between two attempts to remove a session's nodes, while the disk fails; in seconds
_RETRY = 1.0


class Connected(Protocol):
    """The connection of a session."""

    def abort(self) -> None:
        """Close the connection at once. Requests that were not read are lost."""


class ServerSession:
    """A client's session. `heard` is the time of its last message, by the clock of `SessionTracker`.

    `timeout` is in seconds. A client that resumes the session must send `password`. A session that
    `has_ended` must get no more nodes: nothing would delete them.
    """

    __slots__ = ("connection", "has_ended", "heard", "id", "password", "timeout")

    def __init__(self, id: int, password: bytes, timeout: float, heard: float) -> None:
        self.id = id
        self.password = password
        self.timeout = timeout
        self.heard = heard
        self.connection: Connected | None = None
        self.has_ended = False


class SessionTracker:
    """The sessions of all clients, by id.

    At each check, the clock advances by at most two ticks. So a server that was stopped (SIGSTOP, a suspended
    machine) first reads the messages that have arrived, before it ends a session. Clients measure their own
    time, and to end a session late is always safe.

    Args:
        tree: the store's tree, with the ephemeral nodes that the sessions own.
        random: makes ids and passwords.
        tick: seconds between two checks.
    """

    def __init__(self, tree: DurableTree, random: Random, tick: float) -> None:
        self._tree = tree
        self._random = random
        self._tick = tick
        self._sessions: dict[int, ServerSession] = {}
        self._now = 0.0
        self._removals: set[asyncio.Task[None]] = set()
        self._looking = start_task(self._look(), "store sessions", is_vital=True)

    def begin(self, timeout: float) -> ServerSession | None:
        """Begin a session with a timeout in seconds. Return None if there are too many sessions.

        The session's timeout is at least two ticks and at most `_MAX_TIMEOUT`, whatever `timeout` is.
        """
        if len(self._sessions) >= MAX_SESSIONS:
            log.error("there are %d sessions: no more can begin", MAX_SESSIONS)
            return None
        timeout = min(max(timeout, _MIN_TICKS * self._tick), _MAX_TIMEOUT)
        session = ServerSession(
            self._random.getrandbits(62) + 1, self._random.randbytes(_PASSWORD_BYTES), timeout, self._now
        )
        self._sessions[session.id] = session
        return session

    def resume(self, id: int, password: bytes) -> ServerSession | None:
        """Return the session with this id, for a new connection, and close the session's earlier connection.

        Return None if the session has ended, or if the password is wrong.
        """
        session = self._sessions.get(id)
        if session is None or session.password != password:
            return None
        self.heard(session)
        if session.connection is not None:
            session.connection.abort()
        return session

    def heard(self, session: ServerSession) -> None:
        """Record that the session's client has just sent a message."""
        session.heard = self._now

    async def end(self, session: ServerSession) -> None:
        """End a session, and wait until its ephemeral nodes are deleted."""
        removal = self._end(session)
        if removal is not None:
            await asyncio.wait({removal})

    async def end_owner_of(self, path: str) -> None:
        """End the session that owns the ephemeral node at `path`, after the client's process has ended.

        Wait until the session's ephemeral nodes are deleted. Do nothing if there is no such session.
        """
        async with self._tree.reading() as tree:
            node = tree.find(path)
        session = None if node is None else self._sessions.get(node.owner)
        if session is not None:
            await self.end(session)

    async def close(self) -> None:
        """Stop the checks of sessions, and stop the deletions of the nodes of ended sessions.

        These nodes are ephemeral: they are only in memory, and end with the process.
        """
        await stop_tasks(self._looking, *self._removals)

    def _end(self, session: ServerSession) -> asyncio.Task[None] | None:
        if self._sessions.pop(session.id, None) is None:
            return None
        session.has_ended = True
        removal = start_task(self._remove_nodes(session.id), "end of a session", is_vital=True)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        return removal

    async def _remove_nodes(self, id: int) -> None:
        def nodes(tree: Tree) -> Sequence[Delete]:
            return [Delete(path) for path in tree.owned_by(id)]

        while True:
            try:
                await self._tree.submit(nodes, id).done
                return
            except StoreUnavailableError as error:  # the disk fails: the nodes must go when it is back
                log.error("cannot delete the nodes of session 0x%x yet: %s", id, error)
                await asyncio.sleep(_RETRY)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        while True:
            await asyncio.sleep(self._tick)
            now = loop.time()
            self._now += min(now - before, 2 * self._tick)
            before = now
            for session in list(self._sessions.values()):
                if self._now - session.heard > session.timeout:
                    log.warning(
                        "session 0x%x ends, because its client has sent nothing for %.1f s: its nodes are "
                        "deleted",
                        session.id,
                        session.timeout,
                    )
                    if session.connection is not None:
                        session.connection.abort()
                    self._end(session)
