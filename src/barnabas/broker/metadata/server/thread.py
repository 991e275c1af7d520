"""Runs the server of the embedded metadata store in a separate thread.

The server lets the brokers of one machine share a store, over a Unix socket. So they need no ZooKeeper.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from barnabas.base.environment.environment import Environment
from barnabas.base.system import event_loop
from barnabas.base.system.sockets import remove_if_dead
from barnabas.base.tasks import IS_VITAL
from barnabas.base.text import logger_of
from barnabas.broker.metadata.server.server import TICK, StoreServer, listening_at
from barnabas.broker.metadata.zookeeper.address import unix_address

log = logger_of(__name__)

#: the beginning of the name of a socket's folder, and the name of the socket
_FOLDER, _SOCKET = "barnabas-", "store"


class StoreServerThread:
    """Serves an embedded metadata store to the brokers of this machine, from a separate thread.

    The thread has its own event loop. The server runs within a `with` block, or from `start` to `stop`.

    Its socket is in a new temporary folder, which only this user can enter. The folders of the store may be
    unsuitable: the path of a socket must be short, and not every file system supports sockets.
    """

    def __init__(
        self,
        folders: Sequence[str | Path],
        *,
        tick: float = TICK,
        before_new: Callable[[], None] | None = None,
        on_failure: Callable[[BaseException], object] = lambda error: None,
    ) -> None:
        """Prepare a server.

        Args:
            folders: folders with the files of the store.
            tick: seconds between two checks for expired sessions.
            before_new: called before the server creates a new store, because `folders` have none.
            on_failure: called in the server's thread with the error, if a bug has stopped the server.
        """
        self._folders = folders
        self._tick = tick
        self._before_new = before_new
        self._on_failure = on_failure
        self._socket_folder = ""
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._server: StoreServer

    @property
    def address(self) -> str:
        """The value of ``zookeeper.connect`` for clients."""
        return unix_address(self._socket_path)

    @property
    def _socket_path(self) -> str:
        return f"{self._socket_folder}/{_SOCKET}"

    def start(self) -> Self:
        """Start the thread, and wait until its server has opened the store and listens.

        Raises:
            StoreUnavailableError: another process has the store, or it is damaged beyond repair.
            OSError: the socket cannot be created.
        """
        self._socket_folder = tempfile.mkdtemp(prefix=_FOLDER)
        self._thread = threading.Thread(target=self._run, name="barnabas-store", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self.stop()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop the server, close the store and end the thread. Do nothing if the thread does not run."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._failure is None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        shutil.rmtree(self._socket_folder, ignore_errors=True)

    def end_owner_of(self, path: str) -> None:
        """Start to end the session that owns the ephemeral node at `path`. Do not wait for the end.

        Call this after the client's process has ended.
        """
        asyncio.run_coroutine_threadsafe(self._server.sessions.end_owner_of(path), self._loop)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            event_loop.run(self._serve())
        except BaseException as error:
            self._failure = error
            log.debug("the metadata store's server has ended", exc_info=True)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._loop.set_exception_handler(self._on_error)
        self._server = await StoreServer.open(
            Environment.of_system(),
            self._folders,
            listening_at(self._socket_path),
            tick=self._tick,
            before_new=self._before_new,
        )
        self._started.set()
        try:
            await self._stopping.wait()
        finally:
            await self._server.close()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        if context.get(IS_VITAL) and not self._stopping.is_set():
            self._stopping.set()
            self._on_failure(context["exception"])


def remove_dead_socket(address: str) -> None:
    """Remove the socket of a server whose process was killed, and the folder of the socket.

    Do nothing if a server listens there, or if `address` is not the address of a `StoreServerThread`. If the
    folder has another file, only remove the socket.
    """
    path = Path(address.removeprefix(unix_address("")))
    if path.parent.name.startswith(_FOLDER) and path.name == _SOCKET:
        remove_if_dead(path)
